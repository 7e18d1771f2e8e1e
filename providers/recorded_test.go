package providers_test

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/envelope"
	"github.com/kube-atrest/atrest/envelope/kmsv1"
	"github.com/kube-atrest/atrest/internal/faultplugin"
	"github.com/kube-atrest/atrest/providers"
)

// within is a provider that calls its plugin with a timeout.
func within(timeout, name string, p *faultplugin.Plugin) string {
	return fmt.Sprintf("kms: {apiVersion: v2, name: %s, endpoint: %q, timeout: %s}", name, p.Endpoint(), timeout)
}

// Two timeouts on a socket are one plugin, and whichever is first in the file
// counts. Who counted before may do so once more just after the swap.
func TestReadsAreCountedOnceWhenTheOneThatCountsIsAnother(t *testing.T) {
	p, a, b := faultplugin.Start(t), unique("a"), unique("b")
	clock := testingclock.NewFakeClock(start)
	former := begun(t, fileOf(rule("secrets", within("3s", a, p), within("5s", b, p))), atRest(clock))
	object := write(t, former, secrets, "v")
	reads := 0
	readWith := func(x *providers.Transformers) {
		for range 5 {
			reads++
			read(t, x, secrets, object)
		}
	}
	counted := func() float64 { return readsOf(t, a) + readsOf(t, b) }
	readWith(former)
	former.Tend(clock.Now())
	next := built(t, former, fileOf(rule("secrets", within("5s", b, p), within("3s", a, p))), atRest(clock))
	require.NoError(t, next.Prepare(t.Context()))
	next.Commit(func() {
		readWith(former)
		former.Tend(clock.Now())
	})
	readWith(next)
	former.Removed(next, clock)
	next.Tend(clock.Now())
	require.EqualValues(t, reads, counted())
	readWith(next)
	next.Tend(clock.Now())
	require.EqualValues(t, reads, counted())
}

// What nothing new may happen to for days, such as the key_id that Status named,
// is not to be missed meanwhile.
func TestTheStateOfAPluginGoesOnUnderAnotherTimeoutOrName(t *testing.T) {
	a, b := unique("a"), unique("b")
	for name, content := range map[string]func(*faultplugin.Plugin) (now, file string){
		"timeout": func(p *faultplugin.Plugin) (string, string) { return a, fileOf(rule("secrets", within("5s", a, p))) },
		"name":    func(p *faultplugin.Plugin) (string, string) { return b, fileOf(rule("secrets", within("3s", b, p))) },
		"reader": func(p *faultplugin.Plugin) (string, string) {
			return b, fileOf(rule("secrets", gcmKey, within("3s", b, p)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := faultplugin.Start(t)
			clock := testingclock.NewFakeClock(start)
			former := begun(t, fileOf(rule("secrets", within("3s", a, p))), atRest(clock))
			write(t, former, secrets, "v")
			read(t, former, secrets, under(a, foreign(t, p, "x")))
			former.Tend(clock.Now())
			before := statesOf(t, a)
			require.Len(t, before, 8)

			clock.Step(time.Hour)
			now, file := content(p)
			next := built(t, former, file, atRest(clock))
			require.NoError(t, next.Prepare(t.Context()))
			next.Commit(func() {})
			former.Removed(next, clock)
			next.Tend(clock.Now())
			after := statesOf(t, now)
			for metric := range maps.Keys(before) {
				require.Contains(t, after, metric)
			}
			const used = "apiserver_envelope_encryption_key_id_hash_last_timestamp_seconds"
			require.InDelta(t, float64(start.Unix()), after[used], 1, "it was not used since")
			next.Forget()
			require.Empty(t, statesOf(t, now))
		})
	}
}

// Without reload a KMS v1 provider may have the name of one of KMS v2 before it.
func TestTheMetricsTellOfTheOneWithAProblemIfTwoHaveItsName(t *testing.T) {
	p, both := faultplugin.Start(t), unique("both")
	clock := testingclock.NewFakeClock(start)
	c, err := config.Parse([]byte(fileOf(rule("secrets", kms(both, p)), rule("pods", kmsV1(both, "p")))), config.Options{KMSv1: true})
	require.NoError(t, err)
	x, err := providers.Build(c, providers.Options{
		Envelope: envelope.Options{Clock: clock},
		DialV1: func(envelope.Endpoint, time.Duration, envelope.Recorder) (kmsv1.Plugin, error) {
			return &faultplugin.V1{}, nil
		},
	})
	require.NoError(t, err)
	t.Cleanup(x.Close)
	x.Commit(func() {})
	require.NoError(t, x.Prepare(t.Context()))
	x.Tend(clock.Now())
	require.EqualValues(t, 1, statesOf(t, both)[healthy])
	p.Set(func(b *faultplugin.Behaviour) { b.Healthz = "no" })
	clock.Step(2 * time.Second)
	x.Ask(t.Context())
	x.Tend(clock.Now())
	require.Contains(t, statesOf(t, both), healthy)
	require.Zero(t, statesOf(t, both)[healthy])
	require.EqualValues(t, 1, statesOf(t, both)["atrest_kms_provider_problem"])
}

// Of several on a socket any has the counts, but the DEKs only one that keeps as many.
func TestAKMSv1PluginKeepsItsDEKsUnderAnotherTimeoutBesideAnotherCacheSize(t *testing.T) {
	plugin := &faultplugin.V1{}
	o := func(o *providers.Options) {
		o.Envelope.Clock = testingclock.NewFakeClock(start)
		o.DialV1 = func(envelope.Endpoint, time.Duration, envelope.Recorder) (kmsv1.Plugin, error) { return plugin, nil }
	}
	provider := func(name, timeout string, cacheSize int) string {
		return fmt.Sprintf("kms: {apiVersion: v1, name: %s, endpoint: 'unix:///p', timeout: %s, cachesize: %d}", name, timeout, cacheSize)
	}
	object := write(t, begun(t, fileOf(rule("secrets", provider("b", "3s", 20))), o), secrets, "v")
	former := begun(t, fileOf(rule("secrets", gcmKey, provider("a", "3s", 10), provider("b", "3s", 20))), o)
	read(t, former, secrets, object)
	next := built(t, former, fileOf(rule("secrets", gcmKey, provider("a", "3s", 10), provider("b", "5s", 20))), o)
	require.NoError(t, next.Prepare(t.Context()))
	next.Commit(func() {})
	before := plugin.Decrypts.Load()
	read(t, next, secrets, object)
	require.Equal(t, before, plugin.Decrypts.Load())
}
