//go:build cgo

package pkcs11

import (
	"fmt"
	"testing"
	"time"

	cryptoki "github.com/miekg/pkcs11"
	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/kmsplugin"
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

// A PIN that worked is right, and an HSM that starts may answer anything for some time.
func TestAPINThatWorkedIsTriedOnceMoreAMinuteAfterAnAnswerThatSaysNothing(t *testing.T) {
	clock := &stepping{}
	c := newConfig(t)
	c.Clock = clock
	token := newToken(t, c)
	_, err := token.Create(t.Context())
	require.NoError(t, err)
	tries, fails := 0, true
	alter(t, token).login = func(string) error {
		if tries++; fails {
			return cryptoki.Error(cryptoki.CKR_DEVICE_ERROR)
		}
		return nil
	}
	wait := func(d time.Duration) { clock.passed.Add(int64(d)) }
	for range 2 {
		tries, fails = 0, true
		for range 10 {
			_, err := token.Open(t.Context())
			require.ErrorIs(t, err, kmsplugin.ErrUnavailable)
			require.NotErrorIs(t, err, kmsplugin.ErrDenied)
			require.ErrorContains(t, err, "tried once more in")
			wait(5 * time.Second)
		}
		require.Equal(t, 1, tries)
		wait(10 * time.Second)
		fails = false // it is up
		s, err := token.Open(t.Context())
		require.NoError(t, err)
		require.NoError(t, s.Close(t.Context()))
	}

	tries, fails = 0, true
	for range 4 {
		_, err = token.Open(t.Context())
		wait(apart)
	}
	require.ErrorIs(t, err, kmsplugin.ErrDenied)
	require.ErrorContains(t, err, "not tried again")
	require.Equal(t, 2, tries)
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

func TestAPINThatIsGivenForItsFileIsNotShown(t *testing.T) {
	c := newConfig(t)
	t.Chdir(t.TempDir())
	c.PINFile = firstPIN
	_, err := newToken(t, c).Open(t.Context())
	require.ErrorIs(t, err, ErrMistake)
	require.NotContains(t, fmt.Sprint(err), firstPIN)
}
