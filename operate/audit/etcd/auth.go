package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// login is a user of etcd, and the token that its members know it by. nil is nobody.
// It is safe for concurrent use.
type login struct {
	user     string
	password func() (string, error)

	mu    sync.Mutex
	known bool // whether token is what etcd gave
	token string
}

// newLogin is nil if there is no user.
func newLogin(o Options) (*login, error) {
	switch {
	case o.User == "" && o.Password != nil:
		return nil, errors.New("etcd: there is a password, and no user to it: name the user")
	case o.User == "":
		return nil, nil
	case o.Password == nil:
		return nil, fmt.Errorf("etcd: there is no password for the user %q: give one", o.User)
	}
	return &login{user: o.User, password: o.Password}, nil
}

// with is a context for calls as the user. A stale token is what was given before and
// is refused now, so that of several calls one asks for the next.
func (l *login) with(ctx context.Context, conn *grpc.ClientConn, stale *string) (_ context.Context, token string, err error) {
	if l == nil {
		return ctx, "", nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.known || stale != nil && *stale == l.token {
		if l.token, err = l.authenticate(ctx, conn); err != nil {
			return ctx, "", err
		}
		l.known = true
	}
	if l.token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, rpctypes.TokenFieldNameGRPC, l.token)
	}
	return ctx, l.token, nil
}

// authenticate asks for a token. An etcd without authentication gives none, and needs
// none: etcdctl goes on then, too.
func (l *login) authenticate(ctx context.Context, conn *grpc.ClientConn) (token string, err error) {
	password, err := l.password()
	if err != nil {
		return "", err
	}
	answer, err := pb.NewAuthClient(conn).Authenticate(ctx, &pb.AuthenticateRequest{Name: l.user, Password: password})
	switch {
	case is(err, rpctypes.ErrGRPCAuthNotEnabled):
		return "", nil
	case err != nil:
		return "", err
	}
	return answer.Token, nil
}

// isOutOfDate reports whether an answer asks for another token: etcd forgets them after
// some minutes, when a member starts anew, and when users change.
func isOutOfDate(err error) bool {
	return is(err, rpctypes.ErrGRPCInvalidAuthToken) || is(err, rpctypes.ErrGRPCAuthOldRevision) || is(err, rpctypes.ErrGRPCUserEmpty)
}

// is reports whether an answer of etcd is one of its errors, which are told apart by
// their texts.
func is(err, known error) bool {
	return err != nil && strings.Contains(err.Error(), rpctypes.ErrorDesc(known))
}
