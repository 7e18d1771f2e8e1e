//go:build cgo

package pkcs11

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	cryptoki "github.com/miekg/pkcs11"
	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/kmsplugin"
	"github.com/kube-atrest/atrest/kmsplugin/plugintest"
)

func TestEachPINThatIsRefusedIsTriedOnce(t *testing.T) {
	token, _ := tokenWithKey(t)
	var tries []string
	alter(t, token).login = func(pin string) error { tries = append(tries, pin); return nil }
	for range 3 {
		for _, pin := range []string{"000000", "111111"} {
			writePIN(t, token.config, pin)
			_, err := token.Open(t.Context())
			require.ErrorIs(t, err, kmsplugin.ErrDenied)
		}
	}
	require.Equal(t, []string{"000000", "111111"}, tries)
	writePIN(t, token.config, firstPIN)
	opened(t, token)
}

// Not every token says of a wrong PIN that it is wrong, or how many tries are left.
func TestWhateverATokenAnswersToAPINItIsNotTriedAgain(t *testing.T) {
	for _, code := range []uint{
		cryptoki.CKR_PIN_INCORRECT, cryptoki.CKR_PIN_LOCKED, cryptoki.CKR_FUNCTION_REJECTED, cryptoki.CKR_GENERAL_ERROR, cryptoki.CKR_FUNCTION_FAILED,
		cryptoki.CKR_DEVICE_ERROR, cryptoki.CKR_VENDOR_DEFINED + 5, cryptoki.CKR_USER_ANOTHER_ALREADY_LOGGED_IN,
	} {
		before, _ := tokenWithKey(t)
		token := newToken(t, before.config) // as after a start
		tries := 0
		alter(t, token).login = func(string) error { tries++; return cryptoki.Error(code) }
		for range 4 {
			_, err := token.Open(t.Context())
			require.ErrorIs(t, err, kmsplugin.ErrDenied)
			require.ErrorContains(t, err, "not tried again")
			require.ErrorContains(t, err, "start this again")
		}
		require.Equal(t, 1, tries, code)
	}
}

// triedAgain is a token whose PIN has worked, and that answers it with fails from now on.
type triedAgain struct {
	*Token
	*altered
	clock *stepping
	tries int
	fails error
}

func tryAgain(t *testing.T) *triedAgain {
	clock := &stepping{}
	c := newConfig(t)
	c.Clock = clock
	token := newToken(t, c)
	_, err := token.Create(t.Context())
	require.NoError(t, err)
	again := &triedAgain{Token: token, altered: alter(t, token), clock: clock}
	again.altered.login = func(string) error { again.tries++; return again.fails }
	return again
}

// A PIN that worked is right, and an HSM that starts may answer anything for some time, or have no
// memory.
func TestAPINThatWorkedIsTriedAgainWithGrowingPausesAfterAnAnswerThatSaysNothing(t *testing.T) {
	for _, code := range []uint{cryptoki.CKR_DEVICE_ERROR, cryptoki.CKR_VENDOR_DEFINED + 5, cryptoki.CKR_DEVICE_MEMORY, cryptoki.CKR_HOST_MEMORY, cryptoki.CKR_SESSION_COUNT} {
		token := tryAgain(t)
		for range 2 {
			token.tries, token.fails = 0, cryptoki.Error(code)
			for n, minutes := range []int{1, 2, 4, 8, 15, 15} {
				for range 4 {
					_, err := token.Open(t.Context())
					require.ErrorIs(t, err, kmsplugin.ErrUnavailable)
					require.NotErrorIs(t, err, kmsplugin.ErrDenied)
					require.ErrorContains(t, err, "tried again in")
					token.clock.passed.Add(int64(time.Duration(minutes) * time.Minute / 4))
				}
				require.Equal(t, n+1, token.tries)
			}
			token.fails = nil // it is up
			s, err := token.Open(t.Context())
			require.NoError(t, err)
			require.NoError(t, s.Close(t.Context()))
		}
	}
}

func TestAPINThatWorkedIsNotTriedAgainOnceTheTokenMayHaveCountedIt(t *testing.T) {
	for _, flag := range []uint{cryptoki.CKF_USER_PIN_COUNT_LOW, cryptoki.CKF_USER_PIN_FINAL_TRY, cryptoki.CKF_USER_PIN_LOCKED} {
		token := tryAgain(t)
		token.fails = cryptoki.Error(cryptoki.CKR_FUNCTION_FAILED)
		token.info = func(info cryptoki.TokenInfo, err error) (cryptoki.TokenInfo, error) {
			if token.tries > 2 {
				info.Flags |= flag
			}
			return info, err
		}
		for range 10 {
			_, err := token.Open(t.Context())
			require.Error(t, err)
			token.clock.passed.Add(int64(time.Hour))
		}
		require.Equal(t, 3, token.tries)
		_, err := token.Open(t.Context())
		require.ErrorIs(t, err, kmsplugin.ErrDenied)
	}
}

// A module may know slots and tokens by heart, and only its device knows the PIN.
func TestNoPINIsTriedAtADeviceThatIsAway(t *testing.T) {
	for _, code := range []uint{cryptoki.CKR_DEVICE_ERROR, cryptoki.CKR_DEVICE_REMOVED} {
		before, _ := tokenWithKey(t)
		token := newToken(t, before.config) // as after a start
		tries := 0
		a := alter(t, token)
		a.login = func(string) error { tries++; return cryptoki.Error(code) }
		a.draws = cryptoki.Error(code)
		for range 3 {
			_, err := token.Open(t.Context())
			require.ErrorIs(t, err, errAway)
		}
		require.Zero(t, tries)
		a.login, a.draws = nil, cryptoki.Error(cryptoki.CKR_RANDOM_NO_RNG)
		opened(t, token)
	}
}

func TestAPINThatATokenWasAwayForIsTriedAgain(t *testing.T) {
	token, _ := tokenWithKey(t)
	away := true
	alter(t, token).login = func(string) error {
		if away {
			return cryptoki.Error(cryptoki.CKR_DEVICE_REMOVED)
		}
		return nil
	}
	for range 4 {
		_, err := token.Open(t.Context())
		require.ErrorIs(t, err, errAway)
	}
	away = false
	opened(t, token)
}

// What says nothing is no answer to a PIN if the token is not in its slot after it.
func TestAPINIsTriedAgainIfTheTokenIsNotInItsSlotAfterwards(t *testing.T) {
	for what, answer := range map[string]error{"it cannot be asked": cryptoki.Error(cryptoki.CKR_GENERAL_ERROR), "its slot is empty": nil} {
		t.Run(what, func(t *testing.T) {
			before, _ := tokenWithKey(t)
			token := newToken(t, before.config) // as after a start
			a, tries, away := alter(t, token), 0, false
			a.login = func(string) error { tries++; away = true; return cryptoki.Error(cryptoki.CKR_GENERAL_ERROR) }
			a.info = func(info cryptoki.TokenInfo, err error) (cryptoki.TokenInfo, error) {
				if away {
					return cryptoki.TokenInfo{}, answer
				}
				return info, err
			}
			_, err := token.Open(t.Context())
			require.Error(t, err)
			require.NotErrorIs(t, err, kmsplugin.ErrDenied)
			require.Equal(t, 1, tries)
			a.login, away = nil, false
			opened(t, token)
		})
	}
}

func TestAPINThatIsGivenForItsFileIsNotShown(t *testing.T) {
	c := newConfig(t)
	t.Chdir(t.TempDir())
	c.PINFile = firstPIN
	_, err := newToken(t, c).Open(t.Context())
	require.ErrorIs(t, err, ErrMistake)
	require.NotContains(t, fmt.Sprint(err), firstPIN)
}

// Some modules know slots and tokens by heart, and say of their device that is away no more than that
// something failed. That is no answer to a PIN, of which one may be new since the last login.
func TestNoPINIsTriedAtADeviceThatDrawsNoRandomBytesAnyMore(t *testing.T) {
	for _, code := range []uint{cryptoki.CKR_GENERAL_ERROR, cryptoki.CKR_FUNCTION_FAILED, cryptoki.CKR_VENDOR_DEFINED + 5} {
		token := tryAgain(t)
		s, err := token.Open(t.Context())
		require.NoError(t, err)
		require.NoError(t, s.Close(t.Context()))
		act(t, token.config, "change the PIN")
		writePIN(t, token.config, otherPIN)
		token.tries, token.fails, token.altered.draws = 0, cryptoki.Error(code), cryptoki.Error(code)
		for range 3 {
			_, err := token.Open(t.Context())
			require.ErrorIs(t, err, errAway)
		}
		require.Zero(t, token.tries)
		token.fails, token.altered.draws = nil, nil
		token.clock.passed.Add(int64(time.Minute)) // SoftHSM sees another PIN once it is initialised again
		opened(t, token.Token)
	}
}

// Who is logged in needs no PIN. To say that the back end was opened with a PIN that nobody has tried
// would have it taken for right, on all nodes, until the token is away and locks.
func TestNothingIsOpenedForAPINThatIsNotTried(t *testing.T) {
	token, info := tokenWithKey(t)
	var opened, looked atomic.Int32
	config := quick(token)
	config.Observer.Opened = func(why kmsplugin.Reason) {
		if why == kmsplugin.AfterCredentials { // and not as a busy machine ended the last one
			opened.Add(1)
		}
	}
	config.Observer.Looked = func(kmsplugin.Look) { looked.Add(1) }
	k := plugintest.Keep(t, token, config)
	becomes(t, k, wraps(info.KeyID))
	writePIN(t, token.config, "a wrong one")
	most := looked.Load() + 100 // longer than the second that is between two
	becomes(t, k, func(keyID string, err error) bool { return looked.Load() > most && err == nil })
	require.Zero(t, opened.Load())
}
