package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/kube-atrest/atrest/kmsplugin"
	"github.com/kube-atrest/atrest/kmsplugin/keyfile"
)

// Plugin is the key-file plugin in this process. It can be taken away and brought back,
// as a crash and a restart of a plugin of its own would do. Its methods must not be
// called concurrently.
type Plugin struct {
	keys     *keyfile.File
	endpoint string
	stop     context.CancelFunc // nil while it does not serve
	served   chan error
}

// NewPlugin returns a plugin with the keys in keyFile, which is made if it is not there,
// that serves on the unix socket at path once it is started.
func NewPlugin(ctx context.Context, keyFile, path string) (*Plugin, error) {
	keys := keyfile.At(keyFile)
	if _, err := keys.Create(ctx); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	if _, err := keys.List(); err != nil {
		return nil, err
	}
	return &Plugin{keys: keys, endpoint: "unix://" + path}, nil
}

// Endpoint is what belongs into an EncryptionConfiguration.
func (p *Plugin) Endpoint() string { return p.endpoint }

// look is how often the plugin looks at its file: what waits for a rotation is a test, or
// somebody who watches.
const look = 50 * time.Millisecond

// Rotate makes a new key and with it a new key_id, which shows within a moment.
func (p *Plugin) Rotate(ctx context.Context) error {
	_, err := p.keys.Rotate(ctx)
	return err
}

// Start serves until [Plugin.Stop]. When it returns, clients can connect. The values in
// ctx hold for as long as the plugin serves, its end does not.
func (p *Plugin) Start(ctx context.Context) error {
	if p.stop != nil {
		return errors.New("the plugin serves already")
	}
	config := keyfile.Config()
	config.Poll = look
	keeper, err := kmsplugin.NewKeeper(p.keys, config)
	if err != nil {
		return err
	}
	server, err := kmsplugin.Listen(ctx, p.endpoint, keeper)
	if err != nil {
		return fmt.Errorf("start the plugin: %w", err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	served, stopKeeper := make(chan error, 1), keeper.Start(ctx)
	go func() { served <- errors.Join(server.Serve(ctx), stopKeeper()) }()
	p.stop, p.served = stop, served
	return nil
}

// Stop takes the plugin and its socket away and returns once they are gone. Stopping
// twice is harmless.
func (p *Plugin) Stop() error {
	if p.stop == nil {
		return nil
	}
	p.stop()
	p.stop = nil
	return <-p.served
}
