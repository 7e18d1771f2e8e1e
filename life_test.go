package atrest_test

import (
	"context"
	"crypto/rand"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/kube-atrest/atrest"
	"github.com/kube-atrest/atrest/internal/faultplugin"
	"github.com/kube-atrest/atrest/reload"
)

// hookOf is what a server calls a hook with. Nobody answers at its own address.
func hookOf(ctx context.Context) server.PostStartHookContext {
	return server.PostStartHookContext{Context: ctx, LoopbackClientConfig: &rest.Config{Host: "127.0.0.1:1"}}
}

func TestCloseEndsTheHookOfAServerThatGoesOn(t *testing.T) {
	p := faultplugin.New(t)
	plugin := serveCounted(t, p)
	path, _ := place(t, fileOf(rule("secrets", kms("test", plugin.endpoint))))
	e := start(t, optionsFor(path))
	ctx, end := context.WithCancel(context.Background())
	t.Cleanup(end) // before that of start, which waits for Close
	require.NoError(t, e.PostStartHook(hookOf(ctx)))
	eventually(t, func() bool { return e.Status().Reload != nil })
	closed := make(chan struct{})
	go func() { e.Close(); close(closed) }()
	eventually(t, func() bool {
		select {
		case <-closed:
			return true
		default:
			return false
		}
	})
	plugin.requireClosed(t)
}

func TestRunEndsWithClose(t *testing.T) {
	path, put := place(t, fileOf(rule("secrets", aesgcm)))
	e := start(t, optionsFor(path))
	ended := make(chan error)
	go func() { ended <- e.Run(context.Background()) }()
	eventually(t, func() bool { return e.Status().Reload != nil })
	e.Close()
	put(fileOf(rule("configmaps", aesgcm)))
	require.NoError(t, <-ended)
	require.Nil(t, e.Status().Reload, "nobody follows it")
	require.ErrorIs(t, e.Run(t.Context()), reload.ErrClosed)
}

// A file that is no longer followed has no outcome, and can be followed again.
func TestAFileIsFollowedAgain(t *testing.T) {
	path, put := place(t, fileOf(rule("secrets", aesgcm)))
	e := start(t, optionsFor(path))
	for i, content := range []string{fileOf(rule("configmaps", aesgcm)), fileOf(rule("pods", aesgcm))} {
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- e.Run(ctx) }()
		put(content)
		eventually(t, func() bool { return uses(e, content) })
		stop()
		require.NoError(t, <-ended, i)
		require.Nil(t, e.Status().Reload)
	}
}

// Two that follow would swap for each other, and count each content twice.
func TestOneServerFollowsTheFile(t *testing.T) {
	path, put := place(t, fileOf(rule("secrets", aesgcm)))
	e, log := logged(t, optionsFor(path))
	for range 2 {
		c := newServerConfig()
		require.NoError(t, e.Install(c))
		require.NoError(t, e.PostStartHook(hookOf(t.Context())))
	}
	eventually(t, func() bool { return strings.Contains(log(), "A server does not follow") && e.Status().Reload != nil })
	require.ErrorContains(t, e.Run(t.Context()), "is followed already")
	for _, content := range []string{fileOf(rule("configmaps", aesgcm)), fileOf(rule("pods", aesgcm))} {
		put(content)
		eventually(t, func() bool { return uses(e, content) })
	}
	e.Close()
	require.Equal(t, 2, strings.Count(log(), "Reloaded the encryption configuration"))
}

// A server without the flag has none, and need not ask whether it has.
func TestANilEncryptionIsWellAndChangesNothing(t *testing.T) {
	var e *atrest.Encryption
	defer e.Close()
	require.Nil(t, e.ResourceTransformers())
	require.Equal(t, "kms-providers", e.HealthChecker().Name())
	require.NoError(t, e.HealthChecker().Check(nil))
	require.Empty(t, e.Status())
	next := http.NewServeMux()
	require.Same(t, next, e.ServeStatus(next))
	require.NoError(t, e.PostStartHook(hookOf(t.Context())))
	ended, end := context.WithCancel(t.Context())
	end()
	require.NoError(t, e.Run(ended))
}

// Else the alert on the end of writing would fire for ever, of what writes nothing.
func TestTheStateOfPluginsIsGoneWithClose(t *testing.T) {
	p, name := faultplugin.Start(t), "ended"+rand.Text()
	path, _ := place(t, fileOf(rule("secrets", kms(name, p.Endpoint()))))
	e := start(t, optionsFor(path))
	eventually(t, func() bool { return gaugesOf(t, name)["atrest_kms_writes_until_timestamp_seconds"] > 0 })
	e.Close()
	require.Empty(t, gaugesOf(t, name))
	require.Empty(t, seriesOf(t, "atrest_encryption_config_warnings", "kind"))
}

// A hook may begin while the server is being stopped.
func TestCloseBesideAHookEndsBoth(t *testing.T) {
	path, _ := place(t, fileOf(rule("secrets", aesgcm)))
	o := optionsFor(path)
	for range 200 {
		e, err := o.Start(t.Context(), "test-apiserver")
		require.NoError(t, err)
		var begun sync.WaitGroup
		for range 3 {
			begun.Go(func() {
				_ = e.PostStartHook(server.PostStartHookContext{Context: t.Context(), LoopbackClientConfig: &rest.Config{}})
			})
		}
		begun.Go(func() { _ = e.Run(t.Context()) })
		e.Close()
		begun.Wait()
	}
}

func TestAServerWhoseEncryptionHasEndedIsNotCalledWell(t *testing.T) {
	path, _ := place(t, fileOf(rule("secrets", aesgcm)))
	o := optionsFor(path)
	o.AutomaticReload = false
	e := start(t, o)
	require.NoError(t, e.HealthChecker().Check(nil))
	ended := make(chan error, 1)
	go func() { ended <- e.Run(context.Background()) }()
	e.Close()
	require.NoError(t, <-ended)
	require.ErrorContains(t, e.HealthChecker().Check(nil), "has ended")
	require.True(t, e.Status().Ended)
}

func TestWhatWasWrittenJustBeforeCloseIsCounted(t *testing.T) {
	p := faultplugin.Start(t)
	path, _ := place(t, fileOf(rule("secrets", kms("counted-at-close", p.Endpoint()))))
	o := optionsFor(path)
	fakeTime(o)
	e := start(t, o)
	for range 7 {
		stored(t, e, secrets)
	}
	e.Close()
	require.EqualValues(t, 7, counted(t, "apiserver_envelope_encryption_key_id_hash_total", "counted-at-close"))
}

// counted is a counter of a provider, over all its other labels.
func counted(t *testing.T, name, provider string) (sum float64) {
	families, err := legacyregistry.DefaultGatherer.Gather()
	require.NoError(t, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && labelOf(m, "provider_name") == provider {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}
