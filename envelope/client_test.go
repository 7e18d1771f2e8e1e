package envelope_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apiserver/pkg/storage/value"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kube-atrest/atrest/envelope"
	"github.com/kube-atrest/atrest/internal/faultplugin"
	"github.com/kube-atrest/atrest/internal/plugin"
)

const prefix = "k8s:enc:kms:v2:test:"

var at = value.DefaultContext("/registry/secrets/default/x")

// never is longer than any test: a call that waits for it hangs the test.
const never = 24 * time.Hour

func dial(t *testing.T, p *faultplugin.Plugin, timeout time.Duration, r envelope.Recorder) envelope.Plugin {
	dialled, err := envelope.Dial(envelope.Endpoint(p.Endpoint()), timeout, r)
	require.NoError(t, err)
	return dialled
}

// held is a provider that is written with, and its clock.
type held struct {
	*envelope.Provider
	clock *testingclock.FakeClock
}

// frozen is a provider whose clock stands still: it polls for no other reason
// than that its connection changed.
func frozen(t *testing.T, p *faultplugin.Plugin, timeout time.Duration) held {
	clock := testingclock.NewFakeClock(time.Now())
	l := held{envelope.NewProvider(dial(t, p, timeout, nil), envelope.Options{Clock: clock}), clock}
	t.Cleanup(l.Hold())
	l.SetRole(envelope.Writes)
	require.NoError(t, l.Asked(t.Context()))
	return l
}

// eventually waits for a problem, and lets one that is new come to count.
func eventually(t *testing.T, l held, problem envelope.Problem) {
	t.Helper()
	require.Eventually(t, func() bool {
		if l.Known().Status.Trouble != nil && l.Health().Problem == "" {
			l.clock.Step(plugin.Grace)
		}
		return l.Health().Problem == problem
	}, 30*time.Second, time.Millisecond, "the provider's problem is not %q", problem)
}

func TestCallsToNobodyFailAtOnce(t *testing.T) {
	c := dial(t, faultplugin.New(t), never, nil)
	defer c.Close()
	for range 3 {
		_, err := c.Decrypt(t.Context(), envelope.Wrapped{Ciphertext: []byte("x"), KeyID: "1"})
		require.Equal(t, codes.Unavailable, status.Code(err))
	}
}

func TestAPluginThatComesLateOrComesBackIsNoticedByItself(t *testing.T) {
	p := faultplugin.New(t)
	l := frozen(t, p, never)
	require.Equal(t, envelope.Unreachable, l.Health().Problem)

	p.Serve()
	eventually(t, l, "")
	sealed, err := l.Seal(t.Context(), prefix, []byte("v"), at)
	require.NoError(t, err)

	p.Kill()
	eventually(t, l, envelope.Unreachable)
	_, _, err = l.Open(t.Context(), sealed[len(prefix):], at)
	require.NoError(t, err, "a DEK in use outlasts its plugin")
	_, err = l.Seal(t.Context(), prefix, []byte("v"), at)
	require.NoError(t, err, "and seals for the write window")

	p.Heal("2")
	p.Serve()
	eventually(t, l, "")
	require.Equal(t, envelope.HashKeyID("2"), l.Health().KeyIDHash)
}

func TestASocketThatWasReplacedIsFound(t *testing.T) {
	p := faultplugin.Start(t)
	l := frozen(t, p, never)
	p.RemoveSocket()
	p.Kill()
	eventually(t, l, envelope.Unreachable)
	p.Serve()
	eventually(t, l, "")
}

func TestAPluginThatHangsTimesOut(t *testing.T) {
	p := faultplugin.Start(t)
	p.Set(func(b *faultplugin.Behaviour) { b.Hang = true })
	l := frozen(t, p, 20*time.Millisecond)
	require.Equal(t, envelope.TimedOut, l.Health().Problem)
	require.Equal(t, codes.DeadlineExceeded, status.Code(l.Health().Err))
}

func TestAnOversizedAnswerIsRefused(t *testing.T) {
	p := faultplugin.Start(t)
	p.Set(func(b *faultplugin.Behaviour) { b.Garbage = make([]byte, 1<<20) })
	c := dial(t, p, never, nil)
	defer c.Close()
	_, err := c.Decrypt(t.Context(), envelope.Wrapped{Ciphertext: []byte("x"), KeyID: "1"})
	require.Equal(t, codes.ResourceExhausted, status.Code(err))
}

func TestTheRecorderIsToldOfEveryCall(t *testing.T) {
	p := faultplugin.Start(t)
	var mu sync.Mutex
	got := map[string]codes.Code{}
	c := dial(t, p, never, func(method string, took time.Duration, err error) {
		mu.Lock()
		defer mu.Unlock()
		require.Positive(t, took)
		got[method] = status.Code(err)
	})
	defer c.Close()
	p.Set(func(b *faultplugin.Behaviour) { b.DecryptErr = status.Error(codes.PermissionDenied, "no") })
	_, _ = c.Status(t.Context())
	w, _ := c.Encrypt(t.Context(), []byte("key"))
	_, _ = c.Decrypt(t.Context(), w)
	require.Equal(t, map[string]codes.Code{
		"/v2.KeyManagementService/Status":  codes.OK,
		"/v2.KeyManagementService/Encrypt": codes.OK,
		"/v2.KeyManagementService/Decrypt": codes.PermissionDenied,
	}, got)
}
