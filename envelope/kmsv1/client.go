//lint:file-ignore SA1019 KMS v1 is deprecated, and what this package is for

package kmsv1

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	kmsapi "k8s.io/kms/apis/v1beta1"

	"github.com/kube-atrest/atrest/envelope"
	"github.com/kube-atrest/atrest/internal/plugin"
)

// apiVersion is the only version of this API that there ever was.
const apiVersion = "v1beta1"

// errVersion: the plugin speaks another version of the API.
var errVersion = errors.New("the plugin does not speak v1beta1 of the KMS API; use apiVersion: v2 for a plugin of KMS v2")

// client speaks KMS v1 over a unix socket.
type client struct {
	conn    *plugin.Conn
	api     kmsapi.KeyManagementServiceClient
	checked atomic.Bool // the plugin said that it speaks apiVersion
	checks  singleflight.Group
}

var _ Plugin = (*client)(nil)

// Dial makes the plugin at an endpoint. It does not wait for the plugin to be
// there: the connection is made by the first call, and made again for as long
// as the plugin is not closed. A call to a plugin that has just gone waits up to
// 1.5 s for it to come back; later ones fail at once.
// timeout bounds each call; recorder may be nil. The first call asks for the
// version of the API before.
func Dial(endpoint envelope.Endpoint, timeout time.Duration, recorder envelope.Recorder) (Plugin, error) {
	conn, err := plugin.Dial(string(endpoint), timeout, plugin.Recorder(recorder))
	if err != nil {
		return nil, err
	}
	return &client{conn: conn, api: kmsapi.NewKeyManagementServiceClient(conn)}, nil
}

func (c *client) Encrypt(ctx context.Context, dek []byte) ([]byte, error) {
	if err := c.checkVersion(ctx); err != nil {
		return nil, err
	}
	r, err := c.api.Encrypt(ctx, &kmsapi.EncryptRequest{Version: apiVersion, Plain: dek})
	if err != nil {
		return nil, err
	}
	return r.GetCipher(), nil
}

func (c *client) Decrypt(ctx context.Context, wrapped []byte) ([]byte, error) {
	if err := c.checkVersion(ctx); err != nil {
		return nil, err
	}
	r, err := c.api.Decrypt(ctx, &kmsapi.DecryptRequest{Version: apiVersion, Cipher: wrapped})
	if err != nil {
		return nil, err
	}
	return r.GetPlain(), nil
}

func (c *client) Wake() <-chan struct{} { return c.conn.Wake() }

func (c *client) Close() error { return c.conn.Close() }

// checkVersion asks the plugin for its version until it has once named the
// right one. All who wait share one call, and none ends it for the others.
func (c *client) checkVersion(ctx context.Context) error {
	if c.checked.Load() {
		return nil
	}
	asked := c.checks.DoChan("", func() (any, error) {
		return nil, c.askVersion(context.WithoutCancel(ctx))
	})
	select {
	case r := <-asked:
		return r.Err
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}

func (c *client) askVersion(ctx context.Context) error {
	r, err := c.api.Version(ctx, &kmsapi.VersionRequest{Version: apiVersion})
	if status.Code(err) == codes.Unimplemented {
		return fmt.Errorf("%w: %w", errVersion, err)
	}
	if plugin.OfTheValue(err) { // to whoever reads a value that would be the value's matter
		return fmt.Errorf("%w: it refuses to name its version: %v", errVersion, err)
	}
	if err != nil {
		return fmt.Errorf("version: %w", err)
	}
	if v := r.GetVersion(); v != apiVersion {
		return fmt.Errorf("%w: it names %.100q", errVersion, v)
	}
	c.checked.Store(true)
	return nil
}

// troubleOf is the trouble of a call that failed.
func troubleOf(call string, err error) *plugin.Trouble {
	if errors.Is(err, errVersion) {
		return plugin.Troublef(plugin.BadVersion, "%s: %w", call, err)
	}
	return plugin.TroubleOf(call, err)
}
