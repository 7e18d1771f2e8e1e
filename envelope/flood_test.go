package envelope_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	kmsapi "k8s.io/kms/apis/v2"

	"github.com/kube-atrest/atrest/envelope"
	testingclock "k8s.io/utils/clock/testing"
)

// fragile is a plugin behind a socket that somebody else keeps, as systemd does.
// It loses every connection: in a call of Status, or right after one.
type fragile struct {
	kmsapi.UnimplementedKeyManagementServiceServer
	net.Listener
	crashes  bool // in Status; else it answers, and recycles the connection
	statuses atomic.Int64
	accepted atomic.Int64

	mu    sync.Mutex
	conns []net.Conn
}

// startFragile serves until the test ends.
func startFragile(t *testing.T, crashes bool) (*fragile, envelope.Endpoint) {
	folder, err := os.MkdirTemp("", "kms")
	require.NoError(t, err)
	socket := filepath.Join(folder, "s")
	listener, err := net.Listen("unix", socket)
	require.NoError(t, err)
	f := &fragile{Listener: listener, crashes: crashes}
	server := grpc.NewServer()
	kmsapi.RegisterKeyManagementServiceServer(server, f)
	served := make(chan struct{})
	go func() { defer close(served); _ = server.Serve(f) }()
	t.Cleanup(func() {
		server.Stop()
		<-served
		require.NoError(t, os.RemoveAll(folder))
	})
	return f, envelope.Endpoint("unix://" + socket)
}

func (f *fragile) Accept() (net.Conn, error) {
	c, err := f.Listener.Accept()
	if err == nil {
		f.accepted.Add(1)
		f.mu.Lock()
		f.conns = append(f.conns, c)
		f.mu.Unlock()
	}
	return c, err
}

func (f *fragile) breakAll() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.conns {
		c.Close()
	}
	f.conns = nil
}

func (f *fragile) Status(ctx context.Context, _ *kmsapi.StatusRequest) (*kmsapi.StatusResponse, error) {
	f.statuses.Add(1)
	if f.crashes {
		f.breakAll()
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return &kmsapi.StatusResponse{Version: "v2", Healthz: "ok", KeyId: "1"}, nil
}

func (f *fragile) Encrypt(_ context.Context, r *kmsapi.EncryptRequest) (*kmsapi.EncryptResponse, error) {
	return &kmsapi.EncryptResponse{Ciphertext: append([]byte("sealed"), flipped(r.GetPlaintext())...), KeyId: "1"}, nil
}

func (f *fragile) Decrypt(_ context.Context, r *kmsapi.DecryptRequest) (*kmsapi.DecryptResponse, error) {
	return &kmsapi.DecryptResponse{Plaintext: flipped(r.GetCiphertext()[len("sealed"):])}, nil
}

func flipped(b []byte) []byte {
	out := make([]byte, len(b))
	for i := range b {
		out[i] = ^b[i]
	}
	return out
}

// changes counts what is told of a provider's health.
type changes struct {
	envelope.Observer
	n atomic.Int64
}

func (c *changes) Changed(envelope.Health)              { c.n.Add(1) }
func (c *changes) StatusSeen(string)                    {}
func (c *changes) KeyIDRefused(error)                   {}
func (c *changes) DEKMade(string, time.Duration, error) {}
func (c *changes) DEKUnwrapped(int)                     {}
func (c *changes) DEKsDropped(int)                      {}

// A plugin that breaks every connection is asked no more than one that keeps
// them, once a second at the very most, and told of once.
func TestAPluginThatBreaksItsConnectionsIsNotAskedAllTheTime(t *testing.T) {
	for name, crashes := range map[string]bool{"in Status": true, "after Status": false} {
		t.Run(name, func(t *testing.T) {
			f, endpoint := startFragile(t, crashes)
			plugin, err := envelope.Dial(endpoint, never, nil)
			require.NoError(t, err)
			clock, told := testingclock.NewFakeClock(time.Now()), &changes{}
			p := envelope.NewProvider(plugin, envelope.Options{Clock: clock, Observer: told})
			t.Cleanup(p.Hold())
			p.SetRole(envelope.Writes)
			require.NoError(t, p.Asked(t.Context()))
			pace := time.NewTicker(10 * time.Millisecond) // connections take real time
			defer pace.Stop()
			const seconds = 20
			for range 10 * seconds {
				f.breakAll()
				<-pace.C
				clock.Step(100 * time.Millisecond)
			}
			require.Greater(t, f.accepted.Load(), int64(2), "they were broken, and made again")
			// It grows: 1 at the start, then after 0, 1, 4 and 10 s, and the polls.
			require.LessOrEqual(t, f.statuses.Load(), int64(10))
			require.LessOrEqual(t, told.n.Load(), int64(2))
			require.Equal(t, crashes, p.Health().Problem != "")
		})
	}
}

// A LIST reads one object after another, under one DEK or many that are not in
// memory, and the plugin hangs.
func TestAListOverAPluginThatHangsWaitsOnce(t *testing.T) {
	_, endpoint := startFragile(t, false)
	writer, err := envelope.Dial(endpoint, never, nil)
	require.NoError(t, err)
	w := envelope.NewProvider(writer, envelope.Options{})
	t.Cleanup(w.Hold())
	w.SetRole(envelope.Writes)
	require.NoError(t, w.Asked(t.Context()))
	object, err := w.Seal(t.Context(), prefix, []byte("v"), at)
	require.NoError(t, err)

	hung := &hanging{}
	r := envelope.NewProvider(hung, envelope.Options{})
	t.Cleanup(r.Hold())
	for range 100 {
		_, _, err := r.Open(t.Context(), object[len(prefix):], at)
		require.ErrorIs(t, err, envelope.ErrUnavailable)
	}
	require.LessOrEqual(t, hung.decrypts.Load(), int64(2), "about one timeout, not one for each object")
}

// hanging is a plugin that does not answer within its timeout.
type hanging struct{ decrypts atomic.Int64 }

const hangs = 500 * time.Millisecond

func (h *hanging) Decrypt(ctx context.Context, _ envelope.Wrapped) ([]byte, error) {
	h.decrypts.Add(1)
	ctx, cancel := context.WithTimeout(ctx, hangs)
	defer cancel()
	<-ctx.Done()
	return nil, ctx.Err()
}

func (h *hanging) Status(ctx context.Context) (envelope.Status, error) {
	_, err := h.Decrypt(ctx, envelope.Wrapped{})
	return envelope.Status{}, err
}

func (h *hanging) Encrypt(ctx context.Context, _ []byte) (envelope.Wrapped, error) {
	_, err := h.Decrypt(ctx, envelope.Wrapped{})
	return envelope.Wrapped{}, err
}

func (*hanging) Wake() <-chan struct{} { return nil }
func (*hanging) Close() error          { return nil }
