//go:build cgo

package pkcs11

import (
	"context"
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
)

// far is HSMs of which one is away, which a module sees only after a time: it opens some sessions, with
// the others.
type far struct {
	driver
	opened atomic.Int32
	has    atomic.Int32
	full   atomic.Bool // the others have no more sessions
	away   time.Duration
	works  time.Duration // how long a wrap takes
	// refuses is what it says to a wrap, if not zero.
	refuses atomic.Uint64
}

func (f *far) OpenSession(slot, flags uint) (cryptoki.SessionHandle, error) {
	if f.opened.Add(1) > f.has.Load() {
		if f.full.Load() {
			return 0, cryptoki.Error(cryptoki.CKR_SESSION_COUNT)
		}
		time.Sleep(f.away) // by the clock of the test
		return 0, cryptoki.Error(cryptoki.CKR_DEVICE_ERROR)
	}
	return f.driver.OpenSession(slot, flags)
}

func (f *far) seal(h cryptoki.SessionHandle, key cryptoki.ObjectHandle, iv, aad, dek []byte) ([]byte, []byte, error) {
	time.Sleep(f.works)
	if code := f.refuses.Load(); code != 0 {
		return nil, nil, cryptoki.Error(code)
	}
	return f.driver.seal(h, key, iv, aad, dek)
}

func farFrom(t *testing.T, token *Token) *far {
	m, err := load(token.config.Module)
	require.NoError(t, err)
	f := &far{driver: m.driver, away: 20 * time.Second, works: 10 * time.Millisecond}
	f.has.Store(2)
	token.config.Clock = clock.RealClock{}
	mine := newModule(m.path, f)
	token.load = func(string) (*module, error) { return mine, nil }
	return f
}

func TestAPluginDoesNotWaitAtItsStartForSessionsThatTakeLong(t *testing.T) {
	token, _ := tokenWithKey(t)
	bubble.Test(t, func(t *testing.T) {
		f := farFrom(t, token)
		began := time.Now()
		s, v := opened(t, token)
		require.LessOrEqual(t, time.Since(began), 3*time.Second)
		requireWorks(t, s, v)
		found, err := looksInTime(t, s)
		require.NoError(t, err)
		require.True(t, found.Partial, "another session is opened, which may be with another HSM")
		for range 3 {
			time.Sleep(time.Minute)
			found, err = looksInTime(t, s)
			require.NoError(t, err)
			require.True(t, found.Partial, "it could not be opened")
		}
		time.Sleep(time.Minute)
		f.has.Store(1000)
		_, err = looksInTime(t, s) // has them opened, though nobody waits for one
		require.NoError(t, err)
		synctest.Wait()
		require.Equal(t, 8, s.pool.size())
		found, err = looksInTime(t, s)
		require.NoError(t, err)
		require.False(t, found.Partial)
	})
}

// A plugin that was started while one HSM was away has all its sessions with the other, and the key is
// not copied there yet.
func TestAKeyOfAnHSMWithWhichNoSessionCouldBeOpenedIsNotSaidToBeGone(t *testing.T) {
	token := tokenWithKeys(t, 2)
	bubble.Test(t, func(t *testing.T) {
		truth, v := opened(t, newToken(t, token.config))
		ct, _, err := truth.Wrap(t.Context(), v, []byte("dek"), nil)
		require.NoError(t, err)
		h := behind(t, token, 2)
		h.lacks[0], _ = parseKeyID(v.Lineage)
		h.next = func(opened int) int { return min(opened/2, 1) }
		f := &far{driver: h, away: 20 * time.Second}
		f.has.Store(2)
		token.config.Clock = clock.RealClock{}
		mine := newModule(token.config.Module, f)
		token.load = func(string) (*module, error) { return mine, nil }
		s, _ := opened(t, token)
		for _, full := range []bool{false, true, true} {
			f.full.Store(full)
			time.Sleep(time.Minute)
			_, err = s.Unwrap(t.Context(), v, ct, nil)
			require.ErrorIs(t, err, kmsplugin.ErrUnavailable)
			require.NotErrorIs(t, err, kmsplugin.ErrUnknownKey)
		}
		time.Sleep(time.Minute)
		f.has.Store(1000)
		_, err = looksInTime(t, s)
		require.NoError(t, err)
		synctest.Wait()
		dek, err := s.Unwrap(t.Context(), v, ct, nil)
		require.NoError(t, err)
		require.Equal(t, "dek", string(dek))
	})
}

func TestWhoWaitsForASessionHasOneThatComesFreeBeforeAnotherIsOpened(t *testing.T) {
	token, _ := tokenWithKey(t)
	bubble.Test(t, func(t *testing.T) {
		f := farFrom(t, token)
		s, v := opened(t, token)
		time.Sleep(time.Minute)
		for range 3 {
			before, began := f.opened.Load(), time.Now()
			var all sync.WaitGroup
			for range 8 {
				all.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
					defer cancel()
					if _, _, err := s.Wrap(ctx, v, []byte("dek"), nil); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			require.Less(t, time.Since(began), time.Second)
			require.Greater(t, f.opened.Load(), before, "others are opened, too")
			time.Sleep(time.Minute)
		}
	})
}

// Another session takes long to open, and what did not fail needs none.
func TestWhatTheTokenDidOrRefusesCostsNoSession(t *testing.T) {
	token := tokenWithKeys(t, 1)
	gaveUp := func(t *testing.T) context.Context {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		return ctx
	}
	for what, does := range map[string]func(*testing.T, *far, *session, kmsplugin.Version, []byte){
		"a ciphertext is damaged": func(t *testing.T, _ *far, s *session, v kmsplugin.Version, ct []byte) {
			_, err := s.Unwrap(t.Context(), v, damagedOf(ct), nil)
			require.ErrorIs(t, err, kmsplugin.ErrInvalid)
		},
		"who called gave up": func(t *testing.T, _ *far, s *session, v kmsplugin.Version, ct []byte) {
			_, err := s.Unwrap(gaveUp(t), v, ct, nil)
			require.Error(t, err)
		},
		"the key may not encrypt": func(t *testing.T, f *far, s *session, v kmsplugin.Version, _ []byte) {
			f.refuses.Store(cryptoki.CKR_KEY_FUNCTION_NOT_PERMITTED)
			_, _, err := s.Wrap(t.Context(), v, []byte("dek"), nil)
			require.ErrorIs(t, err, kmsplugin.ErrKeyDisabled)
			f.refuses.Store(0)
		},
	} {
		t.Run(what, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				f := farFrom(t, token)
				s, v := opened(t, token)
				time.Sleep(time.Minute)
				ct, _, err := s.Wrap(t.Context(), v, []byte("dek"), nil)
				require.NoError(t, err)
				before := f.opened.Load()
				for range silences - 1 {
					does(t, f, s, v, ct)
					synctest.Wait() // for what nobody waits for
				}
				require.Equal(t, before, f.opened.Load())
				requireWorks(t, s, v)
				time.Sleep(time.Minute) // what runs still has ended
			})
		})
	}
}
