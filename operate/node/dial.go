package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/kube-atrest/atrest/internal/plugin"
)

// dial makes the connection to one instance, which every time is to the very instance, or to nobody. Each
// call takes no longer than timeout.
func dial(s Spec, r Runner, timeout time.Duration) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///plugin",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return reach(ctx, s, r) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()), // a unix socket is guarded by its file mode
		grpc.WithAuthority("localhost"),
		grpc.WithDisableServiceConfig(),
		grpc.WithUnaryInterceptor(each(timeout)),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, MaxDelay: time.Second}, MinConnectTimeout: timeout}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(plugin.MaxAnswer)))
}

func reach(ctx context.Context, s Spec, r Runner) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", s.Socket)
	if err != nil {
		return nil, err
	}
	if err := r.Proves(s, conn.(*net.UnixConn)); err != nil {
		return nil, errors.Join(fmt.Errorf("%s is not served by the plugin that was started: %w", s.Socket, err), conn.Close())
	}
	return conn, nil
}

// each has every call take so long at most.
func each(timeout time.Duration) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, request, answer any, conn *grpc.ClientConn, call grpc.UnaryInvoker, options ...grpc.CallOption) error {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		return call(ctx, method, request, answer, conn, options...)
	}
}
