package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/kube-atrest/atrest/apiserver/etcd"
	"github.com/kube-atrest/atrest/apiserver/internal/local"
	"github.com/kube-atrest/atrest/apiserver/server"
)

// statusPoll is how often the apiserver asks the plugin here. It is a minute by default,
// and watching a minute pass teaches nothing.
const statusPoll = 2 * time.Second

// stage is everything that runs: etcd, the plugin, the apiserver, and clients of each.
// One goroutine builds it and takes it down.
type stage struct {
	folder folder
	port   uint16
	// failed is called if the apiserver ends by itself, at any time.
	failed context.CancelCauseFunc

	plugin  *local.Plugin
	etcd    *etcd.Server
	cluster *local.Cluster
	kube    kubernetes.Interface
	probe   *local.Probe
	closers []func() error
}

// raise starts everything and returns once the apiserver is ready. What it has started is
// taken down by [stage.strike], also after an error.
func (s *stage) raise(ctx context.Context) error {
	unlock, err := s.folder.lock()
	if err != nil {
		return err
	}
	s.closers = append(s.closers, unlock)
	for _, start := range []func(context.Context) error{s.startPlugin, s.startEtcd, s.startAPIServer, s.ready} {
		if err := start(ctx); err != nil {
			return err
		}
	}
	return nil
}

// strike takes down what runs, last started first, and waits for each to be gone.
func (s *stage) strike() error {
	var errs []error
	for i := len(s.closers) - 1; i >= 0; i-- {
		errs = append(errs, s.closers[i]())
	}
	s.closers = nil
	return errors.Join(errs...)
}

func (s *stage) startPlugin(ctx context.Context) (err error) {
	s.plugin, err = local.NewPlugin(ctx, s.folder.keys(), filepath.Join(s.folder.scratch, "kms.sock"))
	if err != nil {
		return err
	}
	s.closers = append(s.closers, s.plugin.Stop)
	return s.plugin.Start(ctx)
}

func (s *stage) startEtcd(ctx context.Context) (err error) {
	s.etcd, err = etcd.Start(ctx, etcd.Options{
		DataDir:   s.folder.etcd(),
		SocketDir: s.folder.scratch,
		LogFile:   s.folder.log("etcd"),
	})
	if err != nil {
		return err
	}
	s.closers = append(s.closers, func() error { s.etcd.Close(); return nil })
	return nil
}

func (s *stage) startAPIServer(ctx context.Context) error {
	// Listening here rather than in the server lets the kernel choose the port, and says
	// at once that a chosen one is taken.
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(s.port))))
	if err != nil {
		return fmt.Errorf("listen for the apiserver: %w; choose another --port, or none", err)
	}
	s.closers = append(s.closers, func() error {
		listener.Close() // by now the server has, unless it did not come that far
		return nil
	})
	o, err := s.serverOptions(listener)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := server.Run(ctx, o); err != nil {
			s.failed(fmt.Errorf("kube-apiserver: %w", err))
		}
	}()
	s.closers = append(s.closers, func() error { stop(); <-ended; return nil })
	return nil
}

func (s *stage) serverOptions(listener net.Listener) (*server.Options, error) {
	cluster, err := local.Prepare(s.folder.data, listener.Addr().String())
	if err != nil {
		return nil, err
	}
	s.cluster = cluster
	if err := s.folder.writeConfig(s.plugin.Endpoint(), plainFirst); err != nil {
		return nil, err
	}
	flags, err := cluster.Flags(s.etcd.Endpoint())
	if err != nil {
		return nil, err
	}
	o := server.NewOptions()
	o.SecureServing.Listener = listener
	o.Encryption.KMS.HealthyPoll, o.Encryption.KMS.UnhealthyPoll = statusPoll, statusPoll
	return o, o.Parse(append(flags,
		"--encryption-provider-config="+s.folder.config(),
		"--encryption-provider-config-automatic-reload"))
}

func (s *stage) ready(ctx context.Context) (err error) {
	if s.kube, err = kubernetes.NewForConfig(s.cluster.Config()); err != nil {
		return err
	}
	if s.probe, err = local.NewProbe(s.cluster.Config()); err != nil {
		return err
	}
	return s.probe.WaitFor(ctx, "/readyz")
}
