package etcd_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kube-atrest/atrest/apiserver/etcd"
	audited "github.com/kube-atrest/atrest/operate/audit/etcd"
)

// The operator's own client of etcd, against the real one with authentication on: as a
// user who may read all keys and write none.
func TestAReaderWithAPassword(t *testing.T) {
	s := start(t, options(t))
	t.Cleanup(s.Close)
	_, err := s.Client().Put(t.Context(), "/registry/secrets/default/a", "value")
	require.NoError(t, err)
	root := withUsers(t, s)

	reader := dialed(t, audited.Options{Endpoints: []string{s.Endpoint()}, User: "auditor", Password: password("s3cret")})
	read := func() error {
		_, err := reader.Find(t.Context(), "/registry/secrets/default/a")
		return err
	}
	require.NoError(t, read())
	_, err = reader.Read(t.Context(), "")
	require.NoError(t, err, "the role is for all keys")

	// Everything that makes a token worth nothing.
	_, err = root.UserChangePassword(t.Context(), "auditor", "s3cret")
	require.NoError(t, err)
	require.NoError(t, read())
	_, err = root.AuthDisable(t.Context())
	require.NoError(t, err)
	require.NoError(t, read())
	_, err = s.Client().AuthEnable(t.Context())
	require.NoError(t, err)
	require.NoError(t, read())

	for want, o := range map[string]audited.Options{
		"user name is empty":    {},
		"authentication failed": {User: "auditor", Password: password("another")},
		"permission denied":     {User: "stranger", Password: password("s3cret")},
	} {
		o.Endpoints = []string{s.Endpoint()}
		_, err := dialed(t, o).Find(t.Context(), "/registry/secrets/default/a")
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "a user of etcd")
	}
}

// A user that is given before authentication is on does no harm.
func TestAUserWhereThereIsNoAuthentication(t *testing.T) {
	s := start(t, options(t))
	t.Cleanup(s.Close)
	_, err := s.Client().Put(t.Context(), "/a", "value")
	require.NoError(t, err)
	reader := dialed(t, audited.Options{Endpoints: []string{s.Endpoint()}, User: "auditor", Password: password("s3cret")})
	_, err = reader.Find(t.Context(), "/a")
	require.NoError(t, err)
}

// withUsers turns authentication on, and is a client of root.
func withUsers(t *testing.T, s *etcd.Server) *clientv3.Client {
	t.Helper()
	c, ctx := s.Client(), t.Context()
	for _, err := range []error{
		second(c.RoleAdd(ctx, "root")), second(c.UserAdd(ctx, "root", "r00t")), second(c.UserGrantRole(ctx, "root", "root")),
		second(c.RoleAdd(ctx, "reader")), second(c.RoleGrantPermission(ctx, "reader", "\x00", "\x00", clientv3.PermissionType(clientv3.PermRead))),
		second(c.UserAdd(ctx, "auditor", "s3cret")), second(c.UserGrantRole(ctx, "auditor", "reader")),
		second(c.UserAdd(ctx, "stranger", "s3cret")), second(c.AuthEnable(ctx)),
	} {
		require.NoError(t, err)
	}
	root, err := clientv3.New(clientv3.Config{Endpoints: []string{s.Endpoint()}, Username: "root", Password: "r00t"})
	require.NoError(t, err)
	t.Cleanup(func() { _ = root.Close() })
	return root
}

func second[T any](_ T, err error) error { return err }

func password(p string) func() (string, error) { return func() (string, error) { return p, nil } }

func dialed(t *testing.T, o audited.Options) *audited.Store {
	t.Helper()
	s, err := audited.Dial(o)
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}
