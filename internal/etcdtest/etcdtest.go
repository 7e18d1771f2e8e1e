// Package etcdtest serves the reading half of etcd's API v3 from memory, with
// revisions and compaction, over real gRPC on a unix socket or TLS: all that
// package audit/etcd asks of an etcd, with faults that a real one has seldom.
// Of the writing half it has what the storage of an apiserver sends. Its watches
// tell of nothing, and it has no leases.
//
// It is for tests alone. apiserver/etcd runs the real one.
package etcdtest

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"hash/fnv"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/stats"
)

// Server is safe for concurrent use.
type Server struct {
	pb.UnimplementedKVServer
	endpoint    string
	connections connections

	mu        sync.Mutex
	revision  int64
	compacted int64
	keys      []string // sorted
	history   map[string][]version
	before    func(*pb.RangeRequest) error
	after     func(*pb.RangeResponse)
	requests  []*pb.RangeRequest
	served    int64
	users     users
}

type version struct {
	revision int64
	value    []byte
	deleted  bool
}

// Start serves on a unix socket until the test ends.
func Start(t testing.TB) *Server {
	folder, err := os.MkdirTemp("", "etcd") // t.TempDir may be too long for a socket
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(folder)) })
	path := filepath.Join(folder, "etcd.sock")
	listener, err := net.Listen("unix", path)
	require.NoError(t, err)
	return serve(t, listener, "unix://"+path)
}

// StartTLS serves on a port of the loopback interface until the test ends.
func StartTLS(t testing.TB, config *tls.Config) *Server {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return serve(t, listener, "https://"+listener.Addr().String(), grpc.Creds(credentials.NewTLS(config)))
}

func serve(t testing.TB, listener net.Listener, endpoint string, options ...grpc.ServerOption) *Server {
	s := &Server{endpoint: endpoint, revision: 1, history: map[string][]version{}, before: func(*pb.RangeRequest) error { return nil }, after: func(*pb.RangeResponse) {}}
	server, served := grpc.NewServer(append(options, grpc.StatsHandler(&s.connections), grpc.UnaryInterceptor(s.asUser))...), make(chan struct{})
	pb.RegisterAuthServer(server, &s.users)
	pb.RegisterKVServer(server, s)
	pb.RegisterWatchServer(server, &watches{server: s})
	go func() {
		defer close(served)
		_ = server.Serve(listener)
	}()
	t.Cleanup(func() {
		server.Stop()
		<-served
	})
	return s
}

// Connections is how many clients are connected now.
func (s *Server) Connections() int { return int(s.connections.open.Load()) }

// connections counts them, as gRPC tells of them.
type connections struct{ open atomic.Int64 }

func (c *connections) HandleConn(_ context.Context, event stats.ConnStats) {
	switch event.(type) {
	case *stats.ConnBegin:
		c.open.Add(1)
	case *stats.ConnEnd:
		c.open.Add(-1)
	}
}

func (*connections) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (*connections) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (*connections) HandleRPC(context.Context, stats.RPCStats)                         {}

// Endpoint is where it serves.
func (s *Server) Endpoint() string { return s.endpoint }

// Cluster is the id of its cluster, another one for each server.
func (s *Server) Cluster() uint64 {
	id := fnv.New64a()
	_, _ = id.Write([]byte(s.endpoint)) // it has no error
	return id.Sum64()
}

// Store sets a key.
func (s *Server) Store(key string, value []byte) { s.change(key, version{value: value}) }

// Value is what a key is set to, if it is.
func (s *Server) Value(key string) ([]byte, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, ok := s.at(key, s.revision)
	return bytes.Clone(v.value), ok
}

// Delete removes a key.
func (s *Server) Delete(key string) { s.change(key, version{deleted: true}) }

func (s *Server) change(key string, v version) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changeTo(key, v)
}

// changeTo is called with mu held.
func (s *Server) changeTo(key string, v version) {
	s.revision++
	v.revision = s.revision
	if i, found := slices.BinarySearch(s.keys, key); !found {
		s.keys = slices.Insert(s.keys, i, key)
	}
	s.history[key] = append(s.history[key], v)
}

// DropHistory compacts: it refuses reads of revisions before the present one.
func (s *Server) DropHistory() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.compacted = s.revision
}

// Before is called with each request from now on; its error is the answer.
func (s *Server) Before(f func(*pb.RangeRequest) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before = f
}

// After is called with each answer from now on, to spoil it.
func (s *Server) After(f func(*pb.RangeResponse)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.after = f
}

// Requests are those so far.
func (s *Server) Requests() []*pb.RangeRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// Served is how many bytes the answers have had so far, without their headers.
func (s *Server) Served() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.served
}

// Range answers as etcd does.
func (s *Server) Range(_ context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	s.mu.Lock()
	s.requests = append(s.requests, r)
	before := s.before
	s.mu.Unlock()
	if err := before(r); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	at := cmp.Or(r.Revision, s.revision)
	switch {
	case at < s.compacted:
		return nil, rpctypes.ErrGRPCCompacted
	case at > s.revision:
		return nil, rpctypes.ErrGRPCFutureRev
	}
	answer := &pb.RangeResponse{Header: &pb.ResponseHeader{ClusterId: s.Cluster(), Revision: s.revision}}
	for _, key := range s.within(r) {
		v, ok := s.at(key, at)
		if !ok {
			continue
		}
		answer.Count++
		switch {
		case r.CountOnly:
		case r.Limit > 0 && int64(len(answer.Kvs)) == r.Limit:
			answer.More = true
		default:
			answer.Kvs = append(answer.Kvs, &mvccpb.KeyValue{Key: []byte(key), Value: v.value, ModRevision: v.revision})
		}
	}
	s.after(answer)
	s.served += int64(proto.Size(protoadapt.MessageV2Of(&pb.RangeResponse{Kvs: answer.Kvs, More: answer.More, Count: answer.Count})))
	return answer, nil
}

// within are the keys that a request is for.
func (s *Server) within(r *pb.RangeRequest) []string {
	first, found := slices.BinarySearch(s.keys, string(r.Key))
	switch end := string(r.RangeEnd); {
	case end == "" && found:
		return s.keys[first : first+1]
	case end == "":
		return nil
	case end == "\x00":
		return s.keys[first:]
	default:
		last, _ := slices.BinarySearch(s.keys, end)
		return s.keys[first:max(first, last)]
	}
}

// at is what a key was as of a revision.
func (s *Server) at(key string, revision int64) (version, bool) {
	versions := s.history[key]
	for i := len(versions) - 1; i >= 0; i-- {
		if versions[i].revision <= revision {
			return versions[i], !versions[i].deleted
		}
	}
	return version{}, false
}
