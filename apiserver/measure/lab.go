package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/kube-atrest/atrest/apiserver/etcd"
	"github.com/kube-atrest/atrest/apiserver/internal/local"
	"github.com/kube-atrest/atrest/kmsplugin/keyfile"
)

const (
	// startTimeout bounds the start of a program.
	startTimeout = 2 * time.Minute
	// slowAnswer is how long the plugin of a starting server takes to unwrap a key.
	slowAnswer = 20 * time.Millisecond
	// providerName is the name of the KMS provider in the EncryptionConfigurations.
	providerName = "measured"
)

// lab is the place where servers are measured: one etcd, the plugins, and a folder. Not
// for concurrent use.
type lab struct {
	folder string
	etcd   *process
	// stored is a client of the etcd.
	stored *clientv3.Client
	// quick answers at once, slow takes slowAnswer to unwrap. Both have the same keys.
	quick, slow *plugin
}

// newLab starts the etcd and the plugins. The caller closes the lab.
func newLab(ctx context.Context) (_ *lab, err error) {
	folder, err := os.MkdirTemp("", "atrest-") // a short name: a socket's has to fit into about 100 bytes
	if err != nil {
		return nil, err
	}
	l := &lab{folder: folder}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.close())
		}
	}()
	if err := l.startPlugins(ctx); err != nil {
		return nil, fmt.Errorf("start the key-file plugin: %w", err)
	}
	return l, l.startEtcd(ctx)
}

func (l *lab) startPlugins(ctx context.Context) (err error) {
	file := keyfile.At(l.file("keys"))
	if _, err := file.Create(ctx); err != nil {
		return err
	}
	keys, err := file.Open()
	if err != nil {
		return err
	}
	if l.quick, err = servePlugin(ctx, "unix://"+l.file("quick.sock"), counted{keys, 0, new(atomic.Int64)}); err != nil {
		return err
	}
	l.slow, err = servePlugin(ctx, "unix://"+l.file("slow.sock"), counted{keys, slowAnswer, new(atomic.Int64)})
	return err
}

func (l *lab) startEtcd(ctx context.Context) (err error) {
	data := l.file("etcd")
	// It stops when the lab is closed, after the servers that need it.
	if l.etcd, err = startProcess(context.WithoutCancel(ctx), etcdProgram, l.file("etcd.log"), data, l.folder); err != nil {
		return err
	}
	l.stored, err = clientv3.New(clientv3.Config{
		Context: context.WithoutCancel(ctx), Endpoints: []string{l.etcdEndpoint()}, DialTimeout: startTimeout, Logger: zap.NewNop(),
	})
	if err != nil {
		return err
	}
	ctx, cancel := l.etcd.while(ctx)
	defer cancel()
	ctx, stop := context.WithTimeout(ctx, startTimeout)
	defer stop()
	for {
		_, err := l.stored.Get(ctx, "/") // which waits and tries for a while itself
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("wait for etcd: %w", context.Cause(ctx))
		}
	}
}

func (l *lab) etcdEndpoint() string { return etcd.Options{SocketDir: l.folder}.Endpoint() }

func (l *lab) file(name string) string { return filepath.Join(l.folder, name) }

// compact has etcd forget what was overwritten, so that nobody pays for the writes of
// others.
func (l *lab) compact(ctx context.Context) error {
	now, err := l.stored.Get(ctx, "/", clientv3.WithCountOnly())
	if err == nil {
		_, err = l.stored.Compact(ctx, now.Header.Revision, clientv3.WithCompactPhysical())
	}
	if err != nil {
		return fmt.Errorf("compact etcd: %w", err)
	}
	return nil
}

// place prepares a server of this side. Servers of one name and side find the same
// objects in etcd.
func (l *lab) place(s side, name string, p *plugin, flags ...string) (*place, error) {
	folder := l.file(name + "-" + s.name)
	if err := os.Mkdir(folder, 0o700); err != nil {
		return nil, err
	}
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	cluster, err := local.Prepare(folder, address)
	if err != nil {
		return nil, err
	}
	all, err := cluster.Flags(l.etcdEndpoint())
	if err != nil {
		return nil, err
	}
	prefix := "/" + name + "/" + s.name
	all = append(append(all, "--etcd-prefix="+prefix), flags...)
	if s.encrypts {
		config := filepath.Join(folder, "encryption.yaml")
		if err := os.WriteFile(config, encryption(p), 0o600); err != nil {
			return nil, err
		}
		all = append(all, "--encryption-provider-config="+config)
	}
	return &place{side: s, prefix: prefix, config: cluster.Config(), log: filepath.Join(folder, "log"), flags: all}, nil
}

// encryption is the EncryptionConfiguration of both sides that encrypt. The timeout is a
// patient one: on a busy machine a plugin that answers in 20 ms may seem to need seconds.
func encryption(p *plugin) []byte {
	return fmt.Appendf(nil, `apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets]
  providers:
  - kms: {apiVersion: v2, name: %s, endpoint: %q, timeout: 10s}
  - identity: {}
`, providerName, p.endpoint)
}

// freeAddress was free a moment ago: kube-apiserver does not take port 0.
func freeAddress() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return listener.Addr().String(), listener.Close()
}

// close ends everything and removes the folder.
func (l *lab) close() error {
	if l.stored != nil {
		_ = l.stored.Close() // its only error is the cancelled context that closing it causes
	}
	if l.etcd != nil {
		l.etcd.stop()
	}
	for _, p := range []*plugin{l.quick, l.slow} {
		if p != nil {
			p.stop()
		}
	}
	return os.RemoveAll(l.folder)
}
