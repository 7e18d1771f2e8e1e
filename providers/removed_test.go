package providers_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/component-base/metrics/legacyregistry"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kube-atrest/atrest/envelope"
	"github.com/kube-atrest/atrest/internal/faultplugin"
)

// statesOf are the gauges that have the name of a provider.
func statesOf(t *testing.T, provider string) map[string]float64 {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	require.NoError(t, err)
	found := map[string]float64{}
	for _, f := range families {
		if f.GetType().String() != "GAUGE" {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "provider_name" && l.GetValue() == provider {
					found[f.GetName()] = m.GetGauge().GetValue()
				}
			}
		}
	}
	return found
}

const healthy = "atrest_kms_provider_healthy"

func TestTheStateOfAPluginThatIsRemovedIsGone(t *testing.T) {
	gone, stays := unique("gone"), unique("stays")
	p, q := faultplugin.Start(t), faultplugin.Start(t)
	clock := testingclock.NewFakeClock(start)
	cold := under(gone, foreign(t, p, "x"))
	first := begun(t, fileOf(rule("secrets", kms(gone, p)), rule("pods", kms(stays, q))), atRest(clock))
	warm := write(t, first, secrets, "v")
	read(t, first, secrets, cold)
	first.Tend(clock.Now())
	require.Greater(t, len(statesOf(t, gone)), 7)

	// It goes at its worst.
	p.Set(func(b *faultplugin.Behaviour) { b.Healthz = "no" })
	require.Eventually(t, func() bool {
		clock.Step(envelope.DefaultHealthyPoll) // looking at all metrics takes its time
		first.Tend(clock.Now())
		return statesOf(t, gone)["atrest_kms_provider_problem"] == 1 && statesOf(t, gone)[healthy] == 0
	}, 30*time.Second, time.Millisecond)
	next := built(t, first, fileOf(rule("pods", kms(stays, q))))
	require.NoError(t, next.Prepare(t.Context()))
	require.NotEmpty(t, statesOf(t, gone), "it is still in use")
	next.Commit(func() {})
	require.Empty(t, statesOf(t, gone))

	// What is in flight goes on with the plugin for a while, and says nothing more.
	p.Heal("2")
	read(t, first, secrets, warm)
	another := under(gone, foreign(t, p, "y"))
	read(t, first, secrets, another)
	first.Ask(t.Context())
	first.Tend(clock.Now())
	next.Tend(clock.Now())
	first.Close()
	require.Empty(t, statesOf(t, gone))
	require.EqualValues(t, 1, statesOf(t, stays)[healthy])
}

func TestTheStateOfARemovedKMSv1PluginIsGone(t *testing.T) {
	gone := unique("v1")
	y := try(t, fileOf(rule("secrets", kmsV1(gone, "p"), gcmKey)))
	write(t, y.inUse, secrets, "v")
	y.inUse.Tend(y.clock.Now())
	require.EqualValues(t, 1, statesOf(t, gone)[healthy])
	former := y.inUse
	require.NoError(t, y.again(fileOf(rule("secrets", gcmKey))))
	y.last.Commit(func() {})
	require.Empty(t, statesOf(t, gone))
	former.Tend(y.clock.Now())
	require.Empty(t, statesOf(t, gone))
	y.inUse, y.last = y.last, nil
	former.Close()
	require.EqualValues(t, 1, y.v1.Closes.Load())
}

func TestTheStateOfAPluginIsToldByItsNewName(t *testing.T) {
	one, two, both := unique("one"), unique("two"), unique("both")
	p, before := faultplugin.Start(t), rule("pods", kms(unique("before"), faultplugin.Start(t)))
	inUse := begun(t, fileOf(before, rule("secrets", kms(one, p), kms(both, p))), atRest(testingclock.NewFakeClock(start)))
	inUse.Tend(start)
	require.NotEmpty(t, statesOf(t, one))
	require.Empty(t, statesOf(t, both), "one name tells of a plugin")
	inUse = swapped(t, inUse, fileOf(before, rule("secrets", kms(two, p), kms(one, p))))
	require.Empty(t, statesOf(t, one))
	inUse.Tend(start)
	require.EqualValues(t, 1, statesOf(t, two)[healthy])
	require.Empty(t, statesOf(t, one))
	swapped(t, inUse, fileOf(before, rule("secrets", kms(two, p))))
	require.EqualValues(t, 1, statesOf(t, two)[healthy], "what keeps its name keeps its state")
}

// A name stays with whoever has it now, whatever becomes of who had it before.
func TestNamesThatChangeHandsTellOfWhoHasThem(t *testing.T) {
	well, unwell, fresh := faultplugin.Start(t), faultplugin.Start(t), faultplugin.Start(t)
	a, b := unique("a"), unique("b")
	clock := testingclock.NewFakeClock(start)
	clockAtRest := atRest(clock)
	former := begun(t, fileOf(rule("secrets", kms(a, well)), rule("pods", kms(b, unwell))), clockAtRest)
	unwell.Set(func(b *faultplugin.Behaviour) { b.Healthz = "no" })
	clock.Step(2 * time.Second)
	former.Ask(t.Context())
	is := func(wantA, wantB float64) {
		t.Helper()
		require.InDelta(t, wantA, statesOf(t, a)[healthy], 0)
		require.InDelta(t, wantB, statesOf(t, b)[healthy], 0)
	}
	former.Tend(clock.Now())
	is(1, 0)

	next := built(t, former, fileOf(rule("secrets", kms(b, well)), rule("pods", kms(a, unwell))))
	require.NoError(t, next.Prepare(t.Context()))
	next.Commit(func() {})
	next.Tend(clock.Now())
	is(0, 1)
	former.Close()
	is(0, 1)

	// The name goes to a plugin that is new, and its former owner is late.
	last := built(t, next, fileOf(rule("secrets", kms(b, well)), rule("pods", kms(a, fresh))), clockAtRest)
	require.NoError(t, last.Prepare(t.Context()))
	last.Commit(func() {})
	last.Tend(clock.Now())
	is(1, 1)
	next.Tend(clock.Now())
	next.Close()
	is(1, 1)
}

// A file that is only tried is not told of, not even by counters.
func TestATryIsNotInTheMetrics(t *testing.T) {
	tried := unique("tried")
	p, away := faultplugin.Start(t), faultplugin.New(t)
	inUse := begun(t, fileOf(rule("secrets", gcmKey)))
	next := built(t, inUse, fileOf(rule("secrets", kms(tried, p)), rule("pods", kms("away", away))))
	require.Error(t, next.Prepare(t.Context()))
	require.NotZero(t, p.Calls().Encrypt)
	next.Tend(start)
	require.Empty(t, statesOf(t, tried))
	require.Empty(t, statesOf(t, ""), "nor is one without a name")
	require.Empty(t, samplesOf(t, tried))
	next.Close()
	require.Empty(t, samplesOf(t, tried))
}

// What was read with a plugin until it went is counted.
func TestWhatWasReadUntilTheEndIsCounted(t *testing.T) {
	gone := unique("counted")
	p := faultplugin.Start(t)
	inUse := begun(t, fileOf(rule("secrets", kms(gone, p))))
	object := write(t, inUse, secrets, "v")
	for range 5 {
		read(t, inUse, secrets, object)
	}
	next := built(t, inUse, fileOf(rule("secrets", gcmKey)))
	require.NoError(t, next.Prepare(t.Context()))
	next.Commit(func() {})
	var reads, writes float64
	for name, n := range samplesOf(t, gone) {
		if strings.HasPrefix(name, "apiserver_envelope_encryption_key_id_hash_total") {
			if strings.Contains(name, "from_storage") {
				reads += n
			} else {
				writes += n
			}
		}
	}
	require.InDelta(t, 5, reads, 0)
	require.InDelta(t, 1, writes, 0)
}
