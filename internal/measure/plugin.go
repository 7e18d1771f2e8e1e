package measure

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"k8s.io/apiserver/pkg/storage/value"

	"github.com/kube-atrest/atrest/envelope"
	"github.com/kube-atrest/atrest/internal/stored"
	"github.com/kube-atrest/atrest/kmsplugin"
	"github.com/kube-atrest/atrest/kmsplugin/keyfile"
)

// Plugin is a key-file plugin on a socket.
type Plugin struct {
	Endpoint string
	Decrypts atomic.Int64 // calls so far
	kmsplugin.Service
	delay  time.Duration
	cancel context.CancelFunc
	served chan struct{}
}

// StartPlugins starts two plugins with the same fresh keys, whose sockets lie in a folder
// with a short name: one that answers at once, and one that takes its time to unwrap, as a
// KMS at the other end of a network would. The caller stops both, which are nil if this
// fails.
func StartPlugins(ctx context.Context, folder string, delay time.Duration) (quick, slow *Plugin, err error) {
	file := keyfile.At(folder + "/keys")
	if _, err := file.Create(ctx); err != nil {
		return nil, nil, err
	}
	if quick, err = servePlugin(ctx, folder+"/quick.sock", file, 0); err != nil {
		return nil, nil, err
	}
	if slow, err = servePlugin(ctx, folder+"/slow.sock", file, delay); err != nil {
		quick.Stop()
		return nil, nil, err
	}
	return quick, slow, nil
}

func servePlugin(ctx context.Context, socket string, file *keyfile.File, delay time.Duration) (*Plugin, error) {
	keeper, err := kmsplugin.NewKeeper(file, keyfile.Config())
	if err != nil {
		return nil, err
	}
	p := &Plugin{Endpoint: "unix://" + socket, Service: keeper, delay: delay, served: make(chan struct{})}
	server, err := kmsplugin.Listen(ctx, p.Endpoint, p, kmsplugin.WithStopTimeout(0))
	if err != nil {
		return nil, fmt.Errorf("start the key-file plugin: %w", err)
	}
	ctx, p.cancel = context.WithCancel(context.WithoutCancel(ctx))
	stop := keeper.Start(ctx)
	go func() {
		defer close(p.served)
		_ = server.Serve(ctx) // an error says only that a client was still there
		_ = stop()
	}()
	return p, nil
}

// Stop ends the plugin. That of nil does nothing.
func (p *Plugin) Stop() {
	if p != nil {
		p.cancel()
		<-p.served
	}
}

// Decrypt unwraps after the delay, and is counted.
func (p *Plugin) Decrypt(ctx context.Context, uid string, sealed kmsplugin.Sealed) ([]byte, error) {
	p.Decrypts.Add(1)
	timer := time.NewTimer(p.delay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return p.Service.Decrypt(ctx, uid, sealed)
}

// Seal makes a stored value of plaintext for a key in etcd.
type Seal func(ctx context.Context, plaintext []byte, key string) ([]byte, error)

// Sealer seals for the KMS provider of a name, with another DEK after so many values. What
// it seals kube-apiserver reads as well. The caller calls end.
func (p *Plugin) Sealer(ctx context.Context, provider string, mode envelope.WriteMode, perDEK int) (seal Seal, end func(), err error) {
	dialled, err := envelope.Dial(envelope.Endpoint(p.Endpoint), 10*time.Second, nil)
	if err != nil {
		return nil, nil, err
	}
	sealing := envelope.NewProvider(dialled, envelope.Options{Mode: mode, MaxWrites: uint64(perDEK)})
	end = sealing.Hold()
	sealing.SetRole(envelope.Writes)
	if err := sealing.Prepare(ctx); err != nil {
		end()
		return nil, nil, err
	}
	return func(ctx context.Context, plaintext []byte, key string) ([]byte, error) {
		return sealing.Seal(ctx, stored.KMSv2.PrefixFor(provider), plaintext, value.DefaultContext(key))
	}, end, nil
}
