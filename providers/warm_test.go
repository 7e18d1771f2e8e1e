package providers_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/envelope"
	"github.com/kube-atrest/atrest/internal/faultplugin"
	"github.com/kube-atrest/atrest/providers"
)

// meeting lets Decrypt calls go on only when as many are under way as are to
// meet: a caller that asks for one after another waits for ever.
type meeting struct {
	envelope.Plugin
	present *atomic.Int32
	most    *atomic.Int32
	full    chan struct{}
	fill    *sync.Once
	size    int32
}

func (m meeting) Decrypt(ctx context.Context, w envelope.Wrapped) ([]byte, error) {
	n := m.present.Add(1)
	defer m.present.Add(-1)
	for most := m.most.Load(); n > most && !m.most.CompareAndSwap(most, n); most = m.most.Load() {
	}
	if n == m.size {
		m.fill.Do(func() { close(m.full) })
	}
	select {
	case <-m.full:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return m.Plugin.Decrypt(ctx, w)
}

func TestDEKsAreUnwrappedManyAtATimeAheadOfTheirReaders(t *testing.T) {
	const deks, each = 3 * providers.WarmAtOnce, 5
	p := faultplugin.Start(t)
	content := fileOf(rule("secrets", kms("a", p), gcmKey, identity))
	values := writtenUnder(t, content, deks, each)
	values = append(values, []byte("plain"), []byte("k8s:enc:kms:v2:a:damaged"), []byte("k8s:enc:kms:v2:unknown:\n\x01x"), nil)
	server, m := metAt(t, content, providers.WarmAtOnce)
	require.True(t, server.ReadsKMS(secrets))
	require.False(t, server.ReadsKMS(configmaps))

	require.Equal(t, deks, server.Warm(t.Context(), slices.Values(values)))
	require.Equal(t, int32(providers.WarmAtOnce), m.most.Load(), "the bound holds")
	require.Equal(t, 2*deks, p.Calls().Decrypt, "each was proven once when it was made")
	for _, v := range values[:deks*each] {
		plain, _ := read(t, server, secrets, v)
		require.Equal(t, "v", plain)
	}
	require.Equal(t, 2*deks, p.Calls().Decrypt, "the readers ask for nothing")
	require.Zero(t, server.Warm(t.Context(), slices.Values(values)))
}

// The resources of a server that starts are looked through side by side.
func TestTheBoundOfUnwrapsIsThatOfAllCallers(t *testing.T) {
	p := faultplugin.Start(t)
	content := fileOf(rule("secrets", kms("a", p)))
	values := writtenUnder(t, content, providers.WarmAtOnce+20, 1)
	server, m := metAt(t, content, providers.WarmAtOnce+1)
	first := make(chan int)
	go func() { first <- server.Warm(t.Context(), slices.Values(values[20:])) }()
	require.Eventually(t, func() bool { return m.present.Load() == providers.WarmAtOnce }, 30*time.Second, time.Millisecond)

	over, cancel := context.WithCancel(t.Context())
	cancel()
	for _, v := range values[:20] { // each could have taken a place, if there were one
		server.Warm(over, slices.Values([][]byte{v}))
	}
	require.Equal(t, int32(providers.WarmAtOnce), m.most.Load())
	close(m.full)
	require.Equal(t, providers.WarmAtOnce, <-first)
}

// writtenUnder are values under so many DEKs, so many under each: each start of a
// server has a DEK of its own.
func writtenUnder(t *testing.T, content string, deks, each int) (values [][]byte) {
	for range deks {
		server := begun(t, content)
		for range each {
			values = append(values, write(t, server, secrets, "v"))
		}
		server.Close()
	}
	return values
}

// metAt builds a server whose plugin unwraps only when so many calls have met.
func metAt(t *testing.T, content string, size int32) (*providers.Transformers, meeting) {
	c, err := config.Parse([]byte(content), config.Options{})
	require.NoError(t, err)
	m := meeting{present: new(atomic.Int32), most: new(atomic.Int32), full: make(chan struct{}), fill: new(sync.Once), size: size}
	server, err := providers.Build(c, providers.Options{Dial: func(e envelope.Endpoint, d time.Duration, r envelope.Recorder) (envelope.Plugin, error) {
		plugin, err := envelope.Dial(e, d, r)
		m := m
		m.Plugin = plugin
		return m, err
	}})
	require.NoError(t, err)
	t.Cleanup(server.Close)
	return server, m
}

func TestWarmingEndsWithItsContextAndForgivesThePlugin(t *testing.T) {
	p := faultplugin.Start(t)
	content := fileOf(rule("secrets", kms("a", p)))
	first := begun(t, content)
	value := write(t, first, secrets, "v")
	p.Kill()
	second := built(t, nil, content)
	require.Equal(t, 1, second.Warm(t.Context(), slices.Values([][]byte{value, value})))

	p.Set(func(b *faultplugin.Behaviour) { b.Hang = true })
	p.Serve()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	built(t, nil, content).Warm(ctx, slices.Values([][]byte{value}))
}
