//go:build cgo

package pkcs11

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"sync/atomic"
	"testing"
	"time"

	cryptoki "github.com/miekg/pkcs11"
	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/kmsplugin"
	"github.com/kube-atrest/atrest/kmsplugin/plugintest"
)

// opened is a session with a token that has a key, and the version of that.
func opened(t testing.TB, token *Token) (*session, kmsplugin.Version) {
	t.Helper()
	s, err := token.Open(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close(context.Background())) })
	found, err := s.Versions(t.Context())
	require.NoError(t, err)
	return s.(*session), found.All[found.Writes]
}

// AWS CloudHSM takes no IV, and tells the one that it drew where it was given zeros.
func TestATokenThatDrawsItsIVs(t *testing.T) {
	token, _ := tokenWithKey(t)
	a := alter(t, token)
	var drawn []byte
	a.encrypts = func(real driver, h cryptoki.SessionHandle, key cryptoki.ObjectHandle, iv, aad, plaintext []byte) ([]byte, []byte, error) {
		if !bytes.Equal(iv, make([]byte, ivSize)) {
			return nil, nil, cryptoki.Error(cryptoki.CKR_MECHANISM_PARAM_INVALID)
		}
		drawn = make([]byte, ivSize)
		_, _ = rand.Read(drawn)
		ct, _, err := real.seal(h, key, drawn, aad, plaintext)
		return ct, drawn, err
	}
	s, v := opened(t, token)
	ct, used, err := s.Wrap(t.Context(), v, []byte("dek"), []byte("aad"))
	require.NoError(t, err)
	require.Equal(t, v, used)
	require.Equal(t, drawn, ct[1:1+ivSize])
	dek, err := s.Unwrap(t.Context(), v, ct, []byte("aad"))
	require.NoError(t, err)
	require.Equal(t, "dek", string(dek))
}

func TestTokensWhoseIVsAreNotKnownAreNotUsed(t *testing.T) {
	token, _ := tokenWithKey(t)
	a := alter(t, token)
	s, v := opened(t, token)
	for says, answer := range map[string]func(ct, iv []byte) ([]byte, []byte){
		"or with zeros": func(ct, iv []byte) ([]byte, []byte) { return ct, make([]byte, ivSize) },
		"IV of 16":      func(ct, iv []byte) ([]byte, []byte) { return ct, append(iv, 1, 2, 3, 4) },
		"and not 16":    func(ct, iv []byte) ([]byte, []byte) { return append(ct, iv...), iv },
	} {
		a.set(func(a *altered) {
			a.encrypts = func(real driver, h cryptoki.SessionHandle, key cryptoki.ObjectHandle, iv, aad, plaintext []byte) ([]byte, []byte, error) {
				ct, used, err := real.seal(h, key, iv, aad, plaintext)
				ct, used = answer(ct, used)
				return ct, used, err
			}
		})
		_, _, err := s.Wrap(t.Context(), v, []byte("dek"), nil)
		require.ErrorIs(t, err, kmsplugin.ErrKeyDisabled)
		require.ErrorContains(t, err, says)
	}
}

func TestAHandleThatIsAnotherKeysByNowIsFound(t *testing.T) {
	token, _ := tokenWithKey(t)
	a := alter(t, token)
	s, v := opened(t, token)
	other := newKeyID(7, time.Now())
	a.set(func(a *altered) { a.attributes = func(found []*cryptoki.Attribute) { found[0].Value = other[:] } })
	_, _, err := s.Wrap(t.Context(), v, []byte("dek"), nil)
	require.ErrorIs(t, err, errHasNot)
	_, err = s.Unwrap(t.Context(), v, append([]byte{form}, make([]byte, 60)...), nil)
	require.ErrorIs(t, err, errHasNot)
	require.NotErrorIs(t, err, kmsplugin.ErrInvalid)

	a.set(func(a *altered) {
		a.attributes = func(found []*cryptoki.Attribute) { found[0].Value = []byte("other") }
	})
	_, _, err = s.Wrap(t.Context(), v, []byte("dek"), nil)
	require.ErrorIs(t, err, kmsplugin.ErrUnavailable)
}

func TestACiphertextThatDoesNotOpenIsInvalid(t *testing.T) {
	token, _ := tokenWithKey(t)
	s, v := opened(t, token)
	ct, _, err := s.Wrap(t.Context(), v, []byte("dek"), []byte("aad"))
	require.NoError(t, err)
	for at := range ct {
		damaged := bytes.Clone(ct)
		damaged[at] ^= 1
		_, err := s.Unwrap(t.Context(), v, damaged, []byte("aad"))
		require.ErrorIs(t, err, kmsplugin.ErrInvalid, at)
	}
	for size := range ct {
		_, err := s.Unwrap(t.Context(), v, ct[:size], []byte("aad"))
		require.ErrorIs(t, err, kmsplugin.ErrInvalid, size)
	}
	_, err = s.Unwrap(t.Context(), v, ct, []byte("other"))
	require.ErrorIs(t, err, kmsplugin.ErrInvalid)
	_, err = s.Unwrap(t.Context(), v, append(ct, 0), []byte("aad"))
	require.ErrorIs(t, err, kmsplugin.ErrInvalid)
	_, err = s.Unwrap(t.Context(), v, ct, []byte("aad"))
	require.NoError(t, err)
}

// SoftHSM answers the same to a ciphertext that does not open and to anything else.
func TestAFailureOfTheTokenIsNotBlamedOnTheCiphertext(t *testing.T) {
	token, _ := tokenWithKey(t)
	a := alter(t, token)
	s, v := opened(t, token)
	ct, _, err := s.Wrap(t.Context(), v, []byte("dek"), nil)
	require.NoError(t, err)

	failures := 1
	a.set(func(a *altered) {
		a.decrypts = func() error {
			if failures--; failures >= 0 {
				return cryptoki.Error(cryptoki.CKR_GENERAL_ERROR)
			}
			return nil
		}
	})
	dek, err := s.Unwrap(t.Context(), v, ct, nil)
	require.NoError(t, err)
	require.Equal(t, "dek", string(dek))

	failures = 1000
	_, err = s.Unwrap(t.Context(), v, ct, nil)
	require.ErrorIs(t, err, kmsplugin.ErrUnavailable)
	require.NotErrorIs(t, err, kmsplugin.ErrInvalid)
}

func TestWhatEndsASession(t *testing.T) {
	token, info := tokenWithKey(t)
	a := alter(t, token)
	for _, code := range []uint{cryptoki.CKR_DEVICE_REMOVED, cryptoki.CKR_TOKEN_NOT_PRESENT, cryptoki.CKR_SESSION_HANDLE_INVALID, cryptoki.CKR_USER_NOT_LOGGED_IN, cryptoki.CKR_CRYPTOKI_NOT_INITIALIZED} {
		s, v := opened(t, token)
		ct, _, err := s.Wrap(t.Context(), v, []byte("dek"), nil)
		require.NoError(t, err)
		a.set(func(a *altered) { a.decrypts = func() error { return cryptoki.Error(code) } })
		_, err = s.Unwrap(t.Context(), v, ct, nil)
		require.ErrorIs(t, err, kmsplugin.ErrUnavailable)
		require.ErrorIs(t, s.Renew(t.Context()), errOver)
		_, err = s.Unwrap(t.Context(), v, ct, nil)
		require.ErrorIs(t, err, errOver)
		a.set(func(a *altered) { a.decrypts = nil })
	}
	k := keep(t, token)
	becomes(t, k, wraps(info.KeyID))
}

func TestClassesOfAnswers(t *testing.T) {
	token, _ := tokenWithKey(t)
	a := alter(t, token)
	s, v := opened(t, token)
	for code, class := range map[uint]error{
		cryptoki.CKR_KEY_FUNCTION_NOT_PERMITTED: kmsplugin.ErrKeyDisabled,
		cryptoki.CKR_DEVICE_MEMORY:              kmsplugin.ErrThrottled,
		cryptoki.CKR_FUNCTION_REJECTED:          kmsplugin.ErrDenied,
		cryptoki.CKR_ENCRYPTED_DATA_INVALID:     kmsplugin.ErrUnavailable, // to every ciphertext
		cryptoki.CKR_DEVICE_ERROR:               kmsplugin.ErrUnavailable,
		cryptoki.CKR_VENDOR_DEFINED + 17:        kmsplugin.ErrUnavailable,
	} {
		a.set(func(a *altered) { a.decrypts = func() error { return cryptoki.Error(code) } })
		_, err := s.Unwrap(t.Context(), v, append([]byte{form}, make([]byte, 40)...), nil)
		require.ErrorIs(t, err, class)
	}
	a.set(func(a *altered) { a.decrypts = nil })
	_, err := s.Versions(t.Context())
	require.NoError(t, err, "none of these ends the session")
}

// While another process logs in or makes a key SoftHSM does not find what is there.
func TestATokenIsAwayAndAKeyDeletedOnlyIfItStaysSo(t *testing.T) {
	token, _ := tokenWithKey(t)
	a := alter(t, token)
	s, v := opened(t, token)
	var failures atomic.Int64 // as two sessions look at once
	lost := func() bool { return failures.Add(-1) >= 0 }
	a.set(func(a *altered) {
		a.hides = lost
		a.info = func(info cryptoki.TokenInfo, err error) (cryptoki.TokenInfo, error) {
			if lost() {
				return cryptoki.TokenInfo{}, cryptoki.Error(cryptoki.CKR_GENERAL_ERROR)
			}
			return info, err
		}
	})
	for n := range int64(5) {
		failures.Store(n)
		found, err := s.Versions(t.Context())
		require.NoError(t, err)
		require.Equal(t, v, found.All[0])
	}
	failures.Store(1000)
	found, err := s.Versions(t.Context())
	require.ErrorIs(t, err, errAway)
	require.NotErrorIs(t, err, ErrNoKey)
	require.Equal(t, v, found.All[0], "what was there may unwrap")
	require.ErrorIs(t, s.Renew(t.Context()), errOver)
}

func TestAnotherTokenInTheSlotIsNotOneWithoutKeys(t *testing.T) {
	token, _ := tokenWithKey(t)
	a := alter(t, token)
	s, _ := opened(t, token)
	a.set(func(a *altered) {
		a.hides = func() bool { return true }
		a.info = func(info cryptoki.TokenInfo, err error) (cryptoki.TokenInfo, error) {
			info.SerialNumber = "another"
			return info, err
		}
	})
	_, err := s.Versions(t.Context())
	require.ErrorIs(t, err, errAway)
	require.ErrorContains(t, err, `"another" is in its slot`)
}

func TestACallThatDoesNotReturnHoldsNobodyUp(t *testing.T) {
	token, info := tokenWithKey(t)
	a := alter(t, token)
	config := quick(token)
	config.CallTimeout = 500 * time.Millisecond
	k := plugintest.Keep(t, token, config)
	becomes(t, k, wraps(info.KeyID))
	hang := make(chan struct{})
	a.set(func(a *altered) {
		a.attributes = func([]*cryptoki.Attribute) { <-hang }
	})
	becomes(t, k, is(kmsplugin.ErrUnavailable))
	close(hang)
	becomes(t, k, wraps(info.KeyID))
}

func TestAModuleIsNotInitialisedAgainWhileACallRuns(t *testing.T) {
	m := newModule("m", nil)
	m.ready, m.generation, m.calls = true, 1, 1
	require.ErrorIs(t, m.restart(func() {}), errStuck)
	m.calls, m.live = 0, 1
	require.ErrorIs(t, m.restart(func() {}), errInUse)
}

func TestATokenWithoutAESGCM(t *testing.T) {
	token, _ := tokenWithKey(t)
	alter(t, token).mechanism = cryptoki.Error(cryptoki.CKR_MECHANISM_INVALID)
	_, err := token.Open(t.Context())
	require.ErrorIs(t, err, ErrMistake)
	require.ErrorContains(t, err, "no AES-GCM")
}

func TestCKAIDs(t *testing.T) {
	now := time.Date(2026, 11, 23, 12, 0, 0, 1, time.UTC)
	id := newKeyID(7, now)
	back, ok := parseKeyID(id[:])
	require.True(t, ok)
	require.Equal(t, id, back)
	require.Equal(t, now.Truncate(time.Second), id.created())
	require.EqualValues(t, 7, id.counter())
	require.NotEqual(t, id, newKeyID(7, now))
	require.NotEqual(t, id.version().KeyID(), newKeyID(7, now).version().KeyID())
	require.Negative(t, older(id, newKeyID(8, now.Add(-time.Hour))))

	none := newKeyID(0, now)
	for _, raw := range [][]byte{nil, {1}, id[:31], append(id[:], 0), none[:], bytes.Repeat([]byte("a"), 32)} {
		_, ok := parseKeyID(raw)
		require.False(t, ok)
	}
	binary.BigEndian.PutUint64(id[8:], 1<<63)
	require.True(t, id.created().IsZero())
}
