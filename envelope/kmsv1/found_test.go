package kmsv1

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kube-atrest/atrest/envelope"
	"github.com/kube-atrest/atrest/internal/plugin"
)

// 2: no reload moves a resource onto a plugin that is not well.
func TestPrepareDoesNotBelieveAnOldProbe(t *testing.T) {
	r := standing(t)
	require.NoError(t, r.Prepare(t.Context())) // a first try of the file, refused for another plugin's sake
	r.plugin.die()
	r.clock.Step(50 * time.Second) // tries every 10 s
	require.Error(t, r.Prepare(t.Context()), "the plugin is gone since 50 s")
}

func TestPrepareSeesADecryptThatIsDenied(t *testing.T) {
	r := standing(t)
	value := newRig(t).write("value")
	require.NoError(t, r.Prepare(t.Context()))
	r.plugin.set(func(p *faultyPlugin) { p.decErr = status.Error(codes.PermissionDenied, "no") })
	r.clock.Step(30 * time.Second)
	require.False(t, verdictOf(r.Open(t.Context(), value, testKey)).opened)
	require.Eventually(t, func() bool { return r.Health().Problem != "" }, testWait, testTick, "and this is known")
	require.Error(t, r.Prepare(t.Context()))
}

// obedient ends its calls with their context, as gRPC does.
type obedient struct {
	*faultyPlugin
	inside chan struct{}
	block  bool
}

func (o *obedient) Encrypt(ctx context.Context, dek []byte) ([]byte, error) {
	o.mu.Lock()
	block := o.block
	o.mu.Unlock()
	if block {
		select {
		case o.inside <- struct{}{}:
		default:
		}
		<-ctx.Done()
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	return o.faultyPlugin.Encrypt(ctx, dek)
}

// A client that gives up its write says nothing of the plugin.
func TestAClientThatGivesUpDoesNotMakeTheServerUnready(t *testing.T) {
	o := &obedient{faultyPlugin: newFaultyPlugin(), inside: make(chan struct{}, 1)}
	seen := &recorder{}
	p := NewProvider(o, Options{Observer: seen})
	h := hold(t, p, envelope.Writes)
	require.NoError(t, h.followed.Asked(t.Context()))
	require.Empty(t, p.Health().Problem)
	o.set(func(*faultyPlugin) { o.block = true })
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := p.Seal(ctx, testPrefix, []byte("value"), testKey)
		done <- err
	}()
	<-o.inside
	cancel()
	require.Error(t, <-done)
	hh := p.Health()
	require.Empty(t, hh.Problem, "%v", hh.Err)
}

// A huge text does not change the class of a problem.
func TestAHugeTextKeepsItsClass(t *testing.T) {
	o := &unversioned{newFaultyPlugin()}
	p := NewProvider(o, Options{})
	h := hold(t, p, envelope.Writes)
	require.NoError(t, h.followed.Asked(t.Context()))
	require.Equal(t, envelope.BadVersion, p.Health().Problem)
}

type unversioned struct{ *faultyPlugin }

func (u *unversioned) Encrypt(context.Context, []byte) ([]byte, error) {
	// as client.askVersion, over plugin.Conn, which cuts
	err := plugin.Cut(status.Error(codes.Unimplemented, strings.Repeat("x", 2000)))
	return nil, wrapVersion(err)
}

// The cached probe: the last sign of what v1 unwraps is of the value alone.
func wrapVersion(err error) error { return fmt.Errorf("%w: %w", errVersion, err) }

// 2, for a plugin that writes already and has just gone: KMS v1 has no window.
func TestPrepareOfAWriterWhosePluginIsGone(t *testing.T) {
	r := newRig(t)
	r.clock.Step(5 * time.Second)
	r.plugin.die()
	_, err := r.Seal(t.Context(), testPrefix, []byte("v"), testKey)
	require.Error(t, err)
	require.Error(t, r.Prepare(t.Context()), "a write has just failed")
}
