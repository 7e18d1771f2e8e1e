package etcd_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kube-atrest/atrest/internal/etcdtest"
	"github.com/kube-atrest/atrest/operate/audit/etcd"
)

func TestTLS(t *testing.T) {
	a, other := etcdtest.NewAuthority(t), etcdtest.NewAuthority(t)
	server := a.Start()
	server.Store("/a", []byte("value"))
	cert, key, _ := a.Pair("client")
	strangeCert, strangeKey, _ := other.Pair("client")
	host := strings.TrimPrefix(server.Endpoint(), "https://")
	for name, c := range map[string]struct {
		options etcd.Options
		fails   string
	}{
		"as it should be":                 {etcd.Options{Endpoints: []string{server.Endpoint()}, CAFile: a.File, CertFile: cert, KeyFile: key}, ""},
		"without a scheme":                {etcd.Options{Endpoints: []string{host}, CAFile: a.File, CertFile: cert, KeyFile: key}, ""},
		"without a client certificate":    {etcd.Options{Endpoints: []string{server.Endpoint()}, CAFile: a.File}, "certificate and key"},
		"with a strange certificate":      {etcd.Options{Endpoints: []string{server.Endpoint()}, CAFile: a.File, CertFile: strangeCert, KeyFile: strangeKey}, "certificate and key"},
		"a server of another CA":          {etcd.Options{Endpoints: []string{server.Endpoint()}, CAFile: other.File, CertFile: cert, KeyFile: key}, "x509: "},
		"a server of no CA of the system": {etcd.Options{Endpoints: []string{server.Endpoint()}, CertFile: cert, KeyFile: key}, "x509: "},
		"without TLS":                     {etcd.Options{Endpoints: []string{"http://" + host}}, "http or https"},
	} {
		t.Run(name, func(t *testing.T) {
			clock := clocktesting.NewFakeClock(time.Unix(0, 0))
			c.options.Clock = clock
			s := dial(t, c.options)
			done := make(chan error)
			go func() {
				_, err := s.Find(t.Context(), "/a")
				done <- err
			}()
			if c.fails == "" {
				require.NoError(t, <-done)
				return
			}
			for range 2 {
				require.Eventually(t, clock.HasWaiters, 20*time.Second, time.Millisecond)
				clock.Step(time.Second)
			}
			err := <-done
			require.ErrorContains(t, err, c.fails)
			require.ErrorContains(t, err, "check the endpoint")
		})
	}
}

func TestDialRefusesWhatCannotBe(t *testing.T) {
	a := etcdtest.NewAuthority(t)
	cert, key, _ := a.Pair("client")
	empty := filepath.Join(t.TempDir(), "empty.pem")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	for name, c := range map[string]struct {
		options etcd.Options
		want    string
	}{
		"no port":             {etcd.Options{Endpoints: []string{"https://localhost"}}, "write https://host:2379"},
		"no host":             {etcd.Options{Endpoints: []string{"https://:2379"}}, "write https://host:2379"},
		"no host nor scheme":  {etcd.Options{Endpoints: []string{":2379"}}, "write https://host:2379"},
		"a path":              {etcd.Options{Endpoints: []string{"https://localhost:2379/v3"}}, "write https://host:2379"},
		"a user":              {etcd.Options{Endpoints: []string{"https://me@localhost:2379"}}, "write https://host:2379"},
		"another scheme":      {etcd.Options{Endpoints: []string{"ftp://localhost:2379"}}, "write https://host:2379"},
		"no socket":           {etcd.Options{Endpoints: []string{"unix://"}}, "write https://host:2379"},
		"an empty one":        {etcd.Options{Endpoints: []string{"127.0.0.1:2379", ""}}, "write https://host:2379"},
		"no CA file":          {etcd.Options{CAFile: filepath.Join(t.TempDir(), "gone")}, "gone"},
		"an empty CA file":    {etcd.Options{CAFile: empty}, "no certificate in PEM"},
		"a key alone":         {etcd.Options{KeyFile: key}, "or neither"},
		"a certificate alone": {etcd.Options{CertFile: cert}, "or neither"},
		"key for certificate": {etcd.Options{CertFile: key, KeyFile: cert}, "client certificate for etcd"},
	} {
		_, err := etcd.Dial(c.options)
		require.ErrorContains(t, err, c.want, name)
	}
}
