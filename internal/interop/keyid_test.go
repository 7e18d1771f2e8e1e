package interop

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apiserver/pkg/storage/value"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kube-atrest/atrest/envelope"
	"github.com/kube-atrest/atrest/healthz"
	"github.com/kube-atrest/atrest/internal/faultplugin"
	"github.com/kube-atrest/atrest/internal/stored"
	"github.com/kube-atrest/atrest/providers"
)

// running is a server of ours on a clock that stands still.
type running struct {
	server
	t      *testing.T
	built  *providers.Transformers
	clock  *testingclock.FakeClock
	plugin *faultplugin.Plugin
	etcd   etcd
}

func run(t *testing.T, mode envelope.WriteMode) *running {
	plugin := faultplugin.Start(t)
	clock := testingclock.NewFakeClock(time.Now())
	built, err := loadOurs(t, fileOf(kmsV2("fleet", plugin.Endpoint())), envelope.Options{Mode: mode, Clock: clock})
	require.NoError(t, err)
	ours := server{side: side{name: "atrest", ours: true}, resources: built, Transformer: built.TransformerForResource(secrets)}
	return &running{server: ours, t: t, built: built, clock: clock, plugin: plugin, etcd: etcd{}}
}

// until lets time go by, a step of the poll at a time, until the server has
// noticed something.
func (r *running) until(noticed func(healthz.Provider) bool) {
	r.t.Helper()
	require.Eventually(r.t, func() bool {
		if noticed(r.built.Health()[0]) {
			return true
		}
		if r.clock.HasWaiters() {
			r.clock.Step(envelope.DefaultUnhealthyPoll)
		}
		return false
	}, 10*time.Second, time.Millisecond)
}

// rotate changes the plugin's key_id and waits for the server to see it.
func (r *running) rotate(keyID string) {
	r.t.Helper()
	r.plugin.Heal(keyID)
	r.until(func(h healthz.Provider) bool { return h.KeyIDHash == envelope.HashKeyID(keyID) })
}

// create writes an object that was not there.
func (r *running) create(name string) error {
	data, err := r.TransformToStorage(r.t.Context(), []byte("content"), value.DefaultContext(name))
	if err == nil {
		r.etcd[name] = data
	}
	return err
}

// touch is an update that changes nothing, and reports whether it wrote.
func (r *running) touch(name string) bool {
	r.t.Helper()
	written, err := r.etcd.update(r.server, name, nothing)
	require.NoError(r.t, err)
	return written
}

func (r *running) keyIDOf(name string) string {
	_, payload := payloadOf(r.etcd[name])
	object, err := stored.Parse(payload)
	require.NoError(r.t, err)
	return object.Source.KeyID
}

// The contract of updates that change nothing, step by step as kube-apiserver's
// own tests have it.
func TestAnUpdateThatChangesNothingWritesOncePerKeyID(t *testing.T) {
	for _, mode := range envelope.WriteModes() {
		r := run(t, mode)
		require.NoError(t, r.create("/a"))
		require.False(t, r.touch("/a"), "the key_id is the same")
		for _, keyID := range []string{"2", "3", "2"} {
			r.rotate(keyID)
			require.True(t, r.touch("/a"), "the key_id is another")
			require.Equal(t, keyID, r.keyIDOf("/a"))
			for range 3 {
				require.False(t, r.touch("/a"), "but only once")
			}
		}

		r.plugin.Kill()
		r.until(func(h healthz.Provider) bool { return h.Problem != "" })
		require.NoError(t, r.create("/b"), "the plugin is away, and the write window open")
		require.False(t, r.touch("/a"))

		r.clock.Step(envelope.DefaultWriteWindow + 1)
		require.ErrorIs(t, r.create("/c"), envelope.ErrWritesStopped)
		for _, name := range []string{"/a", "/b"} {
			_, err := r.etcd.update(r.server, name, nothing)
			require.ErrorIs(t, err, envelope.ErrWritesStopped, "nobody knows the key_id: the update must not say that all is well")
		}

		r.plugin.Serve()
		r.rotate("4")
		for _, name := range []string{"/a", "/b"} {
			require.True(t, r.touch(name))
			require.Equal(t, "4", r.keyIDOf(name))
		}
	}
}

// Every object written under one key_id has one wrapped DEK, and the counters
// of their nonces are contiguous.
func TestManyObjectsShareOneDEK(t *testing.T) {
	for _, mode := range envelope.WriteModes() {
		r := run(t, mode)
		sources := map[string]bool{}
		counters := map[byte]bool{}
		for i := range 100 {
			name := fmt.Sprint("/", i)
			require.NoError(t, r.create(name))
			_, payload := payloadOf(r.etcd[name])
			object, err := stored.Parse(payload)
			require.NoError(t, err)
			sources[string(object.Source.EncryptedDEK)] = true
			counters[object.Data[4]] = true
		}
		require.Len(t, sources, 1)
		require.Equal(t, 1, r.plugin.Calls().Encrypt)
		if mode == envelope.Counter {
			require.Len(t, counters, 100, "little endian: the first byte counts")
			require.Contains(t, counters, byte(1))
			require.Contains(t, counters, byte(100))
		}
	}
}

// A cluster moves from one plugin to another while it runs: the new one writes,
// everything is written again, the old one goes, and everything is still read,
// by this library and by a kube-apiserver that starts with the last file.
func TestAClusterMovesFromOnePluginToAnother(t *testing.T) {
	_, oldEndpoint := startStrict(t, "1")
	_, newEndpoint := startStrict(t, "1")
	oldPlugin, newPlugin := kmsV2("old", oldEndpoint), kmsV2("new", newEndpoint)
	before := ourCounter.start(t, fileOf(oldPlugin))
	e := etcd{}
	for _, name := range []string{"/a", "/b", "/c"} {
		data, err := before.TransformToStorage(t.Context(), []byte("content"), value.DefaultContext(name))
		require.NoError(t, err)
		e[name] = data
	}
	both := ourCounter.start(t, fileOf(newPlugin, oldPlugin))
	writes, err := settle([]server{both}, e, 2)
	require.NoError(t, err)
	require.Equal(t, []int{3}, writes, "each of them once")
	for _, s := range []side{ourCounter, theirDEK} {
		after := s.start(t, fileOf(newPlugin))
		writes, err = settle([]server{after}, e, 1)
		require.NoError(t, err)
		require.Empty(t, writes)
	}
	found, err := agree(theirSeed.start(t, fileOf(newPlugin)), both, e["/a"], value.DefaultContext("/a"))
	require.NoError(t, err)
	require.Equal(t, sourceTypeAlone, found)
}
