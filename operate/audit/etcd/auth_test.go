package etcd_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/internal/etcdtest"
	"github.com/kube-atrest/atrest/operate/audit/etcd"
)

func password(p string) func() (string, error) { return func() (string, error) { return p, nil } }

func TestAUserOfEtcd(t *testing.T) {
	server := stored(t, 500, 10)
	server.OnlyFor("auditor", "s3cret")
	s := dial(t, etcd.Options{Endpoints: []string{server.Endpoint()}, User: "auditor", Password: password("s3cret")})
	keys, _, err := read(t, s, "/registry/")
	require.NoError(t, err)
	require.Len(t, keys, 500)
	require.Equal(t, 1, server.Authenticated(), "of many calls")
}

// etcd forgets a token after five minutes, and when a member starts anew.
func TestATokenIsRenewedWhenItIsRefused(t *testing.T) {
	server := stored(t, 3, 10)
	server.OnlyFor("auditor", "s3cret")
	now := "s3cret"
	s := dial(t, etcd.Options{Endpoints: []string{server.Endpoint()}, User: "auditor", Password: func() (string, error) { return now, nil }})
	find := func() error {
		_, err := s.Find(t.Context(), "/registry/secrets/000001")
		return err
	}
	require.NoError(t, find())
	server.OnlyFor("auditor", "s3cret")
	require.NoError(t, find())
	require.NoError(t, find())
	require.Equal(t, 2, server.Authenticated())
	server.OnlyFor("auditor", "another")
	require.ErrorContains(t, find(), "give the name and the password of a user of etcd")
	now = "another" // it is asked for again
	require.NoError(t, find())
	server.OnlyFor("", "")
	require.NoError(t, find())
}

func TestManyCallsRenewATokenOnce(t *testing.T) {
	server := stored(t, 3, 10)
	server.OnlyFor("auditor", "s3cret")
	s := dial(t, etcd.Options{Endpoints: []string{server.Endpoint()}, User: "auditor", Password: password("s3cret")})
	var calls sync.WaitGroup
	for range 50 {
		calls.Go(func() {
			_, err := s.Find(t.Context(), "/registry/secrets/000001")
			require.NoError(t, err)
		})
	}
	calls.Wait()
	require.Equal(t, 1, server.Authenticated())
}

// etcdctl goes on then, too; and when it is turned on meanwhile the user is known.
func TestAnEtcdWithoutAuthenticationTakesEverybody(t *testing.T) {
	server := stored(t, 3, 10)
	s := dial(t, etcd.Options{Endpoints: []string{server.Endpoint()}, User: "auditor", Password: password("s3cret")})
	for range 2 {
		_, err := s.Find(t.Context(), "/registry/secrets/000001")
		require.NoError(t, err)
	}
	require.Equal(t, 1, server.Authenticated())
	server.OnlyFor("auditor", "s3cret")
	_, err := s.Find(t.Context(), "/registry/secrets/000001")
	require.NoError(t, err)
}

func TestWhoIsNotAUserIsToldSo(t *testing.T) {
	server := etcdtest.Start(t)
	server.OnlyFor("auditor", "s3cret")
	for want, o := range map[string]etcd.Options{
		"or a user of etcd that may":                       {},
		"give the name and the password of a user of etcd": {User: "auditor", Password: password("wr0ng")},
		"no such file": {User: "auditor", Password: func() (string, error) { return "", errors.New("no such file") }},
	} {
		o.Endpoints = []string{server.Endpoint()}
		_, err := dial(t, o).Find(t.Context(), "/a")
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, server.Endpoint())
		require.NotContains(t, err.Error(), "wr0ng")
	}
	_, err := etcd.Dial(etcd.Options{User: "auditor"})
	require.ErrorContains(t, err, `no password for the user "auditor"`)
	_, err = etcd.Dial(etcd.Options{Password: password("s3cret")})
	require.ErrorContains(t, err, "no user to it")
}

// Options are printed where somebody looks for a fault.
func TestAPasswordIsNotPrinted(t *testing.T) {
	o := etcd.Options{User: "auditor", Password: password("s3cret")}
	require.NotContains(t, fmt.Sprintf("%v %+v %#v", o, o, o), "s3cret")
}
