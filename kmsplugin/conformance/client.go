package conformance

import (
	"context"
	"net"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	kmsapi "k8s.io/kms/apis/v2"
)

// A client is the generated one. It speaks as an apiserver does and judges nothing: what
// a plugin really sends has to be seen. It is safe for concurrent use.
type client struct {
	kmsapi.KeyManagementServiceClient
	connection *grpc.ClientConn
}

// newClient does not connect before the first call. Calls wait for a plugin that is being
// restarted.
func newClient(address string) (*client, error) {
	connection, err := grpc.NewClient("passthrough:///plugin",
		grpc.WithAuthority("localhost"), // as apiservers; some servers look at it
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true), grpc.MaxCallSendMsgSize(1<<30)),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 5 * time.Millisecond, Multiplier: 1.5, MaxDelay: 100 * time.Millisecond},
			MinConnectTimeout: time.Second,
		}),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", address)
		}),
		grpc.WithStatsHandler(onceSent{}),
	)
	if err != nil {
		return nil, err
	}
	return &client{kmsapi.NewKeyManagementServiceClient(connection), connection}, nil
}

func (c *client) close() { _ = c.connection.Close() }

// onceSent calls what [whenSent] put into a call's ctx, when the request is on its way, and keeps
// what [watching] asked for.
type onceSent struct{}

type (
	sentKey  struct{}
	watchKey struct{}
)

// A watch is how far a call came. It is safe for concurrent use.
type watch struct{ sent, answered atomic.Bool }

// watching has what becomes of a call noted.
func watching(ctx context.Context, w *watch) context.Context {
	return context.WithValue(ctx, watchKey{}, w)
}

// isThePlugins reports whether an error of a call is the plugin's doing: it said so itself, or took
// the call and let its deadline pass. Any other is the client's own word for nobody being there.
func (w *watch) isThePlugins(err error) bool {
	return w.answered.Load() || w.sent.Load() && status.Code(err) == codes.DeadlineExceeded
}

func whenSent(ctx context.Context, do func()) context.Context {
	return context.WithValue(ctx, sentKey{}, do)
}

// HandleRPC looks for a request that has been sent, and for the end of an answer.
func (onceSent) HandleRPC(ctx context.Context, event stats.RPCStats) {
	w, ok := ctx.Value(watchKey{}).(*watch)
	if !ok {
		w = &watch{}
	}
	switch event.(type) {
	case *stats.InTrailer:
		w.answered.Store(true)
	case *stats.OutPayload:
		w.sent.Store(true)
		if do, ok := ctx.Value(sentKey{}).(func()); ok {
			do()
		}
	}
}

// TagRPC leaves a call as it is.
func (onceSent) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// TagConn leaves a connection as it is.
func (onceSent) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn looks at none.
func (onceSent) HandleConn(context.Context, stats.ConnStats) {}
