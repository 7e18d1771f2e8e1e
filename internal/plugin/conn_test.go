package plugin

import (
	"context"
	"net"
	"os"
	"path/filepath"
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
		"unix:///run/kms.sock": "unix:/run/kms.sock", "unix:///@kms": "unix-abstract:kms",
	} {
		got, err := Socket(endpoint)
		require.NoError(t, err)
		require.Equal(t, want, target(got))
	}
	for _, endpoint := range []string{"", "unix://", "tcp://x", "/run/kms.sock", ":"} {
		_, err := Socket(endpoint)
		require.Error(t, err, endpoint)
		_, err = Dial(endpoint, never, nil)
		require.Error(t, err, endpoint)
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
	listener, err := net.Listen("unix", socket)
	require.NoError(t, err)
	s := grpc.NewServer()
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
	require.Equal(t, codes.Unavailable, call(t.Context(), c), "at once, not after the timeout")

	s := serve(t, socket)
	<-c.Wake()
	require.Equal(t, codes.Unimplemented, call(t.Context(), c))

	s.Stop()
	<-c.Wake()
	require.Equal(t, codes.Unavailable, call(t.Context(), c))

	serve(t, socket)
	<-c.Wake()
	require.Equal(t, codes.Unimplemented, call(t.Context(), c))
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
	require.Equal(t, codes.DeadlineExceeded, call(t.Context(), c))
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
