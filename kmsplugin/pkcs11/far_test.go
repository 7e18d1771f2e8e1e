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
)

// far is HSMs of which one is away, which a module sees only after a time: it opens some sessions, with
// the others.
type far struct {
	driver
	opened atomic.Int32
	has    int32
	away   time.Duration
	works  time.Duration // how long a wrap takes
}

func (f *far) OpenSession(slot, flags uint) (cryptoki.SessionHandle, error) {
	if f.opened.Add(1) > f.has {
		time.Sleep(f.away) // by the clock of the test
		return 0, cryptoki.Error(cryptoki.CKR_DEVICE_ERROR)
	}
	return f.driver.OpenSession(slot, flags)
}

func (f *far) seal(h cryptoki.SessionHandle, key cryptoki.ObjectHandle, iv, aad, dek []byte) ([]byte, []byte, error) {
	time.Sleep(f.works)
	return f.driver.seal(h, key, iv, aad, dek)
}

func farFrom(t *testing.T, token *Token) *far {
	m, err := load(token.config.Module)
	require.NoError(t, err)
	f := &far{driver: m.driver, has: 2, away: 20 * time.Second, works: 10 * time.Millisecond}
	mine := newModule(m.path, f)
	token.load = func(string) (*module, error) { return mine, nil }
	return f
}

func TestAPluginDoesNotWaitAtItsStartForSessionsThatTakeLong(t *testing.T) {
	token, _ := tokenWithKey(t)
	synctest.Test(t, func(t *testing.T) {
		farFrom(t, token)
		began := time.Now()
		s, v := opened(t, token)
		require.LessOrEqual(t, time.Since(began), 3*time.Second)
		requireWorks(t, s, v)
		found, err := looksInTime(t, s)
		require.NoError(t, err)
		require.True(t, found.Partial, "another session is opened, which may be with another HSM")
		time.Sleep(time.Minute)
		found, err = looksInTime(t, s)
		require.NoError(t, err)
		require.False(t, found.Partial)
	})
}

func TestWhoWaitsForASessionHasOneThatComesFreeBeforeAnotherIsOpened(t *testing.T) {
	token, _ := tokenWithKey(t)
	synctest.Test(t, func(t *testing.T) {
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
