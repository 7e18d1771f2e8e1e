//go:build cgo

package pkcs11

import (
	"context"
	"sync"
	"testing"
	"time"

	cryptoki "github.com/miekg/pkcs11"
	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/internal/bubble"
	"github.com/kube-atrest/atrest/kmsplugin"
)

// telling watches that nothing is asked of the slot while the module ends, and after.
type telling struct {
	*altered
	mu       sync.Mutex
	asking   int
	finals   int
	overlaps int
	ask      func()
}

func (f *telling) GetTokenInfo(slot uint) (cryptoki.TokenInfo, error) {
	f.mu.Lock()
	f.asking++
	ask := f.ask
	f.mu.Unlock()
	if ask != nil {
		ask()
	}
	defer func() {
		f.mu.Lock()
		f.asking--
		f.mu.Unlock()
	}()
	return f.altered.GetTokenInfo(slot)
}

func (f *telling) Finalize() error {
	f.mu.Lock()
	f.finals++
	f.overlaps += f.asking
	f.mu.Unlock()
	return f.altered.Finalize()
}

func tellingOf(t *testing.T, token *Token) *telling {
	f := &telling{altered: alter(t, token)}
	mine := newModule(token.config.Module, f)
	token.load = func(string) (*module, error) { return mine, nil }
	return f
}

func TestAModuleIsNotInitialisedAgainWhileItsSlotIsAsked(t *testing.T) {
	token, _ := tokenWithKey(t)
	f := tellingOf(t, token)
	s, v := opened(t, token)
	f.set(func(a *altered) { a.fails = cryptoki.Error(cryptoki.CKR_DEVICE_ERROR) })
	call, hang, hangs := hangOnce()
	f.mu.Lock()
	f.ask = call
	f.mu.Unlock()
	var asks sync.WaitGroup
	asks.Go(func() { _, _, _ = s.Wrap(t.Context(), v, []byte("dek"), nil) })
	<-hangs
	s.token.trust.doubt(blind)
	s.end()
	f.set(func(a *altered) { a.fails = nil })
	next, err := token.Open(t.Context())
	close(hang)
	asks.Wait()
	require.Zero(t, f.overlaps, "C_Finalize beside another call")
	if err == nil {
		require.NoError(t, next.Close(context.Background()))
	} else {
		require.ErrorIs(t, err, errStuck)
	}
}

func TestASlotThatDoesNotAnswerHoldsNobodyUp(t *testing.T) {
	token, _ := tokenWithKey(t)
	bubble.Test(t, func(t *testing.T) {
		f := tellingOf(t, token)
		s, v := opened(t, token)
		f.set(func(a *altered) { a.fails = cryptoki.Error(cryptoki.CKR_DEVICE_ERROR) })
		call, hang, _ := hangOnce()
		f.mu.Lock()
		f.ask = call
		f.mu.Unlock()
		began := time.Now()
		time.AfterFunc(time.Hour, func() { close(hang) })
		ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
		defer cancel()
		_, _, err := s.Wrap(ctx, v, []byte("dek"), nil)
		require.ErrorIs(t, err, kmsplugin.ErrUnavailable)
		require.Equal(t, 2500*time.Millisecond, time.Since(began).Round(time.Millisecond))
		time.Sleep(2 * time.Hour)
	})
}
