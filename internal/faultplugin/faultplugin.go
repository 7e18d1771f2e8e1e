// Package faultplugin is a KMS v2 plugin whose every answer a test can spoil:
// real gRPC on a real unix socket, so that what is tested is what runs.
//
// Its wrapping is base64. It is for tests alone.
package faultplugin

import (
	"context"
	"encoding/base64"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	kmsapi "k8s.io/kms/apis/v2"
)

// Behaviour is how the plugin answers. The zero value of a field spoils nothing.
type Behaviour struct {
	// KeyID, Version and Healthz are what Status answers.
	KeyID, Version, Healthz string
	// EncryptKeyID is the key_id of Encrypt's answer instead of KeyID, and
	// Annotations go with it.
	EncryptKeyID string
	Annotations  map[string][]byte
	// StatusErr, EncryptErr and DecryptErr fail the calls.
	StatusErr, EncryptErr, DecryptErr error
	// Hang never answers; Delay answers late.
	Hang  bool
	Delay time.Duration
	// Garbage is what Decrypt answers, if set.
	Garbage []byte
	// Forgotten are the key_ids under which nothing is unwrapped now.
	Forgotten []string
	// Foreign are the key_ids that it answers as a plugin that returns a plain error, which gRPC calls Unknown.
	Foreign []string
}

// Calls counts the calls that came in.
type Calls struct{ Status, Encrypt, Decrypt int }

// Plugin is safe for concurrent use.
type Plugin struct {
	kmsapi.UnimplementedKeyManagementServiceServer
	t    testing.TB
	path string

	mu        sync.Mutex
	behaviour Behaviour
	calls     Calls
	seen      [][]byte // the keys given to Encrypt
	server    *grpc.Server
	served    chan struct{}
}

// New makes a plugin that is healthy under the key_id "1" and does not serve
// yet. It stops when the test ends.
func New(t testing.TB) *Plugin {
	folder, err := os.MkdirTemp("", "kms") // t.TempDir may be too long for a socket
	require.NoError(t, err)
	p := &Plugin{t: t, path: filepath.Join(folder, "kms.sock"), behaviour: Healthy("1")}
	t.Cleanup(func() {
		p.Kill()
		require.NoError(t, os.RemoveAll(folder))
	})
	return p
}

// Start makes a plugin that serves.
func Start(t testing.TB) *Plugin {
	p := New(t)
	p.Serve()
	return p
}

// Healthy is the behaviour of a plugin without a fault.
func Healthy(keyID string) Behaviour {
	return Behaviour{KeyID: keyID, Version: "v2", Healthz: "ok"}
}

// Endpoint is where the plugin serves.
func (p *Plugin) Endpoint() string { return "unix://" + p.path }

// Serve begins to serve, or to serve again; the socket is a new one.
func (p *Plugin) Serve() {
	listener, err := net.Listen("unix", p.path)
	require.NoError(p.t, err)
	p.mu.Lock()
	defer p.mu.Unlock()
	require.Nil(p.t, p.server, "the plugin serves already")
	server, served := grpc.NewServer(), make(chan struct{})
	kmsapi.RegisterKeyManagementServiceServer(server, p)
	go func() {
		defer close(served)
		_ = server.Serve(listener)
	}()
	p.server, p.served = server, served
}

// Kill ends the plugin at once: connections break, and the socket is gone.
func (p *Plugin) Kill() {
	p.mu.Lock()
	server, served := p.server, p.served
	p.server = nil
	p.mu.Unlock()
	if server != nil {
		server.Stop()
		<-served
	}
}

// RemoveSocket deletes the socket file under a plugin that goes on serving
// those who are connected.
func (p *Plugin) RemoveSocket() { require.NoError(p.t, os.Remove(p.path)) }

// Set changes how the plugin answers from the next call on.
func (p *Plugin) Set(change func(*Behaviour)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(&p.behaviour)
}

// Heal makes the plugin healthy under keyID.
func (p *Plugin) Heal(keyID string) { p.Set(func(b *Behaviour) { *b = Healthy(keyID) }) }

// Calls are those so far.
func (p *Plugin) Calls() Calls {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calls
}

// Secrets are the keys that Encrypt was given so far.
func (p *Plugin) Secrets() [][]byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([][]byte(nil), p.seen...)
}

// begin counts a call and gives the behaviour for it.
func (p *Plugin) begin(ctx context.Context, count func(*Calls)) (Behaviour, error) {
	p.mu.Lock()
	count(&p.calls)
	b := p.behaviour
	p.mu.Unlock()
	if b.Hang {
		<-ctx.Done()
		return b, status.FromContextError(ctx.Err()).Err()
	}
	if b.Delay > 0 {
		select {
		case <-time.After(b.Delay):
		case <-ctx.Done():
			return b, status.FromContextError(ctx.Err()).Err()
		}
	}
	return b, nil
}

// Status answers as set.
func (p *Plugin) Status(ctx context.Context, _ *kmsapi.StatusRequest) (*kmsapi.StatusResponse, error) {
	b, err := p.begin(ctx, func(c *Calls) { c.Status++ })
	if err == nil {
		err = b.StatusErr
	}
	if err != nil {
		return nil, err
	}
	return &kmsapi.StatusResponse{Version: b.Version, Healthz: b.Healthz, KeyId: b.KeyID}, nil
}

// Encrypt wraps, or fails as set.
func (p *Plugin) Encrypt(ctx context.Context, r *kmsapi.EncryptRequest) (*kmsapi.EncryptResponse, error) {
	b, err := p.begin(ctx, func(c *Calls) { c.Encrypt++ })
	if err == nil {
		err = b.EncryptErr
	}
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	p.seen = append(p.seen, r.GetPlaintext())
	p.mu.Unlock()
	keyID := b.KeyID
	if b.EncryptKeyID != "" {
		keyID = b.EncryptKeyID
	}
	wrapped := base64.StdEncoding.EncodeToString(r.GetPlaintext())
	return &kmsapi.EncryptResponse{Ciphertext: []byte(wrapped), KeyId: keyID, Annotations: b.Annotations}, nil
}

// Decrypt unwraps, or fails as set.
func (p *Plugin) Decrypt(ctx context.Context, r *kmsapi.DecryptRequest) (*kmsapi.DecryptResponse, error) {
	b, err := p.begin(ctx, func(c *Calls) { c.Decrypt++ })
	if err == nil {
		err = b.DecryptErr
	}
	if err != nil {
		return nil, err
	}
	if b.Garbage != nil {
		return &kmsapi.DecryptResponse{Plaintext: b.Garbage}, nil
	}
	switch id := r.GetKeyId(); {
	case slices.Contains(b.Foreign, id):
		return nil, errors.New("failed to decrypt: InvalidCiphertextException")
	case slices.Contains(b.Forgotten, id):
		return nil, status.Errorf(codes.NotFound, "no KEK has the key_id %q", id)
	}
	plain, err := base64.StdEncoding.DecodeString(string(r.GetCiphertext()))
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, "not wrapped here")
	}
	return &kmsapi.DecryptResponse{Plaintext: plain}, nil
}
