package plugin

import (
	"context"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
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
	return serveOn(t, listener, before, options...)
}

func serveOn(t *testing.T, listener net.Listener, before func(context.Context), options ...grpc.ServerOption) *grpc.Server {
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
	since := c.link.state().down
	require.GreaterOrEqual(t, time.Since(since), patience)
	for range 100 {
		require.Equal(t, codes.Unavailable, call(t.Context(), c))
	}
	require.Equal(t, since, c.link.state().down, "one outage, which began once")
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
	require.Zero(t, c.link.state().down)
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

// A plugin that crashes at its start, behind a socket that is kept for it, or
// somebody else's socket. None of them gets as far as gRPC, which would make a
// log line of each connection.
func TestWhoeverDoesNotSpeakIsNoPlugin(t *testing.T) {
	for name, says := range map[string]string{
		"hangs up":             "",
		"HTTP/1.1":             "HTTP/1.1 400 Bad Request\r\n\r\n",
		"half a frame":         "\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x03",
		"another frame":        "\x00\x00\x08\x06\x00\x00\x00\x00\x00atrestab",
		"more than it may":     "\x00\xff\xff\x04\x00\x00\x00\x00\x00",
		"settings of a stream": "\x00\x00\x00\x04\x00\x00\x00\x00\x01",
	} {
		t.Run(name, func(t *testing.T) {
			socket := socketPath(t)
			listener, err := net.Listen("unix", socket)
			require.NoError(t, err)
			hungUp := make(chan struct{})
			go func() {
				defer close(hungUp)
				for {
					conn, err := listener.Accept()
					if err != nil {
						return
					}
					_, _ = io.WriteString(conn, says)
					conn.Close()
				}
			}()
			c := dial(t, socket, never, nil)
			err = c.Hasty().Invoke(t.Context(), "/x.Y/Z", nil, nil)
			require.Equal(t, codes.Unavailable, status.Code(err))
			require.ErrorContains(t, err, "is no server of gRPC")
			require.ErrorContains(t, err, socket)
			require.Equal(t, connectivity.Connecting, c.conn.GetState(), "gRPC has not seen it")
			require.NoError(t, listener.Close())
			<-hungUp
			serve(t, socket)
			<-c.Wake()
			require.Equal(t, codes.Unimplemented, hastily(t.Context(), c))
		})
	}
}

// Closing waits for nobody who listens and says nothing.
func TestCloseEndsAGreeting(t *testing.T) {
	socket := socketPath(t)
	listener, err := net.Listen("unix", socket)
	require.NoError(t, err)
	defer listener.Close()
	c, err := Dial("unix://"+socket, never, nil)
	require.NoError(t, err)
	c.conn.Connect()
	conn, err := listener.Accept()
	require.NoError(t, err)
	greeting := make([]byte, len(http2.ClientPreface)+9)
	_, err = io.ReadFull(conn, greeting)
	require.NoError(t, err)
	require.Equal(t, http2.ClientPreface+"\x00\x00\x00\x04\x00\x00\x00\x00\x00", string(greeting))
	require.NoError(t, c.Close())
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(greetsWithin/2)))
	_, err = conn.Read(greeting)
	require.Equal(t, io.EOF, err, "it has ended, and not because of its age")
}

// A plugin that is rolled the proper way drains: the new process serves, and the
// old one ends the one call that it is in. That it then goes is no break.
func TestAConnectionThatWasDrainedMayEndLater(t *testing.T) {
	socket := socketPath(t)
	inside, release := make(chan struct{}, 1), make(chan struct{})
	var calls atomic.Int64
	old := serveWith(t, socket, func(context.Context) {
		if calls.Add(1) == 1 {
			inside <- struct{}{}
			<-release
		}
	})
	c := dial(t, socket, never, nil)
	slow := make(chan codes.Code, 1)
	go func() { slow <- call(t.Context(), c) }()
	<-inside
	drained := make(chan struct{})
	go func() { defer close(drained); old.GracefulStop() }()
	require.Eventually(t, func() bool { // or it would wait for who does not speak
		conn, err := net.Dial("unix", socket)
		if err == nil {
			conn.Close()
		}
		return err != nil
	}, 10*time.Second, time.Millisecond)
	serve(t, socket)
	require.Equal(t, codes.Unimplemented, call(t.Context(), c), "over a new connection")
	close(release)
	require.Equal(t, codes.Unimplemented, <-slow)
	<-drained
	for range 100 {
		require.Equal(t, codes.Unimplemented, hastily(t.Context(), c))
		require.Equal(t, codes.Unimplemented, call(t.Context(), c))
	}
}

// One that waits to be greeted is as good.
func TestAServerMayWaitToBeGreeted(t *testing.T) {
	socket := socketPath(t)
	serve(t, socket+"-behind")
	listener, err := net.Listen("unix", socket)
	require.NoError(t, err)
	defer listener.Close()
	go func() { // a proxy that hears the client out first
		near, err := listener.Accept()
		if err != nil {
			return
		}
		greeting := make([]byte, 24)
		_, _ = io.ReadFull(near, greeting)
		far, err := net.Dial("unix", socket+"-behind")
		if err != nil {
			return
		}
		_, _ = far.Write(greeting)
		go func() { _, _ = io.Copy(far, near) }()
		_, _ = io.Copy(near, far)
	}()
	require.Equal(t, codes.Unimplemented, hastily(t.Context(), dial(t, socket, never, nil)))
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

// However soon one connection takes the place of another.
func TestAPluginThatIsRolledOverAndOverIsFoundEachTime(t *testing.T) {
	socket := socketPath(t)
	c := dial(t, socket, never, nil)
	for range 300 {
		s := serve(t, socket)
		require.Equal(t, codes.Unimplemented, call(t.Context(), c))
		s.Stop()
	}
}

// That gRPC has a connection is believed of the latest one, while it has not ended.
func TestAConnectionThatHasEndedIsNone(t *testing.T) {
	l := newLink("")
	near, far := net.Pipe()
	defer far.Close()
	require.False(t, l.is(true), "there has been none")
	l.current = &linked{Conn: near, link: l}
	require.True(t, l.is(true))
	require.True(t, l.state().ready)
	changed := l.state().changed
	require.False(t, l.is(true), "that is no news")
	require.NoError(t, l.current.Close())
	<-changed
	require.False(t, l.state().ready)
	require.False(t, l.is(true), "gRPC has yet to notice")
}

// deadlines is a connection that notes its deadlines.
type deadlines struct {
	net.Conn
	set []time.Time
}

func (d *deadlines) SetDeadline(t time.Time) error {
	d.set = append(d.set, t)
	return d.Conn.SetDeadline(t)
}

func TestOnlyTheGreetingHasADeadline(t *testing.T) {
	near, far := net.Pipe()
	defer far.Close()
	go func() {
		_, _ = io.ReadFull(far, make([]byte, len(http2.ClientPreface)+9))
		_ = http2.NewFramer(far, far).WriteSettings()
	}()
	conn := &deadlines{Conn: near}
	l := &linked{Conn: conn, link: newLink("")}
	require.NoError(t, l.greet(t.Context()))
	require.Len(t, conn.set, 2)
	require.False(t, conn.set[0].IsZero())
	require.True(t, conn.set[1].IsZero())
}

// What is called in the moment in which the connection breaks fails with it, or waits for
// the next one as others do, and never to the end of its time.
func TestACallInTheMomentOfABreakIsNotHeldUp(t *testing.T) {
	socket := socketPath(t)
	c := dial(t, socket, never, nil)
	for range 50 {
		server := serve(t, socket)
		require.Eventually(t, func() bool { return hastily(t.Context(), c) == codes.Unimplemented }, 30*time.Second, time.Millisecond)
		ended := make(chan codes.Code)
		for range 4 {
			go func() {
				for {
					code := hastily(t.Context(), c)
					if code != codes.Unimplemented {
						ended <- code
						return
					}
				}
			}()
		}
		server.Stop()
		for range 4 {
			require.Equal(t, codes.Unavailable, <-ended)
		}
	}
}
