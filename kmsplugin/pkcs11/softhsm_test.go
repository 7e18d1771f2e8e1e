//go:build cgo

package pkcs11

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	cryptoki "github.com/miekg/pkcs11"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"

	"github.com/kube-atrest/atrest/kmsplugin"
	"github.com/kube-atrest/atrest/kmsplugin/plugintest"
)

// The tests run on SoftHSM, with a folder of tokens for the process, as a module reads its
// configuration when it is initialised, and a token for each test.

// elsewhere in the environment has the test binary do something to a token as another process.
const elsewhere = "ATREST_PKCS11_ELSEWHERE"

const (
	firstPIN = "123456"
	otherPIN = "654321"
	soPIN    = "87654321"
)

func TestMain(m *testing.M) {
	if do := os.Getenv(elsewhere); do != "" {
		if err := doElsewhere(do); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	folder, err := os.MkdirTemp("", "hsm")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(folder)
	conf := filepath.Join(folder, "softhsm2.conf")
	text := "directories.tokendir = " + tokensIn(folder) + "\nobjectstore.backend = file\nlog.level = ERROR\n"
	if err := os.Mkdir(tokensIn(folder), 0o700); err != nil {
		panic(err)
	}
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		panic(err)
	}
	if err := os.Setenv("SOFTHSM2_CONF", conf); err != nil {
		panic(err)
	}
	return m.Run()
}

func tokensIn(folder string) string { return filepath.Join(folder, "tokens") }

// tokens is the folder that all tokens are in.
func tokens() string { return tokensIn(filepath.Dir(os.Getenv("SOFTHSM2_CONF"))) }

// softHSM is the path of the module. Where it is not installed the test is skipped.
func softHSM(t testing.TB) string {
	t.Helper()
	found, _ := filepath.Glob("/usr/lib*/*/softhsm/libsofthsm2.so")
	more, _ := filepath.Glob("/usr/lib*/softhsm/libsofthsm2.so")
	found = append(found, more...)
	if _, err := exec.LookPath("softhsm2-util"); err != nil || len(found) == 0 {
		t.Skip("there is no SoftHSM: apt-get install softhsm2")
	}
	return found[0]
}

// patient is a clock by which all sessions of a token that is there are opened at the start, however
// busy the machine is.
type patient struct{ clock.RealClock }

func (p patient) NewTimer(d time.Duration) clock.Timer {
	if d == fillFor {
		d = time.Hour
	}
	return p.RealClock.NewTimer(d)
}

// newConfig is a Config of a new token, that has no key yet.
func newConfig(t testing.TB) Config {
	t.Helper()
	module := softHSM(t)
	c := Config{Module: module, Token: fmt.Sprintf("of %d", time.Now().UnixNano()), PINFile: filepath.Join(t.TempDir(), "pin"), Key: "kek", Clock: patient{}}
	writePIN(t, c, firstPIN)
	initToken(t, c.Token)
	return c
}

func initToken(t testing.TB, label string) {
	t.Helper()
	out, err := exec.Command("softhsm2-util", "--init-token", "--free", "--label", label, "--so-pin", soPIN, "--pin", firstPIN).CombinedOutput()
	require.NoError(t, err, string(out))
}

// comesWith has all tokens be a new one at once: one without a PIN yet would refuse it.
func comesWith(t testing.TB, label string) {
	t.Helper()
	folder := filepath.Join(filepath.Dir(tokens()), "new")
	require.NoError(t, os.MkdirAll(tokensIn(folder), 0o700))
	conf := filepath.Join(folder, "softhsm2.conf")
	require.NoError(t, os.WriteFile(conf, []byte("directories.tokendir = "+tokensIn(folder)+"\nobjectstore.backend = file\n"), 0o600))
	command := exec.Command("softhsm2-util", "--init-token", "--free", "--label", label, "--so-pin", soPIN, "--pin", firstPIN)
	command.Env = append(os.Environ(), "SOFTHSM2_CONF="+conf)
	out, err := command.CombinedOutput()
	require.NoError(t, err, string(out))
	require.NoError(t, os.Rename(tokensIn(folder), tokens()))
}

func writePIN(t testing.TB, c Config, pin string) {
	t.Helper()
	next := c.PINFile + ".new"
	require.NoError(t, os.WriteFile(next, []byte(pin+"\n"), 0o600))
	require.NoError(t, os.Rename(next, c.PINFile))
}

func newToken(t testing.TB, c Config) *Token {
	t.Helper()
	token, err := New(c)
	require.NoError(t, err)
	return token
}

// tokenWithKey is a new token with one key.
func tokenWithKey(t testing.TB) (*Token, KeyInfo) {
	t.Helper()
	token := newToken(t, newConfig(t))
	info, err := token.Create(t.Context())
	require.NoError(t, err)
	return token, info
}

// quick looks often, so that no test waits for a poll.
func quick(token *Token) kmsplugin.Config {
	c := token.Keeping()
	c.Poll, c.Steady = 20*time.Millisecond, 1
	return c
}

func keep(t testing.TB, token *Token) *kmsplugin.Keeper {
	t.Helper()
	return plugintest.Keep(t, token, quick(token))
}

// becomes waits until the keeper's Status tells something.
func becomes(t testing.TB, k *kmsplugin.Keeper, is func(keyID string, err error) bool) {
	t.Helper()
	// A module that is doubted is initialised again after pauses of up to a minute.
	if !assert.Eventually(t, func() bool { return is(k.Status(t.Context())) }, 4*time.Minute, time.Millisecond) {
		keyID, err := k.Status(t.Context())
		require.FailNow(t, "Status is another one", "key_id %q, %v", keyID, err)
	}
}

// takeAway moves all tokens away, and returns what brings them back.
func takeAway(t testing.TB) (bringBack func()) {
	t.Helper()
	away := tokens() + ".away"
	require.NoError(t, os.Rename(tokens(), away))
	back := false
	bringBack = func() {
		if !back {
			back = true
			require.NoError(t, os.Rename(away, tokens()))
		}
	}
	t.Cleanup(bringBack)
	return bringBack
}

// act has another process do something to the token of c.
func act(t testing.TB, c Config, what string, arguments ...string) (says string) {
	t.Helper()
	program, err := os.Executable()
	require.NoError(t, err)
	command := exec.Command(program)
	command.Env = append(os.Environ(), elsewhere+"="+strings.Join(append([]string{what, c.Module, c.Token, c.Key, c.PINFile}, arguments...), "\n"))
	out, err := command.CombinedOutput()
	require.NoError(t, err, string(out))
	return string(out)
}

// rotate has another process make a key.
func rotate(t testing.TB, token *Token) (info KeyInfo) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(act(t, token.config, "rotate")), &info))
	return info
}

// idOf is the CKA_ID of the newest key.
func idOf(t testing.TB, token *Token) string {
	t.Helper()
	return act(t, token.config, "tell the CKA_ID")
}

func doElsewhere(do string) error {
	words := strings.Split(do, "\n")
	what, module, token, key, arguments := words[0], words[1], words[2], words[3], words[4:]
	t := &Token{config: Config{Module: module, Token: token, Key: key, PINFile: arguments[0], Clock: clock.RealClock{}}, load: load}
	if change := map[string]func(context.Context) (KeyInfo, error){"rotate": t.Rotate, "create": t.Create}[what]; change != nil {
		info, err := change(context.Background())
		return errors.Join(err, json.NewEncoder(os.Stdout).Encode(info))
	}
	d := library{cryptoki.New(module)}
	if err := d.Initialize(); err != nil {
		return err
	}
	slot, _, err := t.find(d)
	if err != nil {
		return err
	}
	h, err := d.OpenSession(slot, cryptoki.CKF_SERIAL_SESSION|cryptoki.CKF_RW_SESSION)
	if err != nil {
		return err
	}
	if err := d.Login(h, cryptoki.CKU_USER, firstPIN); err != nil {
		return err
	}
	switch what {
	case "change the PIN":
		return d.SetPIN(h, firstPIN, otherPIN)
	case "tell the CKA_ID":
		found, err := newLine(d, h).lookTwice(context.Background(), t)
		fmt.Printf("%x", found.ids[len(found.ids)-1][:])
		return err
	case "delete":
		return destroy(d, h, t, arguments[1])
	case "make":
		return make1(d, h, t, arguments[1:])
	}
	return fmt.Errorf("cannot %s", what)
}

// destroy deletes the key with a CKA_ID, or all of the label.
func destroy(d library, h cryptoki.SessionHandle, t *Token, id string) error {
	template := []*cryptoki.Attribute{cryptoki.NewAttribute(cryptoki.CKA_LABEL, t.config.Key)}
	if id != "" {
		raw, err := hex.DecodeString(id)
		if err != nil {
			return err
		}
		template = append(template, cryptoki.NewAttribute(cryptoki.CKA_ID, raw))
	}
	found, err := d.find(h, template)
	if err != nil || len(found) == 0 {
		return fmt.Errorf("%d found: %w", len(found), err)
	}
	for _, object := range found {
		if err := d.DestroyObject(h, object); err != nil {
			return err
		}
	}
	return nil
}

// make1 makes a key that has something wrong.
func make1(d library, h cryptoki.SessionHandle, t *Token, wrong []string) error {
	id := newKeyID(9, time.Now())
	template, mechanism := t.template(id), uint(cryptoki.CKM_AES_KEY_GEN)
	set := func(name uint, value any) {
		template = slices.DeleteFunc(template, func(a *cryptoki.Attribute) bool { return a.Type == name })
		if value != nil {
			template = append(template, cryptoki.NewAttribute(name, value))
		}
	}
	switch wrong[0] {
	case "extractable":
		set(cryptoki.CKA_EXTRACTABLE, true)
	case "of 128 bits":
		set(cryptoki.CKA_VALUE_LEN, 16)
	case "public":
		set(cryptoki.CKA_PRIVATE, false)
	case "foreign":
		set(cryptoki.CKA_ID, []byte{1})
	case "write-only":
		set(cryptoki.CKA_DECRYPT, false)
	case "read-only":
		set(cryptoki.CKA_ENCRYPT, false)
	case "generic":
		set(cryptoki.CKA_KEY_TYPE, cryptoki.CKK_GENERIC_SECRET)
		mechanism = cryptoki.CKM_GENERIC_SECRET_KEY_GEN
	case "with the CKA_ID":
		raw, err := hex.DecodeString(wrong[1])
		if err != nil {
			return err
		}
		set(cryptoki.CKA_ID, raw)
	}
	_, err := d.GenerateKey(h, []*cryptoki.Mechanism{cryptoki.NewMechanism(mechanism, nil)}, template)
	return err
}
