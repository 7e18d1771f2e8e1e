package main

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/kube-atrest/atrest/kmsplugin"
)

// plugin is the key-file plugin on a socket, which counts the keys it unwraps.
type plugin struct {
	endpoint string
	decrypts *atomic.Int64
	stop     func()
}

// counted is a service that counts, and takes its time to unwrap.
type counted struct {
	kmsplugin.Service
	delay    time.Duration
	decrypts *atomic.Int64
}

// Decrypt unwraps after the delay, as a KMS at the other end of a network would.
func (c counted) Decrypt(ctx context.Context, uid string, sealed kmsplugin.Sealed) ([]byte, error) {
	c.decrypts.Add(1)
	timer := time.NewTimer(c.delay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return c.Service.Decrypt(ctx, uid, sealed)
}

// servePlugin serves until the plugin is stopped.
func servePlugin(ctx context.Context, endpoint string, service counted) (*plugin, error) {
	server, err := kmsplugin.Listen(ctx, endpoint, service, kmsplugin.WithStopTimeout(0))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ctx) }()
	return &plugin{endpoint: endpoint, decrypts: service.decrypts, stop: func() {
		cancel()
		<-ended // an error says only that a client was still there
	}}, nil
}
