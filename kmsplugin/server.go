package kmsplugin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"k8s.io/klog/v2"
	kmsapi "k8s.io/kms/apis/v2"
	"k8s.io/utils/clock"
)

const (
	// maxRequest bounds a request in bytes: all limits of a Decrypt request together, with
	// protobuf's own bytes. Those of an annotation are 6, and its name has at least 3: what
	// is within [MaxAnnotations] may be three times as long on its way.
	maxRequest = 2*(MaxCiphertext+MaxKeyID+MaxUID) + 3*MaxAnnotations
	// maxHeaders bounds a request's headers in bytes, maxCalls the calls
	// running at once on one connection.
	maxHeaders = 16 * 1024
	maxCalls   = 1024
	// maxConnections bounds the clients that are connected at once, each of which takes a
	// descriptor and some memory. An apiserver connects once for each provider.
	maxConnections = 512
	// handshakeTimeout is how long a peer may stay connected without speaking
	// HTTP/2.
	handshakeTimeout = time.Minute
	// defaultStopTimeout is longer than the 3 s an apiserver gives a call.
	defaultStopTimeout = 5 * time.Second
)

// An Option changes one setting of [Listen].
type Option func(*settings)

type settings struct {
	stopTimeout time.Duration
	clock       clock.Clock
	group       *int
	bound       *net.UnixListener
	observer    Observer
}

// WithStopTimeout sets how long calls that are running when the server is told
// to stop may go on: 5 s by default. Zero cuts them off at once.
func WithStopTimeout(timeout time.Duration) Option {
	return func(s *settings) { s.stopTimeout = timeout }
}

// WithGroup gives the socket to a group, by its gid, and the mode 0660: whoever is in the
// group may have DEKs unwrapped. It is for an apiserver that runs as another user.
func WithGroup(gid int) Option {
	return func(s *settings) { s.group = &gid }
}

// WithListener serves on a socket that is bound already, as [Inherited] returns it. It has
// to be at the endpoint, and no others may connect; it stays when the server ends.
func WithListener(bound *net.UnixListener) Option {
	return func(s *settings) { s.bound = bound }
}

// WithObserver has an observer told of the calls that are answered, and of clients that are
// turned away.
func WithObserver(observer Observer) Option {
	return func(s *settings) { s.observer = observer }
}

// A Server serves one [Service] on one socket. [Listen] makes it, [Server.Serve]
// runs it once, to its end.
type Server struct {
	settings
	endpoint string
	socket   *socket
	guard    *guard
	grpc     *grpc.Server
	served   atomic.Bool
}

// Listen binds the socket at endpoint, so that from its return on clients can
// connect and wait for [Server.Serve], which must follow.
//
// The endpoint is unix:///path. It is a URL, whose path is decoded once: what an
// EncryptionConfiguration calls unix:///run/a%3Fb.sock is the file /run/a?b.sock.
// kube-apiserver's own client dials any such name but one that has a %, once decoded,
// without two hexadecimal digits behind it. The socket has mode 0600, so only its owner
// and root may connect, unless [WithGroup] lets a group in. Its folder must exist, and
// that and all above it belong to this user or to root and not let others write, unless
// they are sticky. A socket file that nobody listens on, as a
// crash leaves it, is replaced; a live one is an error that wraps [ErrSocketInUse];
// anything else at the path is an error and stays. While the server lives, an empty
// file path.lock keeps other servers of this kit away.
//
// Log lines go to the logger in ctx (klog.NewContext); ctx bounds only the look
// for a live server.
func Listen(ctx context.Context, endpoint string, service Service, options ...Option) (*Server, error) {
	if service == nil {
		return nil, errors.New("kmsplugin: no service to serve")
	}
	s := &Server{
		settings: settings{stopTimeout: defaultStopTimeout, clock: clock.RealClock{}},
		endpoint: endpoint,
	}
	for _, option := range options {
		option(&s.settings)
	}
	s.guard = newGuard(klog.FromContext(ctx).WithValues("endpoint", endpoint), s.clock, s.observer)
	s.grpc = newGRPC(service, s.guard)
	path, err := parseEndpoint(endpoint)
	switch {
	case err != nil:
	case s.bound != nil:
		s.socket, err = adopt(s.bound, path)
	default:
		s.socket, err = bind(ctx, path, s.group)
	}
	if err != nil {
		return nil, fmt.Errorf("kmsplugin: endpoint %q: %w", endpoint, err)
	}
	s.socket.refused = s.guard.refuse
	return s, nil
}

func newGRPC(service Service, g *guard) *grpc.Server {
	server := grpc.NewServer(
		grpc.UnaryInterceptor(g.intercept),
		grpc.ForceServerCodecV2(forgetful{encoding.GetCodecV2(proto.Name)}),
		grpc.MaxRecvMsgSize(maxRequest),
		grpc.MaxHeaderListSize(maxHeaders),
		grpc.MaxConcurrentStreams(maxCalls),
		grpc.ConnectionTimeout(handshakeTimeout),
	)
	kmsapi.RegisterKeyManagementServiceServer(server, &adapter{service: service})
	return server
}

// Endpoint is the endpoint given to [Listen], for an EncryptionConfiguration.
func (s *Server) Endpoint() string { return s.endpoint }

// Serve answers calls until ctx ends, then removes the socket, lets running
// calls finish for the stop timeout and cancels those that are left. It returns
// nil if every call could finish, whatever else clients held open, and an error if
// calls were cut off or if accepting connections failed. A call that was cut off may still be on its way
// out of the Service. With a ctx that has already ended Serve only releases the
// socket. A second call is an error.
func (s *Server) Serve(ctx context.Context) error {
	if !s.served.CompareAndSwap(false, true) {
		return fmt.Errorf("kmsplugin: endpoint %q: Serve was called before: call Listen again", s.endpoint)
	}
	serving := make(chan error, 1)
	go func() {
		defer close(serving)
		serving <- s.grpc.Serve(s.socket)
	}()
	var accepting error
	select {
	case <-ctx.Done():
	case accepting = <-serving:
	}
	if err := errors.Join(accepting, s.stop(serving), s.socket.release()); err != nil {
		return fmt.Errorf("kmsplugin: endpoint %q: %w", s.endpoint, err)
	}
	return nil
}

func (s *Server) stop(serving <-chan error) error {
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		s.grpc.GracefulStop()
		for range serving { // until Serve has returned
		}
	}()
	s.socket.cutSilent()
	timer := s.clock.NewTimer(s.stopTimeout)
	defer timer.Stop()
	select {
	case <-drained:
		return nil
	case <-timer.C():
	}
	running := s.guard.running.Load()
	// Without its connection a call's ctx ends, and gRPC with the last call.
	// Nothing waits for that, as a Service may ignore its ctx; grpc.Server.Stop
	// would, behind the lock that GracefulStop holds meanwhile.
	s.socket.cut()
	if running == 0 {
		return nil // they only held a connection
	}
	return fmt.Errorf("%d calls still ran after %s and were cut off", running, s.stopTimeout)
}
