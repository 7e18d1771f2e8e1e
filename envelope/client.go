package envelope

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/apimachinery/pkg/util/uuid"
	kmsapi "k8s.io/kms/apis/v2"
	"k8s.io/kms/pkg/util"
)

// DefaultTimeout bounds one call to a plugin, as in kube-apiserver.
const DefaultTimeout = 3 * time.Second

// maxAnswer bounds an answer of a plugin, in bytes: 1 KiB of ciphertext and
// 32 KiB of annotations fit in it many times over.
const maxAnswer = 256 << 10

// knockEvery is how often a lost plugin's socket is tried. That costs next to
// nothing, while gRPC's own attempts each leave a line in the log.
const knockEvery = time.Second

// reconnect is how soon gRPC by itself dials a lost plugin again, which is
// sooner when its socket is found to answer.
var reconnect = backoff.Config{BaseDelay: 10 * time.Second, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 2 * time.Minute}

// Endpoint is where a plugin serves: unix:///path/to/socket, or
// unix:///@name for an abstract socket.
type Endpoint string

// socket is the endpoint as a unix address.
func (e Endpoint) socket() (string, error) {
	path, err := util.ParseEndpoint(string(e))
	if err != nil {
		return "", err
	}
	if path == "" {
		return "", fmt.Errorf("endpoint %q names no socket: write unix:///path/to/socket", string(e))
	}
	return path, nil
}

// target is a unix address in gRPC's words.
func target(socket string) string {
	if name, abstract := strings.CutPrefix(socket, "@"); abstract {
		return "unix-abstract:" + name
	}
	return "unix:" + socket
}

// Recorder is told of every call to a plugin when it has ended: its full gRPC
// method, how long it took, and its error. It must not block.
type Recorder func(method string, took time.Duration, err error)

// client speaks KMS v2 over a unix socket. While nothing listens there calls
// fail at once rather than wait for their timeout.
type client struct {
	socket  string
	conn    *grpc.ClientConn
	api     kmsapi.KeyManagementServiceClient
	timeout time.Duration
	wake    chan struct{}
	stop    context.CancelFunc
	done    chan struct{}
}

var _ Plugin = (*client)(nil)

// Dial makes the plugin at an endpoint. It does not wait for the plugin to be
// there: the connection is made by the first call, and made again for as long
// as the plugin is not closed. timeout bounds each call; recorder may be nil.
func Dial(endpoint Endpoint, timeout time.Duration, recorder Recorder) (Plugin, error) {
	socket, err := endpoint.socket()
	if err != nil {
		return nil, err
	}
	conn, err := grpc.NewClient(target(socket),
		grpc.WithTransportCredentials(insecure.NewCredentials()), // a unix socket is guarded by its file mode
		grpc.WithAuthority("localhost"),
		grpc.WithDisableServiceConfig(),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: reconnect, MinConnectTimeout: timeout}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)),
		grpc.WithIdleTimeout(0),
		grpc.WithUnaryInterceptor(record(recorder)),
	)
	if err != nil {
		return nil, fmt.Errorf("endpoint %q: %w", string(endpoint), err)
	}
	ctx, stop := context.WithCancel(context.Background())
	c := &client{
		socket: socket, conn: conn, api: kmsapi.NewKeyManagementServiceClient(conn), timeout: timeout,
		wake: make(chan struct{}, 1), stop: stop, done: make(chan struct{}),
	}
	go c.watchConnection(ctx)
	return c, nil
}

func record(r Recorder) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		start := time.Now()
		err := invoke(ctx, method, req, reply, cc, opts...)
		if r != nil {
			r(method, time.Since(start), err)
		}
		return err
	}
}

// watchConnection wakes the poller when the connection breaks and when it comes
// back. In between it knocks at the socket.
func (c *client) watchConnection(ctx context.Context) {
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
func (c *client) waitForChange(ctx context.Context, state connectivity.State, broken bool) {
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

func (c *client) somebodyListens() bool {
	conn, err := net.DialTimeout("unix", c.socket, knockEvery)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}

func (c *client) signal() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (c *client) Wake() <-chan struct{} { return c.wake }

func (c *client) Close() error {
	c.stop()
	<-c.done
	return c.conn.Close()
}

func (c *client) Status(ctx context.Context) (Status, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	r, err := c.api.Status(ctx, &kmsapi.StatusRequest{})
	if err != nil {
		return Status{}, err
	}
	return Status{Version: r.GetVersion(), Healthz: r.GetHealthz(), KeyID: r.GetKeyId()}, nil
}

func (c *client) Encrypt(ctx context.Context, dek []byte) (Wrapped, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	r, err := c.api.Encrypt(ctx, &kmsapi.EncryptRequest{Plaintext: dek, Uid: string(uuid.NewUUID())})
	if err != nil {
		return Wrapped{}, err
	}
	return Wrapped{Ciphertext: r.GetCiphertext(), KeyID: r.GetKeyId(), Annotations: r.GetAnnotations()}, nil
}

func (c *client) Decrypt(ctx context.Context, w Wrapped) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	r, err := c.api.Decrypt(ctx, &kmsapi.DecryptRequest{
		Ciphertext: w.Ciphertext, KeyId: w.KeyID, Annotations: w.Annotations, Uid: string(uuid.NewUUID()),
	})
	if err != nil {
		return nil, err
	}
	return r.GetPlaintext(), nil
}
