//lint:file-ignore SA1019 KMS v1 is deprecated, and what this package is for

package kmsv1

import (
	"context"
	"encoding/base64"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	kmsapi "k8s.io/kms/apis/v1beta1"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kube-atrest/atrest/envelope"
)

// server is a KMS v1 plugin that serves on a socket.
type server struct {
	kmsapi.UnimplementedKeyManagementServiceServer
	socket string

	mu       sync.Mutex
	version  string        // "" is v1beta1
	refusal  error         // of Version, when set
	hang     chan struct{} // calls wait for it, when set
	answer   []byte        // of Decrypt, when set
	versions int
	seen     map[string]bool // versions that requests named
	grpc     *grpc.Server
}

func newServer(t *testing.T) *server {
	dir, err := os.MkdirTemp("", "kms") // a socket's path must be short
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return &server{socket: filepath.Join(dir, "s"), seen: map[string]bool{}}
}

func (s *server) endpoint() envelope.Endpoint { return envelope.Endpoint("unix://" + s.socket) }

// start serves until stop or the end of the test.
func (s *server) start(t *testing.T) {
	listener, err := net.Listen("unix", s.socket)
	require.NoError(t, err)
	g := grpc.NewServer()
	kmsapi.RegisterKeyManagementServiceServer(g, s)
	s.grpc = g
	go g.Serve(listener)
	t.Cleanup(g.Stop)
}

func (s *server) stop() { s.grpc.Stop() }

func (s *server) set(change func(*server)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

// called notes the version of a request and waits if calls are to hang.
func (s *server) called(ctx context.Context, version string) {
	s.mu.Lock()
	s.seen[version] = true
	hang := s.hang
	s.mu.Unlock()
	if hang != nil {
		select {
		case <-hang:
		case <-ctx.Done():
		}
	}
}

func (s *server) Version(ctx context.Context, r *kmsapi.VersionRequest) (*kmsapi.VersionResponse, error) {
	s.set(func(s *server) { s.versions++ })
	s.called(ctx, r.Version)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.version != "" || s.refusal != nil {
		return &kmsapi.VersionResponse{Version: s.version}, s.refusal
	}
	return &kmsapi.VersionResponse{Version: apiVersion, RuntimeName: "test", RuntimeVersion: "0"}, nil
}

func (s *server) Encrypt(ctx context.Context, r *kmsapi.EncryptRequest) (*kmsapi.EncryptResponse, error) {
	s.called(ctx, r.Version)
	return &kmsapi.EncryptResponse{Cipher: []byte(base64.StdEncoding.EncodeToString(r.Plain))}, nil
}

func (s *server) Decrypt(ctx context.Context, r *kmsapi.DecryptRequest) (*kmsapi.DecryptResponse, error) {
	s.called(ctx, r.Version)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.answer != nil {
		return &kmsapi.DecryptResponse{Plain: s.answer}, nil
	}
	plain, err := base64.StdEncoding.DecodeString(string(r.Cipher))
	return &kmsapi.DecryptResponse{Plain: plain}, err
}

// never is longer than any test: a call that waits for it hangs the test.
const never = 24 * time.Hour

func dial(t *testing.T, s *server, timeout time.Duration) Plugin {
	c, err := Dial(s.endpoint(), timeout, nil)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// frozen is a provider that probes for no other reason than that its connection
// changed: the time for a poll never comes.
func frozen(t *testing.T, s *server, timeout time.Duration) *rig {
	c, err := Dial(s.endpoint(), timeout, nil)
	require.NoError(t, err)
	r := &rig{t: t, clock: testingclock.NewFakeClock(testStart)}
	r.held = hold(t, NewProvider(c, Options{Clock: r.clock, HealthyPoll: never, UnhealthyPoll: never}), envelope.Writes)
	require.NoError(t, r.followed.Asked(t.Context()))
	return r
}

// eventually lets time go by until the provider has a problem, or none.
func (r *rig) eventually(problem envelope.Problem) {
	r.t.Helper()
	require.Eventually(r.t, func() bool {
		r.clock.Step(100 * time.Millisecond)
		return r.Health().Problem == problem
	}, 30*time.Second, time.Millisecond, "the provider's problem is not %q", problem)
	require.Less(r.t, r.clock.Since(testStart), never, "no poll")
}

func TestOverARealSocket(t *testing.T) {
	s := newServer(t)
	s.start(t)
	l := frozen(t, s, never)
	require.Empty(t, l.Health().Problem)
	out, err := l.Seal(t.Context(), testPrefix, []byte("value"), testKey)
	require.NoError(t, err)
	for range 2 {
		cold := hold(t, NewProvider(dial(t, s, never), Options{}), envelope.Reads)
		got, _, err := cold.Open(t.Context(), out[len(testPrefix):], testKey)
		require.NoError(t, err)
		require.Equal(t, "value", string(got))
	}
	require.Equal(t, map[string]bool{apiVersion: true}, s.seen, "every request names the version")
	require.Equal(t, 3, s.versions, "each connection asked for it once")
}

func TestAnAbstractSocket(t *testing.T) {
	s := newServer(t)
	name := fmt.Sprintf("@kmsv1-%d", os.Getpid())
	listener, err := net.Listen("unix", name)
	if err != nil {
		t.Skipf("abstract sockets are Linux's: %v", err)
	}
	g := grpc.NewServer()
	kmsapi.RegisterKeyManagementServiceServer(g, s)
	go g.Serve(listener)
	defer g.Stop()
	c, err := Dial(envelope.Endpoint("unix:///"+name), never, nil)
	require.NoError(t, err)
	defer c.Close()
	wrapped, err := c.Encrypt(t.Context(), []byte("key"))
	require.NoError(t, err)
	got, err := c.Decrypt(t.Context(), wrapped)
	require.NoError(t, err)
	require.Equal(t, "key", string(got))
}

func TestEndpointsThatNameNoSocket(t *testing.T) {
	for _, endpoint := range []envelope.Endpoint{"", "unix://", "http:///x", "/run/kms.sock", "unix://%zz"} {
		_, err := Dial(endpoint, never, nil)
		require.Error(t, err, "%q", endpoint)
	}
}

func TestCallsToNobodyFail(t *testing.T) {
	c := dial(t, newServer(t), never)
	for range 3 {
		_, err := c.Encrypt(t.Context(), []byte("x"))
		require.Equal(t, codes.Unavailable, status.Code(err))
		_, err = c.Decrypt(t.Context(), []byte("x"))
		require.Equal(t, codes.Unavailable, status.Code(err))
	}
}

func TestAPluginThatComesLateOrComesBackIsNoticedByItself(t *testing.T) {
	s := newServer(t)
	l := frozen(t, s, never)
	require.Equal(t, envelope.Unreachable, l.Health().Problem)

	s.start(t)
	l.eventually("")
	out, err := l.Seal(t.Context(), testPrefix, []byte("value"), testKey)
	require.NoError(t, err)

	s.stop()
	l.eventually(envelope.Unreachable)
	_, err = l.Seal(t.Context(), testPrefix, []byte("value"), testKey)
	require.ErrorIs(t, err, envelope.ErrUnavailable)
	_, _, err = l.Open(t.Context(), out[len(testPrefix):], testKey)
	require.NoError(t, err, "a cached DEK outlasts its plugin")

	s.start(t)
	l.eventually("")
	_, err = l.Seal(t.Context(), testPrefix, []byte("value"), testKey)
	require.NoError(t, err)
}

func TestAPluginThatHangsTimesOut(t *testing.T) {
	s := newServer(t)
	s.hang = make(chan struct{})
	s.start(t)
	l := frozen(t, s, 20*time.Millisecond)
	require.Equal(t, envelope.TimedOut, l.Health().Problem)
	_, err := l.Seal(t.Context(), testPrefix, []byte("value"), testKey)
	require.Equal(t, codes.DeadlineExceeded, status.Code(err))
	close(s.hang)
	s.set(func(s *server) { s.hang = nil })
	l.clock.Step(time.Second)
	require.NoError(t, l.Ask(t.Context()))
	_, err = l.Seal(t.Context(), testPrefix, []byte("value"), testKey)
	require.NoError(t, err)
}

// Of many callers while the version is not known, each waits for its own time,
// and not for that of those before it.
func TestACallerThatGivesUpLeavesTheVersionToTheOthers(t *testing.T) {
	s := newServer(t)
	s.hang = make(chan struct{})
	s.start(t)
	c := dial(t, s, never)
	ctx, giveUp := context.WithCancel(t.Context())
	first, second := make(chan error), make(chan error)
	go func() { _, err := c.Encrypt(ctx, []byte("x")); first <- err }()
	require.Eventually(t, func() bool { s.mu.Lock(); defer s.mu.Unlock(); return s.seen[apiVersion] }, testWait, testTick)
	go func() { _, err := c.Encrypt(t.Context(), []byte("x")); second <- err }()
	giveUp()
	require.Equal(t, codes.Canceled, status.Code(<-first))
	close(s.hang)
	require.NoError(t, <-second)
	s.set(func(s *server) { require.Equal(t, 1, s.versions) })
}

func TestAnotherVersionIsRefusedUntilItIsRight(t *testing.T) {
	s := newServer(t)
	s.version = "v2"
	s.start(t)
	l := frozen(t, s, never)
	require.Equal(t, envelope.BadVersion, l.Health().Problem)
	require.ErrorContains(t, l.Health().Err, `"v2"`)
	require.ErrorContains(t, l.Health().Err, "apiVersion: v2")
	_, err := l.Seal(t.Context(), testPrefix, []byte("value"), testKey)
	require.ErrorIs(t, err, envelope.ErrUnavailable)

	s.set(func(s *server) { s.version = "" })
	l.clock.Step(time.Second)
	require.NoError(t, l.Ask(t.Context()))
	_, err = l.Seal(t.Context(), testPrefix, []byte("value"), testKey)
	require.NoError(t, err)
}

func TestAPluginThatDoesNotTellItsVersionIsNotUsed(t *testing.T) {
	s := newServer(t)
	s.refusal = status.Error(codes.PermissionDenied, "not you")
	s.start(t)
	c := dial(t, s, never)
	_, err := c.Encrypt(t.Context(), []byte("key"))
	require.Equal(t, codes.PermissionDenied, status.Code(err))
	require.ErrorContains(t, err, "version: ")
	_, err = c.Decrypt(t.Context(), []byte("a2V5"))
	require.Equal(t, codes.PermissionDenied, status.Code(err))
	s.set(func(s *server) { s.refusal = nil })
	_, err = c.Encrypt(t.Context(), []byte("key"))
	require.NoError(t, err)
}

// A plugin of KMS v2 does not know the service at all.
func TestAPluginOfKMSv2IsToldAsSuch(t *testing.T) {
	s := newServer(t)
	listener, err := net.Listen("unix", s.socket)
	require.NoError(t, err)
	g := grpc.NewServer()
	go g.Serve(listener)
	defer g.Stop()
	l := frozen(t, s, never)
	require.Equal(t, envelope.BadVersion, l.Health().Problem)
	require.Equal(t, codes.Unimplemented, status.Code(l.Health().Err))
}

func TestAnOversizedAnswerIsRefused(t *testing.T) {
	s := newServer(t)
	s.answer = make([]byte, 1<<20)
	s.start(t)
	_, err := dial(t, s, never).Decrypt(t.Context(), []byte("x"))
	require.Equal(t, codes.ResourceExhausted, status.Code(err))
}

func TestTheRecorderIsToldOfEveryCall(t *testing.T) {
	s := newServer(t)
	s.start(t)
	var mu sync.Mutex
	got := map[string]codes.Code{}
	c, err := Dial(s.endpoint(), never, func(method string, took time.Duration, err error) {
		mu.Lock()
		defer mu.Unlock()
		assert.Positive(t, took)
		got[method] = status.Code(err)
	})
	require.NoError(t, err)
	defer c.Close()
	_, _ = c.Encrypt(t.Context(), []byte("key"))
	_, err = c.Decrypt(t.Context(), []byte("?"))
	require.Error(t, err)
	require.Equal(t, map[string]codes.Code{
		"/v1beta1.KeyManagementService/Version": codes.OK,
		"/v1beta1.KeyManagementService/Encrypt": codes.OK,
		"/v1beta1.KeyManagementService/Decrypt": codes.Unknown,
	}, got)
}

func TestManyCallersAtOnceAskForTheVersionOnce(t *testing.T) {
	s := newServer(t)
	s.start(t)
	c := dial(t, s, never)
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			wrapped, err := c.Encrypt(t.Context(), []byte("key"))
			assert.NoError(t, err)
			got, err := c.Decrypt(t.Context(), wrapped)
			assert.NoError(t, err)
			assert.Equal(t, "key", string(got))
		})
	}
	wg.Wait()
	require.LessOrEqual(t, s.versions, 2, "those who come as the first answer arrives may ask again")
}
