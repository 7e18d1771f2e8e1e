package envelope

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/util/uuid"
	kmsapi "k8s.io/kms/apis/v2"

	"github.com/kube-atrest/atrest/internal/plugin"
)

// DefaultTimeout bounds one call to a plugin, as in kube-apiserver.
const DefaultTimeout = 3 * time.Second

// Endpoint is where a plugin serves: unix:///path/to/socket, or
// unix:///@name for an abstract socket.
type Endpoint string

// Recorder is told of every call to a plugin when it has ended: its full gRPC
// method, how long it took, and its error. It must not block.
type Recorder = plugin.Recorder

// client speaks KMS v2 over a unix socket.
type client struct {
	over
	conn   *plugin.Conn
	status over // whose calls wait for nobody
}

var _ Plugin = client{}

// Dial makes the plugin at an endpoint. It does not wait for the plugin to be
// there: the connection is made by the first call, and made again for as long
// as the plugin is not closed. A call to a plugin that has just gone waits up to
// 1.5 s for it to come back, but Status; later ones fail at once.
// timeout bounds each call; recorder may be nil.
func Dial(endpoint Endpoint, timeout time.Duration, recorder Recorder) (Plugin, error) {
	conn, err := plugin.Dial(string(endpoint), timeout, recorder)
	if err != nil {
		return nil, err
	}
	return client{over: overConn(conn), conn: conn, status: overConn(conn.Hasty())}, nil
}

func (c client) Status(ctx context.Context) (Status, error) { return c.status.Status(ctx) }
func (c client) Wake() <-chan struct{}                      { return c.conn.Wake() }
func (c client) Close() error                               { return c.conn.Close() }

// over makes the calls over a connection.
type over struct {
	api kmsapi.KeyManagementServiceClient
}

// Over is the plugin at the other end of a connection, which stays the caller's: Close does
// nothing, and calls take as long as their ctx.
func Over(conn grpc.ClientConnInterface) Plugin { return overConn(conn) }

func overConn(conn grpc.ClientConnInterface) over {
	return over{kmsapi.NewKeyManagementServiceClient(conn)}
}

func (over) Wake() <-chan struct{} { return nil }
func (over) Close() error          { return nil }

func (c over) Status(ctx context.Context) (Status, error) {
	r, err := c.api.Status(ctx, &kmsapi.StatusRequest{})
	if err != nil {
		return Status{}, err
	}
	return Status{Version: r.GetVersion(), Healthz: r.GetHealthz(), KeyID: r.GetKeyId()}, nil
}

func (c over) Encrypt(ctx context.Context, dek []byte) (Wrapped, error) {
	r, err := c.api.Encrypt(ctx, &kmsapi.EncryptRequest{Plaintext: dek, Uid: string(uuid.NewUUID())})
	if err != nil {
		return Wrapped{}, err
	}
	return Wrapped{Ciphertext: r.GetCiphertext(), KeyID: r.GetKeyId(), Annotations: r.GetAnnotations()}, nil
}

func (c over) Decrypt(ctx context.Context, w Wrapped) ([]byte, error) {
	r, err := c.api.Decrypt(ctx, &kmsapi.DecryptRequest{
		Ciphertext: w.Ciphertext, KeyId: w.KeyID, Annotations: w.Annotations, Uid: string(uuid.NewUUID()),
	})
	if err != nil {
		return nil, err
	}
	return r.GetPlaintext(), nil
}
