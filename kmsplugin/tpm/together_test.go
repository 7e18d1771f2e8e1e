package tpm_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/kmsplugin"
	"github.com/kube-atrest/atrest/kmsplugin/plugintest"
	"github.com/kube-atrest/atrest/kmsplugin/tpm/swtpmtest"
)

// What an apiserver has wrapped is read while several change the file, and give up now and then.
func TestAllIsReadWhileSeveralChangeTheFile(t *testing.T) {
	chip := swtpmtest.Start(t)
	s, recoveryKey := created(t, chip, "")
	keeper := plugintest.Keep(t, at(t, chip, s.Path(), ""), often())
	var apiservers, changers sync.WaitGroup
	var changed atomic.Bool
	for range 2 {
		apiservers.Go(func() {
			var wrapped []kmsplugin.Sealed
			for n := 0; n == 0 || !changed.Load(); n++ {
				if made, err := keeper.Encrypt(context.Background(), "u", dek); err == nil && len(wrapped) < 1000 {
					wrapped = append(wrapped, made)
				}
				if len(wrapped) == 0 {
					continue
				}
				is := wrapped[n%len(wrapped)]
				if got, err := keeper.Decrypt(context.Background(), "u", is); err != nil || string(got) != string(dek) {
					t.Errorf("%s: %v", is.KeyID, err)
					return
				}
			}
		})
	}
	for i := range 3 {
		own := at(t, chip, s.Path(), "")
		changers.Go(func() {
			for n := range 15 {
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(5+40*(n%5))*time.Millisecond)
				switch (n + i) % 5 {
				case 0:
					_, _ = own.Rotate(ctx)
				case 1:
					_, _ = own.Stage(ctx)
				case 2:
					_, _ = own.Activate(ctx, "")
				case 3:
					_, _, _ = own.Reseal(ctx, false)
				case 4:
					_, _ = own.Recover(ctx, recoveryKey, "")
				}
				cancel()
			}
		})
	}
	changers.Wait()
	changed.Store(true)
	apiservers.Wait()
	require.NoError(t, keeper.Check(t.Context()))
	infos, err := s.List()
	require.NoError(t, err)
	_, found, err := looked(t, s)
	require.NoError(t, err)
	require.Len(t, found.All, len(infos))
	requireNothingLoaded(t, chip)
}
