package plugin

import (
	"context"
	"fmt"
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
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: redial, MinConnectTimeout: timeout}),
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

// redial is how soon gRPC tries a socket again that nobody listens on.
var redial = backoff.Config{BaseDelay: firstRedial, Multiplier: 1.6, Jitter: 0.2, MaxDelay: lastRedial}

// watch wakes whoever asks how the plugin is when the connection is there again
// after something had failed. That it broke is told by the link.
func (c *Conn) watch(ctx context.Context) {
	defer close(c.watched)
	for state := c.conn.GetState(); ; state = c.conn.GetState() {
		if state == connectivity.Ready && c.link.isDown() {
			c.link.wake()
		}
		if !c.conn.WaitForStateChange(ctx, state) {
			return
		}
	}
}

// Invoke is a call, as generated clients make it. If the plugin has just gone it
// waits for it.
func (c *Conn) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	return c.call(ctx, method, func(ctx context.Context) error {
		for {
			breaks := c.link.breaks()
			err := c.conn.Invoke(ctx, method, args, reply, opts...)
			if !c.lost(err, breaks) || !c.comesBack(ctx) {
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
		breaks := c.link.breaks()
		err := c.conn.Invoke(ctx, method, args, reply, opts...)
		c.lost(err, breaks)
		return err
	})
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

// lost notes what came of a call, and reports whether that was the connection's
// doing and not the plugin's answer.
func (c *Conn) lost(err error, breaks uint64) bool {
	switch status.Code(err) {
	case codes.DeadlineExceeded, codes.Canceled:
		return false
	case codes.Unavailable:
		if c.conn.GetState() != connectivity.Ready || c.link.breaks() != breaks {
			c.link.failed()
			return true
		}
	}
	c.link.served()
	return false
}

// comesBack waits for a connection while the outage is young, and reports
// whether there is one.
func (c *Conn) comesBack(ctx context.Context) bool {
	ctx, cancel := context.WithDeadline(ctx, c.link.downSince().Add(min(c.timeout, patience)))
	defer cancel()
	for state := c.conn.GetState(); state != connectivity.Ready; state = c.conn.GetState() {
		if state == connectivity.Idle {
			c.conn.Connect()
		}
		if !c.conn.WaitForStateChange(ctx, state) {
			return false
		}
	}
	return ctx.Err() == nil
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
