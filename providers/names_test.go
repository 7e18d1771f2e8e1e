package providers_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2/ktesting"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kube-atrest/atrest/envelope"
	"github.com/kube-atrest/atrest/internal/faultplugin"
	"github.com/kube-atrest/atrest/internal/stored"
	"github.com/kube-atrest/atrest/providers"
)

// under is a value stored with one KMS v2 provider, as if with another.
func under(name string, value []byte) []byte {
	_, was, _ := stored.Identify(value)
	return bytes.Replace(value, []byte(stored.KMSv2.PrefixFor(was)), []byte(stored.KMSv2.PrefixFor(name)), 1)
}

// One plugin has several names at a time, and others after a reload. An error
// names the one in the prefix of the value that it is about.
func TestErrorsNameAProviderAsTheCallDoes(t *testing.T) {
	p := faultplugin.Start(t)
	clock := testingclock.NewFakeClock(start)
	cold := foreign(t, p, "x")
	first := begun(t, fileOf(rule("secrets", kms("azure", p))), atRest(clock))
	warm := write(t, first, secrets, "v")
	next := swapped(t, first, fileOf(rule("secrets", kms("emerald", p)), rule("configmaps", kms("scarlet", p))))

	names := map[schema.GroupResource]string{secrets: "emerald", configmaps: "scarlet"}
	requireNames := func(err error, name string) {
		t.Helper()
		require.ErrorContains(t, err, name)
		for _, other := range []string{"azure", "emerald", "scarlet"} {
			if other != name {
				require.NotContains(t, err.Error(), other)
			}
		}
	}
	for _, err := range []error{status.Error(codes.NotFound, "gone"), status.Error(codes.Internal, "odd"), status.Error(codes.Unavailable, "away")} {
		p.Set(func(b *faultplugin.Behaviour) { b.DecryptErr = err })
		for resource, name := range names {
			_, _, err := next.TransformerForResource(resource).TransformFromStorage(t.Context(), under(name, cold), at)
			requireNames(err, name)
		}
	}
	p.Heal("1")
	for resource, name := range names {
		damaged := under(name, warm)
		damaged[len(stored.KMSv2.PrefixFor(name))+10] ^= 1
		_, _, err := next.TransformerForResource(resource).TransformFromStorage(t.Context(), damaged, at)
		require.ErrorIs(t, err, envelope.ErrCorrupt)
		requireNames(err, name)
	}
	lose(t, p, next, clock)
	for resource, name := range names {
		err := tryWrite(t, next, resource.String())
		require.ErrorIs(t, err, envelope.ErrWritesStopped)
		requireNames(err, name)
	}

	var notReady *providers.NotReady
	again := built(t, next, fileOf(rule("secrets", kms("third", p)), rule("pods", kms("fourth", p))))
	require.ErrorAs(t, again.Prepare(t.Context()), &notReady)
	require.Equal(t, []string{"third", "fourth"}, notReady.Names)
}

// lines are what was logged so far.
func lines(log ktesting.Underlier) []string {
	return strings.Split(strings.TrimSpace(log.GetBuffer().String()), "\n")
}

// The log names a plugin as the file in use does, and is silent about one that a
// file merely tries or no longer has.
func TestTheLogNamesAPluginAsTheFileInUse(t *testing.T) {
	p, stays := faultplugin.Start(t), faultplugin.Start(t)
	clock := testingclock.NewFakeClock(start)
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
	log := logger.GetSink().(ktesting.Underlier)
	logged := func(o *providers.Options) { atRest(clock)(o); o.Logger = logger }
	told := func(n int, more ...string) {
		t.Helper()
		require.Eventually(t, func() bool {
			clock.Step(time.Second)
			return strings.Count(log.GetBuffer().String(), "healthy") == n
		}, 30*time.Second, time.Millisecond, "%s", log.GetBuffer())
		last := lines(log)[len(lines(log))-1]
		for _, s := range more {
			require.Contains(t, last, s)
		}
	}
	inUse := begun(t, fileOf(rule("pods", kms("stays", stays)), rule("secrets", kms("one", p))), logged)
	p.Kill()
	told(1, "not healthy", `provider="one"`, `problem="unreachable"`, "writesUntil")
	p.Serve()
	told(2, "is healthy", `provider="one"`)

	inUse = swapped(t, inUse, fileOf(rule("pods", kms("stays", stays)), rule("secrets", identity, kms("two", p), kms("one", p))))
	p.Kill()
	told(3, "not healthy", `provider="two"`, `role="read"`)
	p.Serve()
	told(4, "is healthy", `provider="two"`)

	tried := faultplugin.New(t)
	next := built(t, inUse, fileOf(rule("pods", kms("stays", stays)), rule("secrets", kms("tried", tried))), logged)
	require.Error(t, next.Prepare(t.Context()))
	tried.Serve()
	require.Eventually(t, func() bool { clock.Step(time.Second); return next.Prepare(t.Context()) == nil }, 30*time.Second, time.Millisecond)
	require.NotContains(t, log.GetBuffer().String(), "tried")
	next.Commit(func() {})
	object := under("one", foreign(t, p, "one"))
	p.Kill()
	_, _, err := inUse.TransformerForResource(secrets).TransformFromStorage(t.Context(), object, at)
	require.ErrorIs(t, err, envelope.ErrUnavailable)
	stays.Kill()
	told(5, "not healthy", `provider="stays"`)
	require.NotContains(t, strings.Join(lines(log)[6:], "\n"), "two")
}

// Nor is one told of that goes just when its file does.
func TestTheLogIsSilentAboutAPluginFromTheSwapOn(t *testing.T) {
	p := faultplugin.Start(t)
	clock := testingclock.NewFakeClock(start)
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
	inUse := begun(t, fileOf(rule("secrets", kms("one", p))), func(o *providers.Options) { atRest(clock)(o); o.Logger = logger })
	next := built(t, inUse, fileOf(rule("secrets", gcmKey)))
	require.NoError(t, next.Prepare(t.Context()))
	next.Commit(func() {
		p.Set(func(b *faultplugin.Behaviour) { b.Healthz = "no" })
		clock.Step(2 * time.Second)
		inUse.Ask(t.Context())
		require.EqualValues(t, envelope.Unhealthy, inUse.Health()[0].Problem)
	})
	require.NotContains(t, logger.GetSink().(ktesting.Underlier).GetBuffer().String(), "healthy")
}

func TestWhatBeginsToWriteIsLoggedOnce(t *testing.T) {
	p := faultplugin.Start(t)
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true), ktesting.Verbosity(1)))
	log := logger.GetSink().(ktesting.Underlier)
	begun(t, fileOf(rule("secrets", kms("a", p))), func(o *providers.Options) { o.Logger = logger })
	require.Len(t, lines(log), 1)
	require.Contains(t, lines(log)[0], fmt.Sprintf("Made a data encryption key provider=%q reason=%q", "a", "start"))
}
