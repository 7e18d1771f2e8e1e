package plugin

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/kms/pkg/util"
)

// MaxAnswer bounds an answer of a plugin, in bytes. KMS v2 answers with some
// 34 KiB at most, KMS v1 with less than 65 KiB.
const MaxAnswer = 256 << 10

// knockEvery is how often a lost plugin's socket is tried. That costs next to
// nothing, while gRPC's own attempts each leave a line in the log.
const knockEvery = time.Second

// reconnect is how soon gRPC by itself dials a lost plugin again, which is
// sooner when its socket is found to answer.
var reconnect = backoff.Config{BaseDelay: 10 * time.Second, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 2 * time.Minute}

// Socket is the address that an endpoint means: unix:///path/to/socket is a
// path, and unix:///@name the name @name in the abstract namespace of Linux.
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

// target is a unix address in gRPC's words.
func target(socket string) string {
	if name, abstract := strings.CutPrefix(socket, "@"); abstract {
		return "unix-abstract:" + name
	}
	return "unix:" + socket
}

// Recorder is told of every call when it has ended: its full gRPC method, how
// long it took, and its error. It must not block.
type Recorder func(method string, took time.Duration, err error)

// Conn is the connection to a plugin. It is made by the first call, and made
// again for as long as it is not closed. While nobody listens calls fail at
// once rather than wait for their timeout. Safe for concurrent use.
type Conn struct {
	conn   *grpc.ClientConn
	socket string
	wake   chan struct{}
	stop   context.CancelFunc
	done   chan struct{}
}

var _ grpc.ClientConnInterface = (*Conn)(nil)

// Dial makes the connection to the plugin at an endpoint. It waits for nobody.
// timeout bounds each call; recorder may be nil.
func Dial(endpoint string, timeout time.Duration, recorder Recorder) (*Conn, error) {
	socket, err := Socket(endpoint)
	if err != nil {
		return nil, err
	}
	conn, err := grpc.NewClient(target(socket),
		grpc.WithTransportCredentials(insecure.NewCredentials()), // a unix socket is guarded by its file mode
		grpc.WithAuthority("localhost"),
		grpc.WithDisableServiceConfig(),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: reconnect, MinConnectTimeout: timeout}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(MaxAnswer)),
		grpc.WithIdleTimeout(0),
		grpc.WithUnaryInterceptor(bound(timeout, recorder)),
	)
	if err != nil {
		return nil, fmt.Errorf("endpoint %q: %w", endpoint, err)
	}
	ctx, stop := context.WithCancel(context.Background())
	c := &Conn{conn: conn, socket: socket, wake: make(chan struct{}, 1), stop: stop, done: make(chan struct{})}
	go c.watch(ctx)
	return c, nil
}

// bound limits the time of each call and tells of its end.
func bound(timeout time.Duration, recorder Recorder) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		ctx, end := traced(ctx, method)
		start := time.Now()
		err := invoke(ctx, method, req, reply, cc, opts...)
		end(err)
		if recorder != nil {
			recorder(method, time.Since(start), err)
		}
		return err
	}
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
			span.SetStatus(codes.Error, err.Error())
		}
		span.End()
	}
}

// Invoke is a call, as generated clients make it.
func (c *Conn) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	return c.conn.Invoke(ctx, method, args, reply, opts...)
}

// NewStream fails: the KMS APIs have no streams.
func (c *Conn) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, fmt.Errorf("the KMS APIs have no streams")
}

// Wake signals that the connection broke, or came back, so that it is worth
// asking the plugin how it is.
func (c *Conn) Wake() <-chan struct{} { return c.wake }

// Close ends the connection. Calls under way fail.
func (c *Conn) Close() error {
	c.stop()
	<-c.done
	return c.conn.Close()
}

// watch signals when the connection breaks and when it comes back. In between
// it knocks at the socket.
func (c *Conn) watch(ctx context.Context) {
	defer close(c.done)
	up, broken := false, false
	for state := c.conn.GetState(); ctx.Err() == nil; state = c.conn.GetState() {
		wasUp, wasBroken := up, broken
		up = state == connectivity.Ready
		broken = !up && (broken || wasUp || state == connectivity.TransientFailure)
		if broken != wasBroken && (wasUp || up) {
			c.signal()
		}
		if broken && state == connectivity.Idle {
			c.conn.Connect()
		}
		c.waitForChange(ctx, state, broken)
	}
}

// waitForChange waits until the connection leaves state. While it is broken it
// has gRPC dial again as soon as somebody listens.
func (c *Conn) waitForChange(ctx context.Context, state connectivity.State, broken bool) {
	if !broken {
		c.conn.WaitForStateChange(ctx, state)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, knockEvery)
	defer cancel()
	if !c.conn.WaitForStateChange(ctx, state) && c.somebodyListens() {
		c.conn.ResetConnectBackoff()
	}
}

func (c *Conn) somebodyListens() bool {
	conn, err := net.DialTimeout("unix", c.socket, knockEvery)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}

func (c *Conn) signal() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}
