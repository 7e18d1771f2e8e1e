package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/utils/clock"

	"github.com/kube-atrest/atrest/operate/audit"
)

// DefaultTimeout bounds one call to etcd.
const DefaultTimeout = 10 * time.Second

// DefaultEndpoint is where etcd serves if nobody says otherwise.
const DefaultEndpoint = "127.0.0.1:2379"

// Options say where etcd is.
type Options struct {
	// Endpoints are those of the members of one cluster, as etcdctl has them;
	// default [DefaultEndpoint]. They are tried in turn.
	Endpoints []string
	// CAFile, CertFile and KeyFile are in PEM: what etcd's certificate is checked
	// with, and what this client shows of itself.
	CAFile, CertFile, KeyFile string
	// User is who etcd is to take this client for, with a password, where etcd has
	// authentication; default nobody but whom the certificate names. Password is asked for
	// whenever etcd has to be told it, which is now and then.
	User     string
	Password func() (string, error)
	// Timeout bounds one call; default [DefaultTimeout].
	Timeout time.Duration
	// Clock paces new attempts; default the real one.
	Clock clock.Clock
}

// Errors of a walk or a read. Each is wrapped with the endpoint and the remedy;
// a gRPC status stays reachable by errors.As.
var (
	// ErrCompacted: etcd dropped the revision that the walk is of, as
	// kube-apiserver has it do every five minutes.
	ErrCompacted = errors.New("etcd has compacted the revision that is being read")
	// ErrAnotherCluster: an answer came from another etcd cluster than those
	// before it, or does not tell from which.
	ErrAnotherCluster = errors.New("the endpoints are not of one etcd cluster")
)

// Store is a connection to etcd. All its answers are of one cluster, the one that
// answers first. It is safe for concurrent use; close it.
type Store struct {
	names    []string
	conns    []*grpc.ClientConn
	answered atomic.Int32 // the one that answered last
	timeout  time.Duration
	clock    clock.Clock
	login    *login

	mu   sync.Mutex
	seen *seen // who told first of which cluster it is
}

type seen struct {
	cluster  uint64
	endpoint string
}

var _ audit.Store = (*Store)(nil)

// Dial reads the files and checks the endpoints. It waits for nobody: the first
// call connects.
func Dial(o Options) (*Store, error) {
	config, err := o.tls()
	if err != nil {
		return nil, err
	}
	if len(o.Endpoints) == 0 {
		o.Endpoints = []string{DefaultEndpoint}
	}
	user, err := newLogin(o)
	if err != nil {
		return nil, err
	}
	s := &Store{timeout: o.Timeout, clock: o.Clock, login: user}
	if s.timeout <= 0 {
		s.timeout = DefaultTimeout
	}
	if s.clock == nil {
		s.clock = clock.RealClock{}
	}
	for _, text := range o.Endpoints {
		e, err := parseEndpoint(text, o.CAFile != "" || o.CertFile != "")
		if err != nil {
			s.Close()
			return nil, err
		}
		conn, err := e.dial(config)
		if err != nil {
			s.Close()
			return nil, fmt.Errorf("etcd endpoint %q: %w", text, err)
		}
		s.names, s.conns = append(s.names, text), append(s.conns, conn)
	}
	return s, nil
}

// Close ends the connections.
func (s *Store) Close() {
	for _, conn := range s.conns {
		_ = conn.Close() // its only error is that it was closed before
	}
}

// String names the endpoints.
func (s *Store) String() string { return "etcd at " + strings.Join(s.names, ",") }

// Entry is what stands under a key.
type Entry = audit.Entry

// Find is what stands under a key, as of the latest write to etcd that was
// answered before; the error wraps [audit.ErrNotFound] if nothing does.
func (s *Store) Find(ctx context.Context, key string) (Entry, error) {
	answer, err := s.call(ctx, &pb.RangeRequest{Key: []byte(key)})
	if err != nil {
		return Entry{}, err
	}
	if len(answer.Kvs) == 0 {
		return Entry{}, fmt.Errorf("%s: %w: %q; list those there are with: etcdctl get --prefix --keys-only", s, audit.ErrNotFound, key)
	}
	kv := answer.Kvs[0]
	if string(kv.Key) != key {
		return Entry{}, fmt.Errorf("%s: it was asked for the key %q, and gave another: is that etcd's API v3?", s, key)
	}
	return Entry{Key: key, Value: kv.Value, ModRevision: kv.ModRevision, Cluster: answer.Header.GetClusterId()}, nil
}

const (
	rounds     = 3           // over the endpoints
	roundEvery = time.Second // so that an election of a leader may end
)

// call asks one member after the other, and all of them again if none answered.
func (s *Store) call(ctx context.Context, request *pb.RangeRequest) (*pb.RangeResponse, error) {
	var err error
	for round := range rounds {
		if round > 0 {
			if err := s.pause(ctx); err != nil {
				return nil, err
			}
		}
		var answer *pb.RangeResponse
		if answer, err = s.callEach(ctx, request); err == nil || status.Code(err) != codes.Unavailable || ctx.Err() != nil {
			return answer, err
		}
	}
	return nil, err
}

// callEach begins with the member that answered last.
func (s *Store) callEach(ctx context.Context, request *pb.RangeRequest) (answer *pb.RangeResponse, err error) {
	first := int(s.answered.Load())
	for n := range s.conns {
		i := (first + n) % len(s.conns)
		if answer, err = s.callOne(ctx, s.conns[i], request); err == nil {
			s.answered.Store(int32(i))
			return answer, s.sameCluster(s.names[i], answer.GetHeader().GetClusterId())
		}
		err = explain(s.names[i], s.timeout, err)
		if ctx.Err() != nil || !isAway(err) {
			return nil, err
		}
	}
	return nil, err
}

// sameCluster refuses an answer of another cluster: the endpoint is mistaken, or
// its member was restored into a cluster of its own. A store that tells of none,
// as that of k3s, may be asked at one endpoint alone.
func (s *Store) sameCluster(endpoint string, cluster uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case cluster == 0 && len(s.names) > 1:
		return fmt.Errorf("etcd at %s: %w, as far as it tells: it names no cluster: name one endpoint", endpoint, ErrAnotherCluster)
	case s.seen == nil:
		s.seen = &seen{cluster, endpoint}
	case s.seen.cluster != cluster && s.seen.endpoint == endpoint:
		return fmt.Errorf("etcd at %s: %w any more: it was of cluster %x, and is of %x: was it restored? begin again",
			endpoint, ErrAnotherCluster, s.seen.cluster, cluster)
	case s.seen.cluster != cluster:
		return fmt.Errorf("%w: %s is of cluster %x, and %s of %x: name the endpoints of one",
			ErrAnotherCluster, s.seen.endpoint, s.seen.cluster, endpoint, cluster)
	}
	return nil
}

func (s *Store) pause(ctx context.Context) error {
	timer := s.clock.NewTimer(roundEvery)
	defer timer.Stop()
	select {
	case <-timer.C():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *Store) callOne(ctx context.Context, conn *grpc.ClientConn, request *pb.RangeRequest) (*pb.RangeResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	as, token, err := s.login.with(ctx, conn, nil)
	if err != nil {
		return nil, err
	}
	answer, err := pb.NewKVClient(conn).Range(as, request)
	if s.login == nil || !isOutOfDate(err) {
		return answer, err
	}
	if as, _, err = s.login.with(ctx, conn, &token); err != nil {
		return nil, err
	}
	return pb.NewKVClient(conn).Range(as, request)
}

// isAway reports whether another member may answer.
func isAway(err error) bool {
	code := status.Code(err)
	return code == codes.Unavailable || code == codes.DeadlineExceeded
}

// explain says who, and what to do.
func explain(endpoint string, timeout time.Duration, err error) error {
	remedy := ""
	switch code := status.Code(err); {
	case is(err, rpctypes.ErrGRPCAuthFailed):
		remedy = ": give the name and the password of a user of etcd"
	case code == codes.OutOfRange && strings.Contains(err.Error(), "compacted"):
		return fmt.Errorf("etcd at %s: %w: read faster, read one resource at a time, or read a snapshot: %w", endpoint, ErrCompacted, err)
	case code == codes.PermissionDenied, code == codes.Unauthenticated, strings.Contains(err.Error(), "user name is empty"):
		remedy = ": give the certificate and key of a client that may read, such as the apiserver's own, or a user of etcd that may"
	case code == codes.Unavailable:
		remedy = ": check the endpoint, whether it is http or https, and the CA, certificate and key"
	case code == codes.DeadlineExceeded:
		remedy = fmt.Sprintf(": no answer within %s: look at etcd's health, or allow it more time", timeout)
	}
	return fmt.Errorf("etcd at %s: %w%s", endpoint, err, remedy)
}
