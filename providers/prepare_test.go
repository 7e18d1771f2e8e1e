package providers_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/runtime/schema"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kube-atrest/atrest/envelope"
	"github.com/kube-atrest/atrest/healthz"
	"github.com/kube-atrest/atrest/internal/faultplugin"
	"github.com/kube-atrest/atrest/providers"
)

func tryWrite(t *testing.T, x *providers.Transformers, resource string) error {
	t.Helper()
	_, err := x.TransformerForResource(schema.ParseGroupResource(resource)).TransformToStorage(t.Context(), []byte("v"), at)
	return err
}

// mentions gives a plugin another name each time: names must differ in a file.
func mentions(name string, p *faultplugin.Plugin) func() string {
	n := 0
	return func() string { n++; return kms(fmt.Sprint(name, n), p) }
}

// lose ends a plugin, and lets time go by until it is known and the write window
// has passed.
func lose(t *testing.T, p *faultplugin.Plugin, x *providers.Transformers, clock *testingclock.FakeClock) {
	t.Helper()
	p.Kill()
	require.Eventually(t, func() bool {
		clock.Step(time.Second)
		return !slices.ContainsFunc(x.Health(), func(h healthz.Provider) bool {
			return h.Endpoint == p.Endpoint() && (h.Problem == "" || h.WritesUntil.After(clock.Now()))
		})
	}, 30*time.Second, time.Millisecond)
}

// A is well, and B is not and mostly writes something already. Whatever a file
// moves onto B has to wait for it, by whichever way it gets there. What B writes
// already, and what it only reads, does not wait.
func TestNothingMovesOntoAPluginThatIsNotWell(t *testing.T) {
	a, b := faultplugin.Start(t), faultplugin.New(t)
	A, B := mentions("a", a), mentions("b", b)
	onB := func() string { return rule("configmaps", B()) }
	for name, c := range map[string]struct {
		inUse, next string
		moves       []string // resources
	}{
		"the second provider is put first":            {rule("secrets", A(), B()) + onB(), rule("secrets", B(), A()) + onB(), []string{"secrets"}},
		"it takes the place of another":               {rule("secrets", A()) + onB(), rule("secrets", B()) + onB(), []string{"secrets"}},
		"in the place of a key of the file":           {rule("secrets", gcmKey) + onB(), rule("secrets", B(), gcmKey) + onB(), []string{"secrets"}},
		"in the place of plaintext":                   {rule("secrets", identity, B()) + onB(), rule("secrets", B(), identity) + onB(), []string{"secrets"}},
		"what had no rule":                            {onB(), rule("secrets", B(), identity) + onB(), []string{"secrets"}},
		"it was only read with":                       {rule("secrets", A(), B()), rule("secrets", B(), A()), []string{"secrets"}},
		"it was not in the file":                      {rule("secrets", A()), rule("secrets", B(), A()), []string{"secrets"}},
		"a new wildcard":                              {rule("secrets", A()) + onB(), rule("secrets", A()) + onB() + rule("'*.*'", B(), identity), []string{"pods", "deployments.apps"}},
		"a new wildcard of the group":                 {onB() + rule("'*.*'", A()), onB() + rule("'*.apps'", B(), A()) + rule("'*.*'", A()), []string{"deployments.apps"}},
		"a rule goes, and a wildcard is left":         {rule("secrets", A()) + rule("'*.*'", B(), A()), rule("'*.*'", B(), A()), []string{"secrets"}},
		"a rule goes, and one of the group is left":   {rule("deployments.apps", A()) + rule("'*.apps'", B(), A()), rule("'*.apps'", B(), A()), []string{"deployments.apps"}},
		"the group's rule goes, a wildcard is left":   {rule("'*.apps'", A()) + rule("'*.*'", B(), A()), rule("'*.*'", B(), A()), []string{"deployments.apps"}},
		"a resource changes its entry":                {rule("secrets", A(), B()) + rule("configmaps, pods", B()), rule("pods", A(), B()) + rule("secrets, configmaps", B()), []string{"secrets"}},
		"two entries for one resource in other order": {rule("secrets", A()) + rule("secrets, configmaps", B()), rule("secrets, configmaps", B()) + rule("secrets", A()), []string{"secrets"}},
		"one of several":                              {rule("secrets", A()) + rule("pods", A()) + onB(), rule("secrets", A()) + rule("pods", B(), A()) + onB(), []string{"pods"}},

		"it goes on under another name": {onB(), rule("configmaps", B(), B()), nil},
		"it goes on in another entry":   {rule("configmaps, pods", B()), rule("configmaps", B(), B()) + rule("pods", B()), nil},
		"it goes on for all but one":    {rule("'*.*'", B(), A()), rule("secrets", A(), B()) + rule("'*.*'", B(), A()), nil},
		"it is left":                    {rule("secrets", B(), A()) + onB(), rule("secrets", A(), B()) + onB(), nil},
		"it is left for plaintext":      {rule("secrets", B(), identity), rule("secrets", identity, B()), nil},
		"it comes to read":              {rule("secrets", A()) + onB(), rule("secrets", A(), B()) + onB(), nil},
		"it is no longer in the file":   {rule("secrets", A(), B()) + onB(), rule("secrets", A()), nil},
	} {
		t.Run(name, func(t *testing.T) {
			clock := testingclock.NewFakeClock(start)
			b.Serve()
			inUse := begun(t, fileOf(c.inUse), atRest(clock))
			lose(t, b, inUse, clock)

			next := built(t, inUse, fileOf(c.next), atRest(clock))
			err := next.Prepare(t.Context())
			if c.moves == nil {
				require.NoError(t, err)
				return
			}
			var notReady *providers.NotReady
			require.ErrorAs(t, err, &notReady)
			require.True(t, notReady.Retryable())
			for _, name := range notReady.Names {
				require.Equal(t, "b", name[:1], "A is well")
			}
			for _, moved := range c.moves {
				require.NoError(t, tryWrite(t, inUse, moved), "what runs goes on")
			}

			b.Serve()
			require.Eventually(t, func() bool {
				clock.Step(time.Second)
				return next.Prepare(t.Context()) == nil
			}, 30*time.Second, time.Millisecond)
			next.Commit(func() {})
			for _, moved := range c.moves {
				require.NoError(t, tryWrite(t, next, moved))
			}
			b.Kill()
		})
	}
}

// A plugin in reach may be unwell in other ways.
func TestNothingMovesOntoAPluginThatDoesNotWrapAndUnwrap(t *testing.T) {
	no := status.Error(codes.PermissionDenied, "no grant")
	for name, spoil := range map[string]func(*faultplugin.Behaviour){
		"Status fails":             func(b *faultplugin.Behaviour) { b.StatusErr = no },
		"it says so":               func(b *faultplugin.Behaviour) { b.Healthz = "no" },
		"Encrypt fails":            func(b *faultplugin.Behaviour) { b.EncryptErr = no },
		"Decrypt fails":            func(b *faultplugin.Behaviour) { b.DecryptErr = no },
		"Decrypt gives another":    func(b *faultplugin.Behaviour) { b.Garbage = make([]byte, 32) },
		"it has two keys":          func(b *faultplugin.Behaviour) { b.EncryptKeyID = "other" },
		"it speaks something else": func(b *faultplugin.Behaviour) { b.Version = "v3" },
	} {
		a, b := faultplugin.Start(t), faultplugin.Start(t)
		b.Set(spoil)
		clock := testingclock.NewFakeClock(start)
		inUse := begun(t, fileOf(rule("secrets", kms("a", a), kms("b", b))), atRest(clock))
		next := built(t, inUse, fileOf(rule("secrets", kms("b", b), kms("a", a))))
		var notReady *providers.NotReady
		require.ErrorAs(t, next.Prepare(t.Context()), &notReady, name)
		require.Equal(t, []string{"b"}, notReady.Names)
		require.NotErrorIs(t, notReady, context.Canceled)

		b.Heal("1")
		clock.Step(envelope.DefaultHealthyPoll) // by when answers are no longer remembered
		require.NoError(t, next.Prepare(t.Context()), name)
		next.Commit(func() {})
		write(t, next, secrets, "v")
	}
}

func TestAPluginThatKeepsWhatItHasIsNotWaitedFor(t *testing.T) {
	a, b := faultplugin.Start(t), faultplugin.Start(t)
	inUse := begun(t, fileOf(rule("secrets", kms("a", a)), rule("pods", kms("b", b), kms("c", a))), atRest(testingclock.NewFakeClock(start)))
	b.Set(func(b *faultplugin.Behaviour) { b.Hang = true })
	before := b.Calls()
	next := built(t, inUse, fileOf(rule("secrets, configmaps", kms("a", a)), rule("pods", kms("renamed", b), kms("c", a))))
	require.NoError(t, next.Prepare(t.Context()))
	require.Equal(t, before, b.Calls(), "nor asked")
}

// The plugins of a first file are asked too, and all at once: the slowest counts.
func TestTheFirstFileAsksAllThatWrite(t *testing.T) {
	a, b, c := faultplugin.New(t), faultplugin.New(t), faultplugin.New(t)
	x := built(t, nil, fileOf(rule("secrets", kms("a", a), kms("c", c)), rule("pods", kms("b", b))))
	x.Commit(func() {})
	err := x.Prepare(t.Context())
	require.ErrorContains(t, err, `["a"]`)
	require.ErrorContains(t, err, `["b"]`)
	require.NotContains(t, err.Error(), `"c"`, "a reader may be away")
}

func TestPrepareEndsWithItsContext(t *testing.T) {
	p := faultplugin.Start(t)
	p.Set(func(b *faultplugin.Behaviour) { b.Hang = true })
	inUse := begun(t, fileOf(rule("secrets", gcmKey)))
	next := built(t, inUse, fileOf(rule("secrets", kms("a", p))))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- next.Prepare(ctx) }()
	require.Eventually(t, func() bool { return p.Calls().Status > 0 }, 30*time.Second, time.Millisecond)
	cancel()
	err := <-ended
	require.ErrorIs(t, err, context.Canceled)
	var notReady *providers.NotReady
	require.NotErrorAs(t, err, &notReady, "it says nothing of the plugin")
}

// The writes of the next file are possible from before the swap on, and those of
// the former one until after it.
func TestAtTheSwapBothCanWrite(t *testing.T) {
	a, b := faultplugin.Start(t), faultplugin.Start(t)
	inUse := begun(t, fileOf(rule("secrets", kms("a", a), kms("b", b))))
	next := built(t, inUse, fileOf(rule("secrets", kms("b", b), kms("a", a))))
	require.NoError(t, next.Prepare(t.Context()))
	require.ErrorIs(t, tryWrite(t, next, "secrets"), envelope.ErrWritesStopped)
	swaps := 0
	next.Commit(func() {
		swaps++
		require.NoError(t, tryWrite(t, inUse, "secrets"))
		require.NoError(t, tryWrite(t, next, "secrets"))
	})
	require.Equal(t, 1, swaps)
	require.NoError(t, tryWrite(t, next, "secrets"))
	require.ErrorIs(t, tryWrite(t, inUse, "secrets"), envelope.ErrWritesStopped, "late writes do not go on")
	require.Equal(t, healthz.Reads, next.Health()[1].Role)
}

// A plugin that the next file does not have is let go of: nobody asks it again.
func TestAPluginThatIsRemovedIsNotAskedAnyMore(t *testing.T) {
	a, b := faultplugin.Start(t), faultplugin.Start(t)
	clock := testingclock.NewFakeClock(start)
	inUse := begun(t, fileOf(rule("secrets", kms("a", a)), rule("pods", kms("b", b))), atRest(clock))
	object := write(t, inUse, pods, "v")
	next := built(t, inUse, fileOf(rule("secrets", kms("a", a))))
	require.NoError(t, next.Prepare(t.Context()))
	next.Commit(func() {})
	require.ErrorIs(t, tryWrite(t, inUse, "pods"), envelope.ErrWritesStopped)
	got, _ := read(t, inUse, pods, object)
	require.Equal(t, "v", got, "what is in flight is read")
	require.Empty(t, inUse.Health()[1].Problem)
	before := b.Calls()
	polled := a.Calls().Status
	require.Eventually(t, func() bool { clock.Step(envelope.DefaultHealthyPoll); return a.Calls().Status > polled+3 }, 30*time.Second, time.Millisecond)
	require.Equal(t, before, b.Calls())
}

func TestAskAsksEveryPluginAtMostOnceASecond(t *testing.T) {
	a, b := faultplugin.Start(t), faultplugin.Start(t)
	clock := testingclock.NewFakeClock(start)
	x := begun(t, fileOf(rule("secrets", kms("a", a), kms("b", b))), atRest(clock))
	require.Eventually(t, func() bool { return x.Health()[1].KeyIDHash != "" }, 30*time.Second, time.Millisecond)
	a.Heal("2")
	b.Heal("2")
	clock.Step(2 * time.Second)
	x.Ask(t.Context())
	for _, h := range x.Health() {
		require.Equal(t, envelope.HashKeyID("2"), h.KeyIDHash)
	}
	for range 100 {
		x.Ask(t.Context())
	}
	require.LessOrEqual(t, a.Calls().Status, 7)
	require.LessOrEqual(t, b.Calls().Status, 7)

	b.Set(func(b *faultplugin.Behaviour) { b.Hang = true })
	clock.Step(10 * time.Second)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	x.Ask(ctx) // does not wait
}
