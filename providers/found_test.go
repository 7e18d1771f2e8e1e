package providers_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/kube-atrest/atrest/envelope"
	"github.com/kube-atrest/atrest/internal/faultplugin"
)

// Line 2, KMS v1: a plugin that died after an earlier try is written with, and every
// write fails. Line 2/4, KMS v2: the proof of a candidate DEK never ages. The same with a
// former writer: its DEK set aside is all the proof there is. Line 2: within the grace of
// readiness a dead plugin that writes something already counts as well. The docs: "It is
// away while the file is edited: reads go on, as before."
func TestAnotherTimeoutOfAReaderThatIsAwayTakesNoReadsAway(t *testing.T) {
	p := faultplugin.Start(t)
	with := func(timeout string) string {
		return fileOf(rule("secrets", gcmKey, fmt.Sprintf("kms: {apiVersion: v2, name: a, endpoint: '%s', timeout: %s}", p.Endpoint(), timeout)))
	}
	y := try(t, fileOf(rule("secrets", kms("a", p), gcmKey)))
	object := write(t, y.inUse, secrets, "v")
	require.NoError(t, y.again(with("3s")))
	y.commit()
	got, _ := read(t, y.inUse, secrets, object)
	require.Equal(t, "v", got)
	p.Kill()
	got, _ = read(t, y.inUse, secrets, object)
	require.Equal(t, "v", got, "its DEK is in memory")
	require.NoError(t, y.again(with("5s")), "a reader is not waited for")
	y.commit()
	_, _, err := y.inUse.TransformerForResource(secrets).TransformFromStorage(t.Context(), object, at)
	require.NoError(t, err, "the DEKs stay in memory")
}

func TestRefusedTriesDoNotCallEncryptEachTime(t *testing.T) {
	for name, spoil := range map[string]func(*faultplugin.Behaviour){
		"garbage":      func(b *faultplugin.Behaviour) { b.Garbage = []byte("constant") },
		"disagreement": func(b *faultplugin.Behaviour) { b.EncryptKeyID = "other" },
		"not found":    func(b *faultplugin.Behaviour) { b.DecryptErr = status.Error(codes.NotFound, "no") },
		"denied":       func(b *faultplugin.Behaviour) { b.DecryptErr = status.Error(codes.PermissionDenied, "no") },
	} {
		t.Run(name, func(t *testing.T) {
			p := faultplugin.Start(t)
			p.Set(spoil)
			y := try(t, fileOf(rule("secrets", gcmKey, kms("a", p))))
			next := fileOf(rule("secrets", kms("a", p), gcmKey))
			for range 100 {
				y.clock.Step(10 * time.Second)
				require.Error(t, y.again(next))
			}
			require.LessOrEqual(t, p.Calls().Encrypt, 100/6+1, "once a minute, if it answers wrongly")
		})
	}
}

// A refused try leaves no trace: the metrics of a plugin that only reads.
func TestRefusedTriesDoNotShowInTheMetricsOfAReader(t *testing.T) {
	p := faultplugin.Start(t)
	name := "x2reader"
	y := try(t, fileOf(rule("secrets", gcmKey, kms(name, p))))
	require.Eventually(t, func() bool { return y.inUse.Health()[0].KeyIDHash != "" }, 30*time.Second, time.Millisecond)
	y.inUse.Tend(y.clock.Now())
	p.Set(func(b *faultplugin.Behaviour) { b.DecryptErr = status.Error(codes.PermissionDenied, "no") })
	before := counted(t, "apiserver_storage_data_key_generation_failures_total")
	for range 10 {
		require.Error(t, y.again(fileOf(rule("secrets", kms(name, p), gcmKey))))
	}
	require.Equal(t, before, counted(t, "apiserver_storage_data_key_generation_failures_total"), "kube-apiserver's own alert on failures would fire for a plugin that writes nothing")
}

// Between a plugin's Prepare and the Commit its key_id changes: no write may fail.
func TestAKeyIDMayChangeBetweenPrepareAndCommit(t *testing.T) {
	p := faultplugin.Start(t)
	y := try(t, fileOf(rule("secrets", gcmKey, kms("a", p))))
	require.Eventually(t, func() bool { return y.inUse.Health()[0].KeyIDHash != "" }, 30*time.Second, time.Millisecond)
	require.NoError(t, y.again(fileOf(rule("secrets", kms("a", p), gcmKey))))
	p.Heal("2")
	y.clock.Step(time.Second)
	y.inUse.Ask(t.Context()) // another plugin of the file is still waited for meanwhile, or an operator asks
	p.Set(func(b *faultplugin.Behaviour) { b.Delay = 300 * time.Millisecond })
	var err error
	y.last.Commit(func() { err = tryWrite(t, y.last, "secrets") })
	require.NoError(t, err)
	require.NoError(t, tryWrite(t, y.last, "secrets"))
	y.inUse, y.last = y.last, nil
}

func counted(t *testing.T, name string) float64 {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	require.NoError(t, err)
	sum := 0.0
	for _, f := range families {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

// Another timeout makes the plugin another to be called, and its counts go on.
func TestAnotherTimeoutCountsNothingTwice(t *testing.T) {
	p, name := faultplugin.Start(t), unique("counted")
	with := func(timeout string) string {
		return fileOf(rule("secrets", fmt.Sprintf("kms: {apiVersion: v2, name: %s, endpoint: '%s', timeout: %s}", name, p.Endpoint(), timeout)))
	}
	y := try(t, with("3s"))
	object := write(t, y.inUse, secrets, "v")
	for i, timeout := range []string{"4s", "5s", "6s"} {
		for range 10 {
			read(t, y.inUse, secrets, object)
		}
		y.clock.Step(2 * time.Second)
		require.NoError(t, y.again(with(timeout)))
		y.drop(nil)
		require.NoError(t, y.again(with(timeout)), "a second try")
		y.commit()
		y.inUse.Tend(y.clock.Now())
		require.EqualValues(t, 10*(i+1), readsOf(t, name))
	}
}

// Two timeouts on one socket are one plugin as to what is in memory and what is
// counted.
func TestTwoTimeoutsOfOneSocketShareWhatIsInMemory(t *testing.T) {
	one, two := unique("one"), unique("two")
	with := func(p *faultplugin.Plugin, a, b string) string {
		at := func(name, timeout string) string {
			return fmt.Sprintf("kms: {apiVersion: v2, name: %s, endpoint: '%s', timeout: %s}", name, p.Endpoint(), timeout)
		}
		return fileOf(rule("secrets", gcmKey, at(one, a)), rule("configmaps", gcmKey, at(two, b)))
	}
	for name, next := range map[string][2]string{"the second": {"3s", "7s"}, "the first": {"7s", "5s"}, "both": {"7s", "8s"}, "as one": {"3s", "3s"}} {
		t.Run(name, func(t *testing.T) {
			p := faultplugin.Start(t)
			y := try(t, with(p, "3s", "5s"))
			first, second := under(one, foreign(t, p, "a"+name)), under(two, foreign(t, p, "b"+name))
			before := readsOf(t, one) + readsOf(t, two)
			for range 5 {
				read(t, y.inUse, secrets, first)
				read(t, y.inUse, configmaps, second)
			}
			y.inUse.Tend(y.clock.Now())
			require.EqualValues(t, 10, readsOf(t, one)+readsOf(t, two)-before)
			p.Kill()
			require.NoError(t, y.again(with(p, next[0], next[1])))
			y.commit()
			for range 5 {
				read(t, y.inUse, secrets, first)
				read(t, y.inUse, configmaps, second)
			}
			y.inUse.Tend(y.clock.Now())
			require.EqualValues(t, 20, readsOf(t, one)+readsOf(t, two)-before)
		})
	}
}

// What a plugin that writes already has in use is tried too: that is what the
// resource is going to be written with.
func TestNoResourceMovesOntoADEKThatIsLost(t *testing.T) {
	p, q := faultplugin.Start(t), faultplugin.Start(t)
	y := try(t, fileOf(rule("secrets", kms("a", q)), rule("configmaps", kms("b", p))))
	write(t, y.inUse, configmaps, "v")
	next := fileOf(rule("secrets, configmaps", kms("b", p), kms("a", q)))
	y.clock.Step(2 * time.Second)
	p.Set(func(b *faultplugin.Behaviour) { b.Forgotten = []string{"1"} })
	require.Error(t, y.again(next))
	_, err := y.inUse.TransformerForResource(configmaps).TransformToStorage(t.Context(), []byte("v"), at)
	require.ErrorIs(t, err, envelope.ErrWritesStopped, "it is evidence for what runs")
	p.Heal("1")
	require.Eventually(t, func() bool {
		y.clock.Step(10 * time.Second)
		return y.again(next) == nil
	}, 30*time.Second, time.Millisecond)
	y.commit()
	write(t, y.inUse, secrets, "v")
}

// readsOf is what the metric by key_id has counted of reads with a provider.
func readsOf(t *testing.T, provider string) (n float64) {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() != "apiserver_envelope_encryption_key_id_hash_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if labels["provider_name"] == provider && labels["transformation_type"] == "from_storage" {
				n += m.GetCounter().GetValue()
			}
		}
	}
	return n
}
