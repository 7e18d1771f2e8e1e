//go:build cgo

package pkcs11

import (
	"bytes"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	cryptoki "github.com/miekg/pkcs11"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"

	"github.com/kube-atrest/atrest/internal/bubble"
	"github.com/kube-atrest/atrest/kmsplugin"
	"github.com/kube-atrest/atrest/kmsplugin/plugintest"
)

// limited is a token that has so many sessions and no more.
type limited struct {
	driver
	mu   sync.Mutex
	live map[cryptoki.SessionHandle]bool
	most int
	full uint // what it says then
}

// limit puts a token with so few sessions in the place of a token.
func limit(t testing.TB, token *Token, most int) *limited {
	t.Helper()
	m, err := load(token.config.Module)
	require.NoError(t, err)
	l := &limited{driver: m.driver, live: map[cryptoki.SessionHandle]bool{}, most: most, full: cryptoki.CKR_SESSION_COUNT}
	mine := newModule(m.path, l)
	token.load = func(string) (*module, error) { return mine, nil }
	return l
}

func (l *limited) OpenSession(slot, flags uint) (cryptoki.SessionHandle, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.live) >= l.most {
		return 0, cryptoki.Error(l.full)
	}
	h, err := l.driver.OpenSession(slot, flags)
	if err == nil {
		l.live[h] = true
	}
	return h, err
}

func (l *limited) Finalize() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.live)
	return l.driver.Finalize()
}

func (l *limited) CloseSession(h cryptoki.SessionHandle) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.live, h)
	return l.driver.CloseSession(h)
}

// requireSessions takes so many sessions at once, and gives them back.
func requireSessions(t testing.TB, s *session, n int) {
	t.Helper()
	had := map[*line]bool{}
	for range n {
		l, err := deed[int]{session: s}.next(t.Context(), nil, false)
		require.NoError(t, err)
		require.False(t, had[l])
		had[l] = true
	}
	for l := range had {
		s.pool.put(l)
	}
	_, err := s.Versions(t.Context())
	require.NoError(t, err)
}

func damagedOf(ciphertext []byte) []byte {
	damaged := bytes.Clone(ciphertext)
	damaged[len(damaged)-1] ^= 1
	return damaged
}

// A token logs a process out with its last session.
func TestADamagedCiphertextDoesNotLogThePluginOut(t *testing.T) {
	for _, sessions := range []int{1, 2} {
		for _, most := range []int{sessions, sessions + 1} {
			t.Run(fmt.Sprintf("%d sessions of %d", sessions, most), func(t *testing.T) {
				c := newConfig(t)
				c.Sessions = sessions
				token := newToken(t, c)
				_, err := token.Create(t.Context())
				require.NoError(t, err)
				limit(t, token, most)
				s, v := opened(t, token)
				ct, _, err := s.Wrap(t.Context(), v, []byte("dek"), nil)
				require.NoError(t, err)
				act(t, c, "change the PIN") // who is logged out is so for good
				for range 5 {
					_, err = s.Unwrap(t.Context(), v, damagedOf(ct), nil)
					require.ErrorIs(t, err, kmsplugin.ErrInvalid)
					dek, err := s.Unwrap(t.Context(), v, ct, nil)
					require.NoError(t, err)
					require.Equal(t, "dek", string(dek))
				}
				require.False(t, s.isOver())
				require.Equal(t, sessions, s.pool.size())
			})
		}
	}
}

func TestSessionsThatAreExchangedAllAtOnceDoNotLogThePluginOut(t *testing.T) {
	token, _ := tokenWithKey(t)
	a := alter(t, token)
	s, v := opened(t, token)
	ct, _, err := s.Wrap(t.Context(), v, []byte("dek"), nil)
	require.NoError(t, err)
	act(t, token.config, "change the PIN") // who is logged out is so for good
	opening := atomic.Int32{}
	all := make(chan struct{})
	a.set(func(a *altered) {
		a.decrypts = func() error { return cryptoki.Error(cryptoki.CKR_VENDOR_DEFINED + 3) }
		a.opens = func() error {
			if opening.Add(1) == 8 {
				close(all)
			}
			<-all // until each session is exchanged for another one
			return nil
		}
	})
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			if _, err := s.Unwrap(t.Context(), v, ct, nil); !is(kmsplugin.ErrUnavailable)("", err) {
				t.Errorf("%v", err)
			}
		})
	}
	callers.Wait()
	a.set(func(a *altered) { a.decrypts = nil })
	for range 8 {
		_, err = s.Unwrap(t.Context(), v, ct, nil)
		require.NoError(t, err)
	}
	require.False(t, s.isOver())
	require.Equal(t, 8, s.pool.size())
}

// It may have been the only one with its HSM.
func TestASessionThatIsLostInAnExchangeIsOpenedAgainAndLackedUntilThen(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := newPool(nil, 2, []cryptoki.SessionHandle{1, 2}, clock.RealClock{})
		p.close = func(cryptoki.SessionHandle) {}
		answers := []error{cryptoki.Error(cryptoki.CKR_SESSION_COUNT), cryptoki.Error(cryptoki.CKR_DEVICE_ERROR), nil}
		p.open = func() (cryptoki.SessionHandle, error) {
			err := answers[0]
			answers = answers[1:]
			return 3, err
		}
		lost, err := p.exchange(p.now(want{}))
		require.True(t, lost)
		require.Error(t, err)
		require.True(t, p.lacks())
		time.Sleep(again)
		p.retry()
		synctest.Wait()
		require.Equal(t, 2, p.size())
		require.False(t, p.lacks())
	})
}

// The kit opens another session before it closes the last.
func TestASessionThatTakesOverHasAllSessionsOnceTheOtherIsClosed(t *testing.T) {
	token, _ := tokenWithKey(t)
	limit(t, token, 10)
	first, err := token.Open(t.Context())
	require.NoError(t, err)
	second, err := token.Open(t.Context())
	require.NoError(t, err)
	_, err = first.Versions(t.Context())
	require.NoError(t, err, "it is called still")
	require.NoError(t, first.Close(t.Context()))
	requireSessions(t, second.(*session), 8)
	require.NoError(t, second.Close(t.Context()))
}

func TestASessionThatIsOverGivesItsSessionsBack(t *testing.T) {
	token, _ := tokenWithKey(t)
	l := limit(t, token, 8)
	first, err := token.Open(t.Context())
	require.NoError(t, err)
	one := first.(*session).pool.now(want{})
	require.NoError(t, l.CloseSession(one.handle)) // the token ends it
	first.(*session).pool.put(one)
	first.(*session).end()
	second, err := token.Open(t.Context())
	require.NoError(t, err)
	require.Equal(t, 8, second.(*session).pool.size())
	require.NoError(t, first.Close(t.Context()))
	requireSessions(t, second.(*session), 8)
	require.NoError(t, second.Close(t.Context()))
}

func TestATokenThatHasNoMoreSessionsIsAskedAgain(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		asked, has := 0, false
		p := newPool(nil, 2, []cryptoki.SessionHandle{1}, clock.RealClock{})
		p.open = func() (cryptoki.SessionHandle, error) {
			if asked++; !has {
				return 0, cryptoki.Error(cryptoki.CKR_SESSION_COUNT)
			}
			return 2, nil
		}
		grows := func() bool {
			defer synctest.Wait()
			return p.grow()
		}
		require.NotNil(t, p.now(want{}))
		require.Nil(t, p.now(want{}))
		require.True(t, grows())
		require.False(t, grows())
		require.Nil(t, p.now(want{}))
		require.Equal(t, 1, asked, "not for each call")
		has = true
		time.Sleep(again)
		require.True(t, grows())
		require.Equal(t, 2, p.size())
		require.NotNil(t, p.now(want{}))
		require.False(t, grows(), "there are as many as there may be")
	})
}

func TestWhenNoCallReturnsTheLogSaysToRestart(t *testing.T) {
	token, info := tokenWithKey(t)
	a := alter(t, token)
	config := quick(token)
	config.CallTimeout = 300 * time.Millisecond
	k := plugintest.Keep(t, token, config)
	becomes(t, k, wraps(info.KeyID))
	hang := make(chan struct{})
	a.set(func(a *altered) {
		a.encrypts = func(real driver, h cryptoki.SessionHandle, key cryptoki.ObjectHandle, iv, aad, plaintext []byte) ([]byte, []byte, error) {
			<-hang
			return real.seal(h, key, iv, aad, plaintext)
		}
	})
	for range 12 {
		_, err := k.Encrypt(t.Context(), "", []byte("dek"))
		require.Error(t, err)
	}
	becomes(t, k, is(errHang))
	_, err := k.Status(t.Context())
	require.ErrorContains(t, err, "restart the plugin")
	a.set(func(a *altered) { a.encrypts = nil })
	close(hang)
	becomes(t, k, wraps(info.KeyID))
}

// While a caller asks the token for another one, which is none yet, something fails in the only one
// that there is.
func TestASessionThatIsAskedForIsNoneYet(t *testing.T) {
	c := newConfig(t)
	c.Sessions = 2
	token := newToken(t, c)
	_, err := token.Create(t.Context())
	require.NoError(t, err)
	a := &altered{driver: limit(t, token, 1)}
	mine := newModule(token.config.Module, a)
	token.load = func(string) (*module, error) { return mine, nil }
	s, v := opened(t, token)
	ct, _, err := s.Wrap(t.Context(), v, []byte("dek"), nil)
	require.NoError(t, err)
	act(t, c, "change the PIN") // who is logged out is so for good

	s.pool.mu.Lock()
	s.pool.full = time.Time{} // as a second after the look
	s.pool.mu.Unlock()
	asks, opens, answer := make(chan struct{}), make(chan struct{}), make(chan struct{})
	var tries, decrypts atomic.Int32
	a.set(func(a *altered) {
		a.decrypts = func() error {
			if decrypts.Add(1) == 1 {
				close(opens)
				<-asks
			}
			return cryptoki.Error(cryptoki.CKR_VENDOR_DEFINED + 3)
		}
		a.opens = func() error {
			if tries.Add(1) == 1 { // of who finds no session free
				close(asks)
				<-answer
			}
			return nil
		}
	})
	var all sync.WaitGroup
	var failed error
	all.Go(func() {
		_, failed = s.Unwrap(t.Context(), v, ct, nil)
		close(answer)
	})
	<-opens
	all.Go(func() { _, _, _ = s.Wrap(t.Context(), v, []byte("dek"), nil) })
	all.Wait()
	require.False(t, s.isOver(), "logged out")
	require.ErrorIs(t, failed, kmsplugin.ErrUnavailable)
}

// Some tokens say of no more sessions that they have no more memory.
func TestATokenWithoutMemoryForMoreSessionsIsUsedWithWhatItHas(t *testing.T) {
	for _, says := range []uint{cryptoki.CKR_DEVICE_MEMORY, cryptoki.CKR_HOST_MEMORY} {
		for _, most := range []int{3, 8} {
			token, _ := tokenWithKey(t)
			l := limit(t, token, most)
			l.full = says
			s, v := opened(t, token)
			require.Equal(t, most, s.pool.size())
			ct, _, err := s.Wrap(t.Context(), v, []byte("dek"), nil)
			require.NoError(t, err)
			for range 3 {
				_, err = s.Unwrap(t.Context(), v, damagedOf(ct), nil)
				require.ErrorIs(t, err, kmsplugin.ErrInvalid)
			}
			require.False(t, s.isOver())
			requireSessions(t, s, most)
			s.end()
			next, err := token.Open(t.Context())
			require.NoError(t, err, "the kit opens another one before it closes this")
			require.NoError(t, next.Close(t.Context()))
		}
	}
}

func TestWhatIsOverIsGivenBackWhateverATokenSaysOfASessionThatItHasNot(t *testing.T) {
	token, _ := tokenWithKey(t)
	l := limit(t, token, 8)
	l.full = cryptoki.CKR_FUNCTION_FAILED
	first, err := token.Open(t.Context())
	require.NoError(t, err)
	first.(*session).end()
	second, err := token.Open(t.Context())
	require.NoError(t, err)
	require.NoError(t, first.Close(t.Context()))
	require.NoError(t, second.Close(t.Context()))
}
