package kmsplugin

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/internal/bubble"
)

// A tally counts the test DEKs of a shelf that are wrapped and unwrapped.
type tally struct {
	*shelf
	wraps, unwraps atomic.Int32
}

func (c *tally) Open(ctx context.Context) (Session, error) {
	_, err := c.shelf.Open(ctx)
	return c, err
}

func (c *tally) Wrap(ctx context.Context, v Version, dek, aad []byte) ([]byte, Version, error) {
	c.wraps.Add(1)
	return c.shelf.Wrap(ctx, v, dek, aad)
}

func (c *tally) Unwrap(ctx context.Context, v Version, ciphertext, aad []byte) ([]byte, error) {
	c.unwraps.Add(1)
	return c.shelf.Unwrap(ctx, v, ciphertext, aad)
}

func (c *tally) looked() (n int) {
	c.set(func() { n = c.looks })
	return n
}

// A poll asks for versions, which is cheap; that a DEK is wrapped and unwrapped, which a KMS may
// charge for, is tested once in Config.Probe, and no call of an apiserver changes that.
func TestATestDEKIsWrappedOnceInAProbe(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := &tally{shelf: newShelf("1")}
		k, err := NewKeeper(c, Config{Poll: 10 * time.Second, Probe: 5 * time.Minute})
		require.NoError(t, err)
		stop := k.Start(t.Context())
		synctest.Wait()
		for probes := int32(1); probes < 5; probes++ {
			require.Equal(t, probes, c.wraps.Load())
			require.Equal(t, probes, c.unwraps.Load())
			looks := c.looked()
			for range 29 { // 4 min 50 s, and after them the fifth minute
				time.Sleep(10 * time.Second)
				synctest.Wait()
				for range 3 {
					keyIDOf(t, k)
				}
			}
			require.Equal(t, looks+29, c.looked())
			require.Equal(t, probes, c.wraps.Load(), "not at each poll")
			time.Sleep(10 * time.Second)
			synctest.Wait()
		}
		require.Equal(t, int32(5), c.wraps.Load())
		require.NoError(t, stop())
	})
}

// What a probe finds broken is trouble, though all versions are told.
func TestAProbeThatFailsLaterIsTrouble(t *testing.T) {
	c := &tally{shelf: newShelf("1")}
	bubble.Test(t, func(t *testing.T) {
		k, err := NewKeeper(c, Config{})
		require.NoError(t, err)
		stop := k.Start(t.Context())
		poll(5)
		keyIDOf(t, k)
		c.set(func() { c.mislabel = true })
		poll(2)
		_, err = k.Status(t.Context())
		require.ErrorContains(t, err, "a test DEK cannot be wrapped")
		require.NoError(t, stop())
	})
}

// Who may read the key and not wrap with it any more tells all versions: Status says so once an
// Encrypt has failed, and not with the next probe.
func TestAnEncryptThatFailsIsSeenInStatusSoon(t *testing.T) {
	c := &unwraps{shelf: newShelf("1")}
	bubble.Test(t, func(t *testing.T) {
		k, err := NewKeeper(c, Config{})
		require.NoError(t, err)
		stop := k.Start(t.Context())
		c.alone.Store(true)
		time.Sleep(2 * time.Second)
		keyIDOf(t, k)
		_, err = k.Encrypt(t.Context(), "", []byte("dek"))
		require.ErrorIs(t, err, ErrDenied)
		time.Sleep(soon)
		synctest.Wait()
		_, err = k.Status(t.Context())
		require.ErrorIs(t, err, ErrDenied)
		require.NoError(t, stop())
	})
}

// unwraps is a shelf that at some time does nothing else.
type unwraps struct {
	*shelf
	alone atomic.Bool
}

func (u *unwraps) Open(ctx context.Context) (Session, error) {
	_, err := u.shelf.Open(ctx)
	return u, err
}

func (u *unwraps) Wrap(ctx context.Context, v Version, dek, aad []byte) ([]byte, Version, error) {
	if u.alone.Load() {
		return nil, Version{}, ErrDenied
	}
	return u.shelf.Wrap(ctx, v, dek, aad)
}
