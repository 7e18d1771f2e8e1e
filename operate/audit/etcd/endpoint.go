package etcd

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// endpoint is where a member serves, and whether by TLS.
type endpoint struct {
	network, address, authority string
	tls                         bool
}

// parseEndpoint reads an endpoint as etcdctl has it: http(s)://host:port,
// unix(s)://path, or host:port, which is by TLS if any of its files is given.
func parseEndpoint(text string, haveTLS bool) (endpoint, error) {
	scheme, rest, hasScheme := strings.Cut(text, "://")
	if !hasScheme {
		scheme, rest = "", text
	}
	switch scheme {
	case "unix", "unixs":
		if rest == "" {
			break
		}
		return endpoint{network: "unix", address: rest, authority: "localhost", tls: scheme == "unixs"}, nil
	case "http", "https", "":
		u, err := url.Parse("//" + rest)
		if err != nil || u.Hostname() == "" || u.Port() == "" || strings.Trim(u.Path, "/") != "" || u.User != nil {
			break
		}
		return endpoint{network: "tcp", address: u.Host, authority: u.Host, tls: scheme == "https" || scheme == "" && haveTLS}, nil
	}
	return endpoint{}, fmt.Errorf("etcd endpoint %q: write https://host:2379, or unix:///path", text)
}

// dial makes the connection, which the first call then opens.
func (e endpoint) dial(config *tls.Config) (*grpc.ClientConn, error) {
	secure := insecure.NewCredentials()
	if e.tls {
		secure = credentials.NewTLS(config.Clone())
	}
	return grpc.NewClient("passthrough:///"+e.address,
		grpc.WithTransportCredentials(secure),
		grpc.WithAuthority(e.authority),
		grpc.WithDisableServiceConfig(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, e.network, address)
		}),
	)
}

// tls is the configuration that the files make; without a CA the system's count.
func (o *Options) tls() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if o.CAFile != "" {
		bundle, err := os.ReadFile(o.CAFile)
		if err != nil {
			return nil, fmt.Errorf("CA of etcd: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(bundle) {
			return nil, fmt.Errorf("CA of etcd: %s holds no certificate in PEM", o.CAFile)
		}
	}
	if (o.CertFile == "") != (o.KeyFile == "") {
		return nil, fmt.Errorf("client certificate for etcd: give the certificate and its key, or neither")
	}
	if o.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(o.CertFile, o.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("client certificate for etcd, %s with the key %s: %w", o.CertFile, o.KeyFile, err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}
