// Package etcd runs one etcd member inside this process and looks at the bytes it holds.
//
// A folder comes in, a unix socket that kube-apiserver can use comes out. It is for
// trying things out and for tests: one member, no TLS (the socket's folder is the fence),
// nothing to install. It never decodes a value.
package etcd

import (
	"context"
	"crypto/fips140"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
)

// startTimeout bounds how long a member may take to elect itself; a healthy one needs
// well under a second.
const startTimeout = 30 * time.Second

// quota is the most that etcd recommends; its default of 2 GiB does not take a million
// objects of 1 KiB.
const quota = 8 << 30

// ErrNotFound is returned by [Server.Get] for a key that etcd does not hold.
var ErrNotFound = errors.New("no such key")

// Options say where a member keeps its state.
type Options struct {
	// DataDir holds the member's state. A folder that already holds some is taken up
	// again.
	DataDir string
	// SocketDir holds the member's sockets and must exist, be private and have a short
	// name: the kernel allows a socket's path some hundred bytes.
	SocketDir string
	// LogFile takes etcd's log. Empty discards it.
	LogFile string
	// Volatile leaves out fsync. It is for tests, where nothing needs to survive a crash
	// of the machine.
	Volatile bool
}

// Endpoint is what belongs into kube-apiserver's --etcd-servers once a member with these
// options runs.
func (o Options) Endpoint() string { return o.socket("etcd.sock").String() }

func (o Options) socket(name string) *url.URL {
	return &url.URL{Scheme: "unix", Path: filepath.Join(o.SocketDir, name)}
}

// Server is a running member with a client to it. Its methods may be called concurrently.
type Server struct {
	member *embed.Etcd
	client *clientv3.Client
	url    string
}

// Start runs a member and returns once it serves, or with the reason why it does not.
func Start(ctx context.Context, o Options) (*Server, error) {
	cfg, err := o.config()
	if err != nil {
		return nil, err
	}
	// etcd names members by SHA-1, which GODEBUG=fips140=only refuses. It is no part of
	// what runs in this process anywhere else.
	var member *embed.Etcd
	fips140.WithoutEnforcement(func() { member, err = embed.StartEtcd(cfg) })
	if err != nil {
		return nil, fmt.Errorf("start etcd in %q: %w", o.DataDir, err)
	}
	if err := ready(ctx, member); err != nil {
		member.Close()
		return nil, fmt.Errorf("start etcd in %q: %w", o.DataDir, err)
	}
	s := &Server{member: member, url: o.Endpoint()}
	s.client, err = clientv3.New(clientv3.Config{
		Endpoints:   []string{s.url},
		DialTimeout: startTimeout,
		Logger:      zap.NewNop(),
	})
	if err != nil {
		member.Close()
		return nil, fmt.Errorf("connect to etcd at %s: %w", s.url, err)
	}
	return s, nil
}

// Endpoint is what belongs into kube-apiserver's --etcd-servers.
func (s *Server) Endpoint() string { return s.url }

// Client is a client of the member. [Server.Close] closes it.
func (s *Server) Client() *clientv3.Client { return s.client }

// Get returns the bytes stored under key exactly as they lie in etcd, or [ErrNotFound].
func (s *Server) Get(ctx context.Context, key string) ([]byte, error) {
	r, err := s.client.Get(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("read %s from etcd: %w", key, err)
	}
	if len(r.Kvs) == 0 {
		return nil, fmt.Errorf("read %s from etcd: %w", key, ErrNotFound)
	}
	return r.Kvs[0].Value, nil
}

// Close ends the client and the member and waits until both are gone. The data stays.
func (s *Server) Close() {
	// The client's only error is the cancelled context that closing it causes.
	_ = s.client.Close()
	s.member.Close()
}

func (o Options) config() (*embed.Config, error) {
	if err := os.MkdirAll(o.DataDir, 0o700); err != nil {
		return nil, fmt.Errorf("make etcd's data folder: %w", err)
	}
	log, err := logger(o.LogFile)
	if err != nil {
		return nil, fmt.Errorf("open etcd's log: %w", err)
	}
	// etcd insists on advertising a host and a port. A lone member has nobody who would
	// ever dial them.
	advertised := []url.URL{{Scheme: "http", Host: "127.0.0.1:2380"}}

	cfg := embed.NewConfig()
	cfg.Dir = o.DataDir
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{*o.socket("etcd.sock")}, advertised
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{*o.socket("etcd-peer.sock")}, advertised
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	// The cluster's id is made of this and of the addresses, which are all the same here.
	cfg.InitialClusterToken = o.DataDir
	cfg.UnsafeNoFsync = o.Volatile
	cfg.QuotaBackendBytes = quota
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(log)
	return cfg, nil
}

func logger(file string) (*zap.Logger, error) {
	if file == "" {
		return zap.NewNop(), nil
	}
	cfg := zap.NewProductionConfig()
	cfg.OutputPaths, cfg.ErrorOutputPaths = []string{file}, []string{file}
	return cfg.Build()
}

func ready(ctx context.Context, member *embed.Etcd) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	select {
	case <-member.Server.ReadyNotify():
		return nil
	case err := <-member.Err():
		return err
	case <-ctx.Done():
		return fmt.Errorf("not ready: %w", context.Cause(ctx))
	}
}
