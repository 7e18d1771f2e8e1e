package plugin

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	otelcodes "go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"k8s.io/kms/pkg/util"
)

// MaxAnswer bounds an answer of a plugin, in bytes. KMS v2 answers with some
// 34 KiB at most, KMS v1 with less than 65 KiB.
const MaxAnswer = 256 << 10

// patience is how long after the beginning of an outage a call waits for the
// plugin to come back, and no longer than its timeout. It is below [Grace].
const patience = 1500 * time.Millisecond

// Socket is the address that an endpoint means: unix:///path/to/socket is a
// path, and unix:///@name the name @name in the abstract namespace of Linux. The
// endpoint is a URL: %, ? and # in a path are written %25, %3F and %23.
func Socket(endpoint string) (string, error) {
	address, err := util.ParseEndpoint(endpoint)
	if err != nil {
		return "", err
	}
	if address == "" {
		return "", fmt.Errorf("endpoint %q names no socket: write unix:///path/to/socket", endpoint)
	}
	return address, nil
}

// Recorder is told of every call when it has ended: its full gRPC method, how
// long it took, and its error. It must not block.
type Recorder func(method string, took time.Duration, err error)

// Conn is the connection to a plugin. It is made by the first call, and made
// again for as long as it is not closed. A call that meets a plugin which has
// just gone waits for it to come back; one that comes later fails at once.
// Safe for concurrent use.
type Conn struct {
	conn     *grpc.ClientConn
	link     *link
	timeout  time.Duration
	recorder Recorder
	stop     context.CancelFunc
	watched  chan struct{}
	waiting  atomic.Int64 // calls that wait for a connection
}

var _ grpc.ClientConnInterface = (*Conn)(nil)

// Dial makes the connection to the plugin at an endpoint. It waits for nobody.
// timeout bounds each call; recorder may be nil.
func Dial(endpoint string, timeout time.Duration, recorder Recorder) (*Conn, error) {
	socket, err := Socket(endpoint)
	if err != nil {
		return nil, err
	}
	if recorder == nil {
		recorder = func(string, time.Duration, error) {}
	}
	link := newLink(socket)
	conn, err := grpc.NewClient("passthrough:///plugin",
		grpc.WithContextDialer(link.dial),
		grpc.WithTransportCredentials(insecure.NewCredentials()), // a unix socket is guarded by its file mode
		grpc.WithAuthority("localhost"),
		grpc.WithDisableServiceConfig(),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: redial, MinConnectTimeout: forEver}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(MaxAnswer)),
		grpc.WithIdleTimeout(0),
	)
	if err != nil {
		return nil, fmt.Errorf("endpoint %q: %w", endpoint, err)
	}
	ctx, stop := context.WithCancel(context.Background())
	c := &Conn{conn: conn, link: link, timeout: timeout, recorder: recorder, stop: stop, watched: make(chan struct{})}
	go c.watch(ctx)
	return c, nil
}

// The link dials until somebody who speaks HTTP/2 listens, so gRPC's own attempt
// may take for ever. It fails only if the connection ends while gRPC takes it
// over.
const forEver = 10 * 365 * 24 * time.Hour

var redial = backoff.Config{BaseDelay: firstRedial, Multiplier: 2, Jitter: 0.2, MaxDelay: lastRedial}

// watch tells the link whether gRPC has a connection. A change of the link ends
// its waiting too: one connection may take the place of another before it looks.
func (c *Conn) watch(ctx context.Context) {
	defer close(c.watched)
	for ctx.Err() == nil {
		changed := c.link.state().changed
		state := c.conn.GetState()
		if c.link.is(state == connectivity.Ready) {
			continue
		}
		switch {
		case state == connectivity.TransientFailure:
			c.link.failed() // the connection did not last until gRPC had it
		case state == connectivity.Idle && c.waiting.Load() > 0:
			c.conn.Connect() // it came to be idle after somebody had begun to wait
		}
		c.waitForChange(ctx, state, changed)
	}
}

// waitForChange waits until gRPC is in another state, or changed is closed.
func (c *Conn) waitForChange(ctx context.Context, state connectivity.State, changed <-chan struct{}) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		defer cancel()
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}()
	c.conn.WaitForStateChange(ctx, state)
}

// Invoke is a call, as generated clients make it. If the plugin has just gone it
// waits for it.
func (c *Conn) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	return c.call(ctx, method, func(ctx context.Context) error {
		for {
			err, lost := c.try(ctx, patience, func(ctx context.Context) error { return c.conn.Invoke(ctx, method, args, reply, opts...) })
			if !lost {
				return err
			}
		}
	})
}

// Hasty is the connection for calls that wait for nobody: while there is no
// plugin they fail at once.
func (c *Conn) Hasty() grpc.ClientConnInterface { return hasty{c} }

type hasty struct{ *Conn }

func (c hasty) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	return c.call(ctx, method, func(ctx context.Context) error {
		err, _ := c.try(ctx, 0, func(ctx context.Context) error { return c.conn.Invoke(ctx, method, args, reply, opts...) })
		return err
	})
}

// try makes a call once there is a connection, for which it waits until an
// outage is as old as patience. lost reports whether the connection was lost
// under it, and the call may be tried again.
func (c *Conn) try(ctx context.Context, patience time.Duration, invoke func(context.Context) error) (err error, lost bool) {
	if err := c.connected(ctx, patience); err != nil {
		return err, false
	}
	before := c.link.state()
	if !before.ready || before.over == nil { // it broke since
		return c.unreachable(before.err), c.young(patience)
	}
	during, end := c.whileUp(ctx, before.over)
	err = invoke(during)
	end()
	switch status.Code(err) {
	case codes.Canceled:
		if ctx.Err() == nil && context.Cause(during) == errBroke {
			return c.unreachable(c.link.state().err), c.young(patience)
		}
		return err, false
	case codes.DeadlineExceeded:
		return err, false
	case codes.Unavailable:
		now := c.link.state()
		if !now.ready || now.broken != before.broken || c.conn.GetState() != connectivity.Ready {
			return err, c.young(patience)
		}
	}
	c.link.served()
	return err, false
}

// young notes that a call met an outage, and reports whether that is younger than patience.
func (c *Conn) young(patience time.Duration) bool { return time.Since(c.link.failed()) < patience }

// errBroke ends a call whose connection broke. What gRPC had sent fails by itself then;
// what came to it a moment later would wait for the next connection, to the end of its
// time.
var errBroke = errors.New("the connection broke")

// whileUp is a context that ends with ctx, and when a connection has ended; while that
// is drained it goes on. It lasts until end is called.
func (c *Conn) whileUp(ctx context.Context, over *linked) (during context.Context, end func()) {
	during, cancel := context.WithCancelCause(ctx)
	go func() {
		for {
			ended, changed := c.link.hasEnded(over)
			if ended {
				cancel(errBroke)
				return
			}
			select {
			case <-changed:
			case <-during.Done():
				return
			}
		}
	}()
	return during, func() { cancel(nil) }
}

// connected waits for a connection.
func (c *Conn) connected(ctx context.Context, patience time.Duration) error {
	c.waiting.Add(1)
	defer c.waiting.Add(-1)
	for {
		c.conn.Connect() // if it is idle
		state := c.link.state()
		if state.ready {
			return nil
		}
		var over <-chan time.Time
		if !state.down.IsZero() {
			left := patience - time.Since(state.down)
			if left <= 0 {
				return c.unreachable(state.err)
			}
			timer := time.NewTimer(left)
			defer timer.Stop()
			over = timer.C
		}
		select {
		case <-state.changed:
		case <-over:
		case <-c.watched:
			return status.Error(codes.Canceled, "the connection to the plugin was closed")
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		}
	}
}

// unreachable is the error of a call while there is no connection.
func (c *Conn) unreachable(err error) error {
	if err == nil {
		err = fmt.Errorf("unix %s: no connection that lasts", c.link.socket)
	}
	return status.Error(codes.Unavailable, "no connection to the plugin: "+err.Error())
}

// call bounds the time of a call and the text of its error, and tells of its end.
func (c *Conn) call(ctx context.Context, method string, invoke func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	ctx, end := traced(ctx, method)
	start := time.Now()
	err := Cut(invoke(ctx))
	end(err)
	c.recorder(method, time.Since(start), err)
	return err
}

// traced makes a call a span of the trace that ctx is part of, if that is
// recorded. A request that waits for the plugin then shows what it waits for.
func traced(ctx context.Context, method string) (context.Context, func(error)) {
	parent := trace.SpanFromContext(ctx)
	if !parent.IsRecording() {
		return ctx, func(error) {}
	}
	ctx, span := parent.TracerProvider().Tracer("github.com/kube-atrest/atrest").Start(ctx, method)
	return ctx, func(err error) {
		if err != nil {
			span.SetStatus(otelcodes.Error, err.Error())
		}
		span.End()
	}
}

// NewStream fails: the KMS APIs have no streams.
func (c *Conn) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, fmt.Errorf("the KMS APIs have no streams")
}

// Wake signals that the connection broke, or came back, so that it is worth
// asking the plugin how it is.
func (c *Conn) Wake() <-chan struct{} { return c.link.woken }

// Close ends the connection. Calls under way fail.
func (c *Conn) Close() error {
	c.stop()
	<-c.watched
	return c.conn.Close()
}
