//go:build cgo

package pkcs11

import (
	"sync/atomic"
	"testing"
	"time"

	cryptoki "github.com/miekg/pkcs11"
	"github.com/stretchr/testify/require"
)

// initialised counts how often a module is.
type initialised struct {
	*altered
	times atomic.Int32
}

func (i *initialised) Initialize(o ...cryptoki.InitializeOption) error {
	i.times.Add(1)
	return i.altered.Initialize(o...)
}

func countInits(t testing.TB, token *Token) *initialised {
	t.Helper()
	i := &initialised{altered: alter(t, token)}
	mine := newModule(token.config.Module, i)
	token.load = func(string) (*module, error) { return mine, nil }
	return i
}

func refusesToWrap(a *altered) {
	a.encrypts = func(driver, cryptoki.SessionHandle, cryptoki.ObjectHandle, []byte, []byte, []byte) ([]byte, []byte, error) {
		return nil, nil, cryptoki.Error(cryptoki.CKR_VENDOR_DEFINED + 7)
	}
}

func isDoubted(token *Token) bool {
	token.trust.mu.Lock()
	defer token.trust.mu.Unlock()
	return token.trust.doubts[blind].stands
}

// The token has a reason of its own, as that the time of the key is over.
func TestASessionThatUnwrapsIsNotEndedForWhatDoesNotWrap(t *testing.T) {
	token, _ := tokenWithKey(t)
	a := alter(t, token)
	s, v := opened(t, token)
	ct, _, err := s.Wrap(t.Context(), v, []byte("dek"), nil)
	require.NoError(t, err)
	a.set(refusesToWrap)
	for range 5 * silences {
		_, _, err := s.Wrap(t.Context(), v, []byte("dek"), nil)
		require.Error(t, err)
		_, err = s.Unwrap(t.Context(), v, ct, nil)
		require.NoError(t, err)
	}
	require.False(t, s.isOver())
}

func TestAModuleIsInitialisedAgainOnceForWhatDoesNotWrapAndThenAfterPauses(t *testing.T) {
	clock := &stepping{}
	clock.passed.Store(time.Now().UnixNano())
	c := newConfig(t)
	c.Clock = clock
	token := newToken(t, c)
	_, err := token.Create(t.Context())
	require.NoError(t, err)
	i := countInits(t, token)
	refuse := func() {
		s, err := token.Open(t.Context())
		require.NoError(t, err)
		found, err := s.Versions(t.Context())
		require.NoError(t, err)
		for range 5 * silences {
			_, _, err := s.Wrap(t.Context(), found.All[0], []byte("dek"), nil)
			require.Error(t, err)
		}
		require.NoError(t, s.Close(t.Context()))
	}
	i.set(refusesToWrap)
	refuse()
	for _, minutes := range []int{1, 2, 4, 8, 15, 15} {
		before := i.times.Load()
		for range 4 {
			refuse()
			clock.passed.Add(int64(time.Duration(minutes) * time.Minute / 4))
		}
		require.EqualValues(t, 1, i.times.Load()-before)
		refuse()
	}
}

// One call hangs from an outage, and all others work again.
func TestACallThatHangsFromAnOutageKeepsNobodyAway(t *testing.T) {
	token, info := tokenWithKey(t)
	a := alter(t, token)
	k := keep(t, token)
	becomes(t, k, wraps(info.KeyID))
	sealed := wrapped(t, k)
	call, hang, hangs := hangOnce()
	a.set(func(a *altered) { a.decrypts = func() error { call(); return nil } })
	defer close(hang)
	go func() { _, _ = k.Decrypt(t.Context(), "", sealed) }()
	<-hangs
	a.set(func(a *altered) { a.fails = cryptoki.Error(cryptoki.CKR_DEVICE_ERROR) })
	becomes(t, k, func(string, error) bool { return isDoubted(token) })
	a.set(func(a *altered) { a.fails = nil })
	becomes(t, k, wraps(info.KeyID))
	requireOpens(t, k, sealed)
}
