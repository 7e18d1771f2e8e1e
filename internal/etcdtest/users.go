package etcdtest

import (
	"context"
	"fmt"
	"strings"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// users is the part of etcd's authentication that a reader needs.
type users struct {
	pb.UnimplementedAuthServer

	mu             sync.Mutex
	name, password string // none if authentication is off
	token          string
	asked          int
}

// OnlyFor has who calls be a user from now on. Tokens that were given are forgotten. An
// empty name lets everybody in again.
func (s *Server) OnlyFor(name, password string) {
	u := &s.users
	u.mu.Lock()
	defer u.mu.Unlock()
	u.name, u.password, u.token = name, password, ""
}

// Authenticated is how often somebody asked for a token.
func (s *Server) Authenticated() int {
	s.users.mu.Lock()
	defer s.users.mu.Unlock()
	return s.users.asked
}

// Authenticate gives a token.
func (u *users) Authenticate(_ context.Context, r *pb.AuthenticateRequest) (*pb.AuthenticateResponse, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.asked++
	switch {
	case u.name == "":
		return nil, rpctypes.ErrGRPCAuthNotEnabled
	case r.Name != u.name || r.Password != u.password:
		return nil, rpctypes.ErrGRPCAuthFailed
	}
	u.token = fmt.Sprintf("token.%d", u.asked)
	return &pb.AuthenticateResponse{Token: u.token}, nil
}

// asUser refuses who has no token, or another one.
func (s *Server) asUser(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	u := &s.users
	u.mu.Lock()
	name, token := u.name, u.token
	u.mu.Unlock()
	given := metadata.ValueFromIncomingContext(ctx, rpctypes.TokenFieldNameGRPC)
	switch {
	case name == "" || strings.HasPrefix(info.FullMethod, "/etcdserverpb.Auth/"):
	case len(given) == 0:
		return nil, rpctypes.ErrGRPCUserEmpty
	case given[0] != token || token == "":
		return nil, rpctypes.ErrGRPCInvalidAuthToken
	}
	return handler(ctx, request)
}
