package plugin

import (
	"context"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const never = 24 * time.Hour

func TestSockets(t *testing.T) {
	for endpoint, want := range map[string]string{
		"unix:///run/kms.sock": "/run/kms.sock", "unix:///@kms": "@kms", "unix:///run/a%3Fb%23c%25%20d": "/run/a?b#c% d",
	} {
		got, err := Socket(endpoint)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	for _, endpoint := range []string{"", "unix://", "tcp://x", "/run/kms.sock", ":"} {
		_, err := Socket(endpoint)
		require.Error(t, err, endpoint)
		_, err = Dial(endpoint, never, nil)
		require.Error(t, err, endpoint)
	}
}

// A path is dialled as it stands once the endpoint has been read as a URL.
func TestAnyPathCanBeDialled(t *testing.T) {
	for _, name := range []string{"a?b", "a#b", "a%41b", "a%", "a b", "a%3Fb", "ä", "a:b", "@a"} {
		socket := filepath.Join(filepath.Dir(socketPath(t)), name)
		serve(t, socket)
		c, err := Dial((&url.URL{Scheme: "unix", Path: socket}).String(), never, nil)
		require.NoError(t, err, name)
		require.Equal(t, codes.Unimplemented, call(t.Context(), c), name)
		require.NoError(t, c.Close())
	}
}

func socketPath(t *testing.T) string {
	dir, err := os.MkdirTemp("", "kms") // a socket's path must be short
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}

// serve knows no method: every call is answered with Unimplemented.
func serve(t *testing.T, socket string) *grpc.Server {
	return serveWith(t, socket, func(context.Context) {})
}

// serveWith is serve, with something that comes before each answer.
func serveWith(t *testing.T, socket string, before func(context.Context), options ...grpc.ServerOption) *grpc.Server {
	listener, err := net.Listen("unix", socket)
	require.NoError(t, err)
	s := grpc.NewServer(append([]grpc.ServerOption{grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
		before(s.Context())
		return status.Error(codes.Unimplemented, "no such method")
	})}, options...)...)
	go s.Serve(listener)
	t.Cleanup(s.Stop)
	return s
}

func call(ctx context.Context, c *Conn) codes.Code {
	return status.Code(c.Invoke(ctx, "/x.Y/Z", nil, nil))
}

func dial(t *testing.T, socket string, timeout time.Duration, r Recorder) *Conn {
	c, err := Dial("unix://"+socket, timeout, r)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

func TestNobodyThenSomebodyThenNobodyAgain(t *testing.T) {
	socket := socketPath(t)
	c := dial(t, socket, never, nil)
	require.Equal(t, codes.Unavailable, hastily(t.Context(), c), "at once, not after the timeout")

	s := serve(t, socket)
	<-c.Wake()
	require.Equal(t, codes.Unimplemented, hastily(t.Context(), c))

	s.Stop()
	<-c.Wake()
	require.Equal(t, codes.Unavailable, hastily(t.Context(), c))

	serve(t, socket)
	<-c.Wake()
	require.Equal(t, codes.Unimplemented, hastily(t.Context(), c))
}

// hastily is a call that waits for nobody.
func hastily(ctx context.Context, c *Conn) codes.Code {
	return status.Code(c.Hasty().Invoke(ctx, "/x.Y/Z", nil, nil))
}

// Many call while the plugin is restarted, and some are inside when it goes.
func TestARestartCostsNoCall(t *testing.T) {
	socket := socketPath(t)
	inside := make(chan struct{}, 100)
	first := serveWith(t, socket, func(ctx context.Context) { inside <- struct{}{}; <-ctx.Done() })
	c := dial(t, socket, never, nil)
	answers := make(chan codes.Code)
	for range 20 {
		go func() { answers <- call(t.Context(), c) }()
	}
	<-inside
	first.Stop()
	for range 20 {
		go func() { answers <- call(t.Context(), c) }()
	}
	serve(t, socket)
	for range 40 {
		require.Equal(t, codes.Unimplemented, <-answers)
	}
}

// An outage is waited out in its first moments, and then no longer.
func TestALongOutageIsNotWaitedOut(t *testing.T) {
	c := dial(t, socketPath(t), never, nil)
	require.Equal(t, codes.Unavailable, call(t.Context(), c))
	require.GreaterOrEqual(t, time.Since(c.link.downSince()), patience)
	since := c.link.downSince()
	for range 100 {
		require.Equal(t, codes.Unavailable, call(t.Context(), c))
	}
	require.Equal(t, since, c.link.downSince(), "one outage, which began once")
}

// A call's own error is no outage, whatever its code.
func TestAPluginMayAnswerThatItIsUnavailable(t *testing.T) {
	socket := socketPath(t)
	var calls atomic.Int64
	serveWith(t, socket, func(context.Context) { calls.Add(1) }, grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error {
		calls.Add(1)
		return status.Error(codes.Unavailable, "the KMS is away")
	}))
	c := dial(t, socket, never, nil)
	require.Equal(t, codes.Unavailable, call(t.Context(), c))
	require.EqualValues(t, 1, calls.Load(), "asked once")
	require.False(t, c.link.isDown())
}

// Whoever accepts connections and breaks them is dialled later and later.
func TestConnectionsThatServeNothingAreMadeLessOften(t *testing.T) {
	l := newLink("")
	l.dialled = start
	for want, useless := range map[time.Duration]int{
		firstRedial: 1, 2 * firstRedial: 2, 4 * firstRedial: 3, 8 * firstRedial: 4, 16 * firstRedial: 5, lastRedial: 6,
	} {
		l.useless = useless
		require.Equal(t, start.Add(want), l.redialAt())
	}
	l.useless = 1 << 40
	require.Equal(t, start.Add(lastRedial), l.redialAt())
	l.served()
	require.True(t, l.redialAt().IsZero(), "until one has served a call")
}

// A plugin that crashes in every call, behind a socket that is kept for it.
func TestAPluginThatBreaksEachConnectionWakesWithEach(t *testing.T) {
	socket := socketPath(t)
	listener, err := net.Listen("unix", socket)
	require.NoError(t, err)
	t.Cleanup(func() { listener.Close() })
	var accepted atomic.Int64
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			accepted.Add(1)
			conn.Close()
		}
	}()
	c := dial(t, socket, never, nil)
	for range 3 {
		require.Equal(t, codes.Unavailable, hastily(t.Context(), c))
		<-c.Wake()
	}
	require.True(t, c.link.isDown())
	require.Positive(t, accepted.Load())
}

// Somebody who accepts the connection and never says a word.
func TestACallIsBoundByTheTimeout(t *testing.T) {
	socket := socketPath(t)
	listener, err := net.Listen("unix", socket)
	require.NoError(t, err)
	defer listener.Close()
	var method string
	var took time.Duration
	c := dial(t, socket, 20*time.Millisecond, func(m string, d time.Duration, err error) {
		require.Equal(t, codes.DeadlineExceeded, status.Code(err))
		method, took = m, d
	})
	require.Equal(t, codes.DeadlineExceeded, hastily(t.Context(), c))
	require.Equal(t, "/x.Y/Z", method)
	require.Positive(t, took)
}

func TestThereAreNoStreams(t *testing.T) {
	_, err := dial(t, socketPath(t), never, nil).NewStream(t.Context(), nil, "/x.Y/Z")
	require.Error(t, err)
}

func TestCallsAfterCloseFail(t *testing.T) {
	socket := socketPath(t)
	serve(t, socket)
	c, err := Dial("unix://"+socket, never, nil)
	require.NoError(t, err)
	require.Equal(t, codes.Unimplemented, call(t.Context(), c))
	require.NoError(t, c.Close())
	require.Equal(t, codes.Canceled, call(t.Context(), c))
}
