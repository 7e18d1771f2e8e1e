package providers_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/envelope"
	"github.com/kube-atrest/atrest/healthz"
	"github.com/kube-atrest/atrest/internal/faultplugin"
	"github.com/kube-atrest/atrest/providers"
)

// Values are written and read, cold and warm, while files replace each other, the
// plugins rotate their keys, and metrics and health are asked for: nothing fails,
// and the race detector has something to look at.
func TestFilesReplaceEachOtherBesideReadsWritesAndHousekeeping(t *testing.T) {
	p, q := faultplugin.Start(t), faultplugin.Start(t)
	cold := [][]byte{under("p", foreign(t, p, "x")), under("q", foreign(t, q, "x"))}
	files := []string{
		fileOf(rule("secrets", kms("p", p), kms("q", q), gcmKey), rule("pods", kms("r", q))),
		fileOf(rule("secrets", kms("q", q), kms("p", p), gcmKey)),
		fileOf(rule("secrets", gcmKey, kms("r", p), kms("q", q), kms("p", p))),
		fileOf(rule("secrets", kms("p", p), gcmKey, kms("q", q)), rule("pods", kms("r", p))),
	}
	o := func(o *providers.Options) {
		o.Envelope = envelope.Options{MaxDEKs: 8, MaxDEKAge: time.Millisecond, HealthyPoll: time.Millisecond, UnhealthyPoll: time.Millisecond}
	}
	var mu sync.RWMutex // readers hold it as the reload's set holds a generation
	inUse := begun(t, files[0], o)
	done := make(chan struct{})
	var all sync.WaitGroup
	beside := func(do func(x *providers.Transformers)) {
		all.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				mu.RLock()
				do(inUse)
				mu.RUnlock()
			}
		})
	}
	for i := range 4 {
		beside(func(x *providers.Transformers) {
			chain := x.TransformerForResource(secrets)
			sealed, err := chain.TransformToStorage(t.Context(), fmt.Append(nil, i), at)
			if !assert.NoError(t, err) {
				return
			}
			for _, value := range [][]byte{sealed, cold[i%2]} {
				_, _, err = chain.TransformFromStorage(t.Context(), value, at)
				assert.NoError(t, err)
			}
		})
	}
	beside(func(x *providers.Transformers) { x.Tend(time.Now()) })
	beside(func(x *providers.Transformers) { x.Health(); x.Ask(t.Context()) })
	for i := range 40 {
		if i%10 == 0 {
			rotate(t, inUse, p, fmt.Sprint(i))
		}
		next := built(t, inUse, files[(i+1)%len(files)], o)
		if !assert.NoError(t, next.Prepare(t.Context())) {
			break
		}
		former := inUse
		next.Commit(func() { mu.Lock(); inUse = next; mu.Unlock() })
		former.Close()
	}
	close(done)
	all.Wait()
	require.False(t, t.Failed())
}

// rotate changes the key_id of a plugin, and waits until that is known.
func rotate(t *testing.T, x *providers.Transformers, p *faultplugin.Plugin, keyID string) {
	t.Helper()
	p.Heal(keyID)
	require.Eventually(t, func() bool {
		return slices.ContainsFunc(x.Health(), func(h healthz.Provider) bool {
			return h.Endpoint == p.Endpoint() && h.KeyIDHash == envelope.HashKeyID(keyID)
		})
	}, 30*time.Second, time.Millisecond)
}
