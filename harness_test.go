package atrest_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kmsapi "k8s.io/kms/apis/v2"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kube-atrest/atrest"
	"github.com/kube-atrest/atrest/internal/faultplugin"
)

// fileOf is a file of rules.
func fileOf(rules ...string) string {
	return "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n" + strings.Join(rules, "")
}

// rule has resources stored with providers.
func rule(resources string, providers ...string) string {
	return fmt.Sprintf("- resources: [%s]\n  providers:\n  - %s\n", resources, strings.Join(providers, "\n  - "))
}

// kms is a provider on the plugin at an endpoint, with further fields.
func kms(name, endpoint string, fields ...string) string {
	return fmt.Sprintf("kms: {%s}", strings.Join(append(fields, "apiVersion: v2", "name: "+name, fmt.Sprintf("endpoint: %q", endpoint)), ", "))
}

// The providers that no plugin is behind. Some of key is that of aesgcm.
const (
	identity = "identity: {}"
	aesgcm   = "aesgcm: {keys: [{name: k1, secret: MDEyMzQ1Njc4OWFiY2RlZg==}]}"
)

// patient is for a plugin that would be waited for longer than any test takes.
const patient = "timeout: 1h"

// configuration is a file that encrypts resources with a plugin.
func configuration(p *faultplugin.Plugin, resources string) string {
	return fileOf(rule(resources, kms("test", p.Endpoint()), identity))
}

// hang has a plugin answer no more.
func hang(b *faultplugin.Behaviour) { b.Hang = true }

// connections are those that a plugin has now.
type connections struct {
	endpoint string
	open     atomic.Int64
}

// serveCounted serves a plugin on a socket of its own until the test ends.
func serveCounted(t *testing.T, p kmsapi.KeyManagementServiceServer) *connections {
	folder, err := os.MkdirTemp("", "kms") // t.TempDir may be too long for a socket
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(folder)) })
	c := &connections{endpoint: "unix://" + filepath.Join(folder, "kms.sock")}
	listener, err := net.Listen("unix", strings.TrimPrefix(c.endpoint, "unix://"))
	require.NoError(t, err)
	server, served := grpc.NewServer(grpc.StatsHandler(c)), make(chan struct{})
	kmsapi.RegisterKeyManagementServiceServer(server, p)
	go func() {
		defer close(served)
		_ = server.Serve(listener)
	}()
	t.Cleanup(func() {
		server.Stop()
		<-served
	})
	return c
}

func (c *connections) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }
func (c *connections) HandleRPC(context.Context, stats.RPCStats)                       {}
func (c *connections) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context {
	return ctx
}

func (c *connections) HandleConn(_ context.Context, s stats.ConnStats) {
	switch s.(type) {
	case *stats.ConnBegin:
		c.open.Add(1)
	case *stats.ConnEnd:
		c.open.Add(-1)
	}
}

// requireClosed waits until nobody is connected any longer.
func (c *connections) requireClosed(t *testing.T) {
	t.Helper()
	eventually(t, func() bool { return c.open.Load() == 0 })
}

func eventually(t *testing.T, holds func() bool) {
	t.Helper()
	require.Eventually(t, holds, time.Minute, time.Millisecond)
}

// stepUntil lets time pass until something holds: so slowly that plugins have
// the time to answer in.
func stepUntil(t *testing.T, clock *testingclock.FakeClock, holds func() bool) {
	t.Helper()
	eventually(t, func() bool {
		clock.Step(50 * time.Millisecond)
		return holds()
	})
}

// fakeTime is the time by which an Encryption is started with o.
func fakeTime(o *atrest.Options) *testingclock.FakeClock {
	clock := testingclock.NewFakeClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	o.KMS.Clock = clock
	return clock
}

func place(t *testing.T, content string) (path string, put func(string)) {
	path = filepath.Join(t.TempDir(), "encryption.yaml")
	put = func(content string) {
		require.NoError(t, os.WriteFile(path+".new", []byte(content), 0o600))
		require.NoError(t, os.Rename(path+".new", path))
	}
	put(content)
	return path, put
}

func start(t *testing.T, o *atrest.Options) *atrest.Encryption {
	e, err := o.Start(t.Context(), "test-apiserver")
	require.NoError(t, err)
	t.Cleanup(e.Close)
	return e
}

func optionsFor(path string) *atrest.Options {
	o := atrest.NewOptions()
	o.ConfigFile, o.AutomaticReload = path, true
	return o
}

// follow has the file followed until the test ends, or until stop returns.
func follow(t *testing.T, e *atrest.Encryption) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	stop = func() {
		cancel()
		if err, running := <-ended; running {
			close(ended)
			require.NoError(t, err)
		}
	}
	t.Cleanup(stop)
	return stop
}

// write stores "plain".
func write(ctx context.Context, e *atrest.Encryption, r schema.GroupResource) (string, error) {
	out, err := e.ResourceTransformers().TransformerForResource(r).TransformToStorage(ctx, []byte("plain"), at)
	return string(out), err
}

func stored(t *testing.T, e *atrest.Encryption, r schema.GroupResource) string {
	t.Helper()
	out, err := write(t.Context(), e, r)
	require.NoError(t, err)
	return out
}
