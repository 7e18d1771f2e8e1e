//go:build cgo

package pkcs11

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	cryptoki "github.com/miekg/pkcs11"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"

	"github.com/kube-atrest/atrest/kmsplugin"
	"github.com/kube-atrest/atrest/kmsplugin/plugintest"
)

func isWell(_ string, err error) bool { return err == nil }

func is(class error) func(string, error) bool {
	return func(_ string, err error) bool { return errors.Is(err, class) }
}

func wraps(keyID string) func(string, error) bool {
	return func(is string, err error) bool { return err == nil && is == keyID }
}

func requireOpens(t testing.TB, k *kmsplugin.Keeper, sealed kmsplugin.Sealed) {
	t.Helper()
	got, err := k.Decrypt(t.Context(), "", sealed)
	require.NoError(t, err)
	require.Equal(t, "dek", string(got))
}

func wrapped(t testing.TB, k *kmsplugin.Keeper) kmsplugin.Sealed {
	t.Helper()
	sealed, err := k.Encrypt(t.Context(), "", []byte("dek"))
	require.NoError(t, err)
	return sealed
}

func TestAPINThatIsRefusedIsTriedOnce(t *testing.T) {
	token, info := tokenWithKey(t)
	var tries []string
	alter(t, token).login = func(pin string) error { tries = append(tries, pin); return nil }
	writePIN(t, token.config, "000000")
	for range 3 {
		_, err := token.Open(t.Context())
		require.ErrorIs(t, err, kmsplugin.ErrDenied)
		require.NotErrorIs(t, err, ErrMistake, "a plugin that ends is started again, and tries it again")
		require.ErrorContains(t, err, token.config.PINFile)
		require.NotContains(t, err.Error(), "000000")
		writePIN(t, token.config, "000000")
	}
	require.Equal(t, []string{"000000"}, tries)

	k := keep(t, token)
	becomes(t, k, is(kmsplugin.ErrDenied))
	writePIN(t, token.config, firstPIN)
	becomes(t, k, wraps(info.KeyID))
}

func TestTheLastTryIsLeftToPeople(t *testing.T) {
	token, _ := tokenWithKey(t)
	a := alter(t, token)
	a.login = func(string) error { return errors.New("was tried") }
	for flag, says := range map[uint]string{cryptoki.CKF_USER_PIN_FINAL_TRY: "log in once", cryptoki.CKF_USER_PIN_LOCKED: "security officer"} {
		a.info = func(info cryptoki.TokenInfo, err error) (cryptoki.TokenInfo, error) {
			info.Flags |= flag
			return info, err
		}
		_, err := token.Open(t.Context())
		require.ErrorIs(t, err, kmsplugin.ErrDenied)
		require.ErrorContains(t, err, says)
	}
}

// Some tokens say no more of a wrong PIN than that something failed.
func TestATryThatTheTokenCountedIsNotMadeAgain(t *testing.T) {
	token, _ := tokenWithKey(t)
	a := alter(t, token)
	tries := 0
	a.login = func(string) error { tries++; return cryptoki.Error(cryptoki.CKR_FUNCTION_FAILED) }
	a.info = func(info cryptoki.TokenInfo, err error) (cryptoki.TokenInfo, error) {
		if tries > 0 {
			info.Flags |= cryptoki.CKF_USER_PIN_COUNT_LOW
		}
		return info, err
	}
	for range 3 {
		_, err := token.Open(t.Context())
		require.Error(t, err)
	}
	require.Equal(t, 1, tries)
}

func TestAPINThatChangesWhileItServes(t *testing.T) {
	token, info := tokenWithKey(t)
	k := keep(t, token)
	sealed := wrapped(t, k)
	act(t, token.config, "change the PIN")
	writePIN(t, token.config, otherPIN)
	becomes(t, k, wraps(info.KeyID))
	requireOpens(t, k, sealed)

	bringBack := takeAway(t)
	becomes(t, k, is(kmsplugin.ErrUnavailable))
	bringBack()
	becomes(t, k, wraps(info.KeyID)) // it has logged in again
	requireOpens(t, k, sealed)
}

func TestATokenThatIsAway(t *testing.T) {
	token, info := tokenWithKey(t)
	k := keep(t, token)
	sealed := wrapped(t, k)
	for range 3 {
		bringBack := takeAway(t)
		becomes(t, k, is(kmsplugin.ErrUnavailable))
		_, err := k.Encrypt(t.Context(), "", []byte("dek"))
		require.ErrorIs(t, err, kmsplugin.ErrUnavailable)
		_, err = k.Decrypt(t.Context(), "", sealed)
		require.ErrorIs(t, err, kmsplugin.ErrUnavailable)
		bringBack()
		becomes(t, k, wraps(info.KeyID))
		requireOpens(t, k, sealed)
	}
}

// A node that starts while the HSM is away has to come up when that does.
func TestAPluginThatStartsWithoutItsToken(t *testing.T) {
	token, info := tokenWithKey(t)
	bringBack := takeAway(t)
	alter(t, token) // which is not initialised yet
	_ = cryptoki.New(token.config.Module).Finalize()
	k := keep(t, token)
	becomes(t, k, is(kmsplugin.ErrUnavailable))
	bringBack()
	becomes(t, k, wraps(info.KeyID))
}

func TestAKeyThatIsDeleted(t *testing.T) {
	token, first := tokenWithKey(t)
	unhurried(token)
	k := keep(t, token)
	becomes(t, k, wraps(first.KeyID))
	old := wrapped(t, k)
	second := rotate(t, token)
	becomes(t, k, wraps(second.KeyID))
	lost := wrapped(t, k)

	act(t, token.config, "delete", idOf(t, token))
	becomes(t, k, is(kmsplugin.ErrKeyDisabled))
	requireOpens(t, k, old)
	_, err := k.Decrypt(t.Context(), "", lost)
	require.ErrorIs(t, err, kmsplugin.ErrKeyDisabled, "it may come back")
	k = keep(t, token)
	becomes(t, k, wraps(first.KeyID))
	_, err = k.Decrypt(t.Context(), "", lost)
	require.ErrorIs(t, err, kmsplugin.ErrUnknownKey)

	act(t, token.config, "delete", "")
	becomes(t, k, is(kmsplugin.ErrKeyDisabled))
	_, err = token.List(t.Context())
	require.ErrorIs(t, err, ErrNoKey)
	require.ErrorContains(t, err, "pkcs11 create")
}

func TestAKeyOfTheLabelThatIsNotAsItHasToBe(t *testing.T) {
	for what, says := range map[string]string{
		"extractable": "--allow-extractable",
		"public":      "is used without a PIN",
		"of 128 bits": "has 16 bytes, and not 32",
		"foreign":     "was not made by",
		"write-only":  "set CKA_DECRYPT",
		"read-only":   "set CKA_ENCRYPT",
		"generic":     "is not of AES",
	} {
		t.Run(what, func(t *testing.T) {
			token, info := tokenWithKey(t)
			k := keep(t, token)
			sealed := wrapped(t, k)
			act(t, token.config, "make", what)
			becomes(t, k, is(kmsplugin.ErrKeyDisabled))
			_, err := k.Status(t.Context())
			require.ErrorIs(t, err, ErrMistake)
			require.ErrorContains(t, err, says)
			requireOpens(t, k, sealed)

			_, err = token.Rotate(t.Context())
			require.ErrorIs(t, err, ErrMistake)
			infos, err := token.List(t.Context())
			require.ErrorIs(t, err, ErrMistake)
			require.Contains(t, fmt.Sprint(infos), info.ID)
		})
	}
}

func TestAKeyThatCanBeReadIsTakenOnRequest(t *testing.T) {
	c := newConfig(t)
	act(t, c, "make", "extractable")
	c.AllowExtractable = true
	token := newToken(t, c)
	k := keep(t, token)
	becomes(t, k, isWell)
	requireOpens(t, k, wrapped(t, k))
}

func TestTwoKeysWithOneCKAID(t *testing.T) {
	token, _ := tokenWithKey(t)
	k := keep(t, token)
	sealed := wrapped(t, k)
	act(t, token.config, "make", "with the CKA_ID", idOf(t, token))
	becomes(t, k, is(kmsplugin.ErrKeyDisabled))
	_, err := k.Status(t.Context())
	require.ErrorContains(t, err, "is there 2 times")
	requireOpens(t, k, sealed)
}

// Two HSMs of a cluster have another serial number, and copies of one key.
func TestAKeyIDIsOfTheKeyAndNotOfTheToken(t *testing.T) {
	one, info := tokenWithKey(t)
	c := newConfig(t)
	act(t, c, "make", "with the CKA_ID", idOf(t, one))
	infos, err := newToken(t, c).List(t.Context())
	require.NoError(t, err)
	require.Equal(t, []KeyInfo{info}, infos)
}

func TestTokensAreToldApart(t *testing.T) {
	c := newConfig(t)
	one, err := newToken(t, c).Create(t.Context())
	require.NoError(t, err)
	serials := []string{}
	initToken(t, c.Token)
	_ = cryptoki.New(c.Module).Finalize() // SoftHSM sees a new token when it starts
	m, err := load(c.Module)
	require.NoError(t, err)
	m.ready = false
	_, err = newToken(t, c).List(t.Context())
	require.ErrorIs(t, err, ErrMistake)
	require.ErrorContains(t, err, "there are 2 tokens")

	slots, err := m.driver.GetSlotList(true)
	require.NoError(t, err)
	for _, slot := range slots {
		if info, err := m.driver.GetTokenInfo(slot); err == nil && info.Label == c.Token {
			serials = append(serials, info.SerialNumber)
		}
	}
	found := 0
	for _, serial := range serials {
		c.Serial = serial
		infos, err := newToken(t, c).List(t.Context())
		if err == nil {
			found++
			require.Equal(t, one.KeyID, infos[0].KeyID)
		} else {
			require.ErrorIs(t, err, ErrNoKey)
		}
	}
	require.Equal(t, 1, found)

	c.Token, c.Serial = "no such token", ""
	_, err = newToken(t, c).List(t.Context())
	require.ErrorIs(t, err, ErrMistake)
	require.ErrorIs(t, err, kmsplugin.ErrUnavailable)
	require.ErrorContains(t, err, serials[0])
}

func TestMoreCallersThanSessions(t *testing.T) {
	c := newConfig(t)
	c.Sessions = 2
	token := newToken(t, c)
	_, err := token.Create(t.Context())
	require.NoError(t, err)
	k := keep(t, token)
	var all sync.WaitGroup
	for range 64 {
		all.Go(func() {
			sealed, err := k.Encrypt(t.Context(), "", []byte("dek"))
			if err != nil {
				t.Error(err)
				return
			}
			if got, err := k.Decrypt(t.Context(), "", sealed); err != nil || string(got) != "dek" {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
	all.Wait()
}

func TestATokenWithFewerSessionsIsUsedWithWhatItHas(t *testing.T) {
	token, info := tokenWithKey(t)
	var opened atomic.Int32
	alter(t, token).opens = func() error {
		if opened.Add(1) > 3 {
			return cryptoki.Error(cryptoki.CKR_SESSION_COUNT)
		}
		return nil
	}
	s, err := token.Open(t.Context())
	require.NoError(t, err)
	require.Equal(t, 3, s.(*session).pool.size())
	found, err := s.Versions(t.Context())
	require.NoError(t, err)
	require.Equal(t, info.KeyID, found.All[0].KeyID())
	require.NoError(t, s.Close(t.Context()))
}

// dated is a clock that runs, and has another date.
type dated struct {
	clock.RealClock
	now time.Time
}

func (d *dated) Now() time.Time { return d.now }

func TestARotationCountsOnWhateverTheClockSays(t *testing.T) {
	c := newConfig(t)
	clock := &dated{now: time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)}
	c.Clock = clock
	token := newToken(t, c)
	first, err := token.Create(t.Context())
	require.NoError(t, err)
	clock.now = clock.now.Add(-24 * time.Hour)
	second, err := token.Rotate(t.Context())
	require.NoError(t, err)
	infos, err := token.List(t.Context())
	require.NoError(t, err)
	first.Writes = false
	require.Equal(t, []KeyInfo{first, second}, infos)
	require.Regexp(t, `^1-[0-9a-f]{8}$`, first.ID)
	require.Regexp(t, `^2-[0-9a-f]{8}$`, second.ID)
	require.Equal(t, clock.Now(), second.Created)
	_, err = token.Create(t.Context())
	require.ErrorContains(t, err, "rotate to make another")
}

func TestRotateNeedsAKey(t *testing.T) {
	_, err := newToken(t, newConfig(t)).Rotate(t.Context())
	require.ErrorIs(t, err, ErrNoKey)
}

func TestWhatIsNotGivenOrCannotBe(t *testing.T) {
	good := Config{Module: "/lib/x.so", Token: "t", PINFile: "/pin", Key: "k"}
	_, err := New(good)
	require.NoError(t, err)
	for says, spoil := range map[string]func(*Config){
		"path of the PKCS#11 module is not given": func(c *Config) { c.Module = "" },
		"no path from the root on":                func(c *Config) { c.Module = "libsofthsm2.so" },
		"label of the token, or its serial":       func(c *Config) { c.Token = "" },
		"at most 32 bytes":                        func(c *Config) { c.Token = fmt.Sprintf("%33d", 1) },
		"its serial number 16":                    func(c *Config) { c.Serial = fmt.Sprintf("%17d", 1) },
		"file with the PIN is not given":          func(c *Config) { c.PINFile = "" },
		"label of the key is not given":           func(c *Config) { c.Key = "" },
		"-1 sessions":                             func(c *Config) { c.Sessions = -1 },
		"1025 sessions":                           func(c *Config) { c.Sessions = 1025 },
	} {
		c := good
		spoil(&c)
		_, err := New(c)
		require.ErrorIs(t, err, ErrMistake)
		require.ErrorContains(t, err, says)
	}
}

func TestPINFilesThatCannotBeUsed(t *testing.T) {
	folder := plugintest.Folder(t)
	for says, file := range map[string]struct {
		content string
		mode    os.FileMode
	}{
		"chmod 600":           {"secret\n", 0o644},
		"chmod 600 ":          {"secret\n", 0o660},
		"one line":            {"", 0o600},
		"one line, the PIN":   {"\n", 0o600},
		"has to hold one":     {"sec\nret\n", 0o600},
		"it has to hold one ": {"sec\x00ret", 0o600},
	} {
		path := filepath.Join(folder, "pin")
		require.NoError(t, os.WriteFile(path, []byte(file.content), 0o600))
		require.NoError(t, os.Chmod(path, file.mode))
		_, err := readPIN(path)
		require.ErrorIs(t, err, ErrMistake)
		require.ErrorIs(t, err, kmsplugin.ErrDenied)
		require.ErrorContains(t, err, says)
		require.NotContains(t, err.Error(), "ret")
		require.NoError(t, os.Remove(path))
	}
	_, err := readPIN(folder)
	require.ErrorContains(t, err, "no regular file")
	_, err = readPIN(filepath.Join(folder, "none"))
	require.ErrorContains(t, err, "it does not exist")
	path := filepath.Join(folder, "good")
	require.NoError(t, os.WriteFile(path, []byte("12 34\r\n"), 0o640))
	pin, err := readPIN(path)
	require.NoError(t, err)
	require.Equal(t, "12 34", pin)
}

func TestModulesThatCannotBeUsed(t *testing.T) {
	folder := plugintest.Folder(t)
	text, open := filepath.Join(folder, "text.so"), filepath.Join(folder, "open.so")
	require.NoError(t, os.WriteFile(text, []byte("no library"), 0o600))
	require.NoError(t, os.WriteFile(open, nil, 0o600))
	require.NoError(t, os.Chmod(open, 0o666))
	for path, says := range map[string]string{
		filepath.Join(folder, "none.so"): "install what the maker",
		folder:                           "no file",
		open:                             "chmod o-w",
		text:                             "cannot be loaded as a PKCS#11 module",
	} {
		_, err := load(path)
		require.ErrorIs(t, err, ErrMistake)
		require.ErrorIs(t, err, kmsplugin.ErrUnavailable)
		require.ErrorContains(t, err, says)
	}
}
