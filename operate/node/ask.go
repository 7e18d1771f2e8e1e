package node

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	kmsapi "k8s.io/kms/apis/v2"

	"github.com/kube-atrest/atrest/internal/hashed"
	"github.com/kube-atrest/atrest/internal/plugin"
)

// Health is what a plugin was last found to be. It holds no key material and no key_id, but its
// hash.
type Health struct {
	// At is when it was asked last, zero if it never was.
	At time.Time `json:"at,omitzero"`
	// Serving tells that the instance itself answered, whatever it said; Well that it
	// encrypts and decrypts.
	Serving bool `json:"serving"`
	Well    bool `json:"well"`
	// KeyIDHash is "sha256:" and the hash of the key_id that it named last.
	KeyIDHash string `json:"keyIDHash,omitempty"`
	// SilentSince is since when it has answered nothing, zero if it did when it was asked last.
	SilentSince time.Time `json:"silentSince,omitzero"`
	// LastWell is when it was last well. LastFailure is when it last was not, and Class and
	// Message are what was wrong then.
	LastWell    time.Time      `json:"lastWell,omitzero"`
	LastFailure time.Time      `json:"lastFailure,omitzero"`
	Class       plugin.Problem `json:"class,omitempty"`
	Message     string         `json:"message,omitempty"`
}

// silent tells for how long it has answered nothing, as far as it was asked.
func (h Health) silent() time.Duration {
	if h.SilentSince.IsZero() {
		return 0
	}
	return h.At.Sub(h.SilentSince)
}

// asked asks one instance, on its own socket. It is for one goroutine.
type asked struct {
	spec    Spec
	runner  Runner
	timeout time.Duration
	conn    *grpc.ClientConn
	tried   string // key_id with which it encrypts and decrypts, since it was last not well
	health  Health
}

// dialled makes the connection, which every time is to the very instance, or to nobody.
func (a *asked) dialled() error {
	if a.conn != nil {
		return nil
	}
	conn, err := grpc.NewClient("passthrough:///plugin",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return a.reach(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()), // a unix socket is guarded by its file mode
		grpc.WithAuthority("localhost"),
		grpc.WithDisableServiceConfig(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(plugin.MaxAnswer)))
	a.conn = conn
	return err
}

func (a *asked) reach(ctx context.Context) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", a.spec.Socket)
	if err != nil {
		return nil, err
	}
	if err := a.runner.Proves(a.spec, conn.(*net.UnixConn)); err != nil {
		return nil, errors.Join(fmt.Errorf("%s is not served by the plugin that was started: %w", a.spec.Socket, err), conn.Close())
	}
	return conn, nil
}

func (a *asked) close() {
	if a.conn != nil {
		_ = a.conn.Close()
	}
	a.conn = nil
}

// ask asks it now, and gives what is known then. now is called when it has answered.
func (a *asked) ask(ctx context.Context, now func() time.Time) Health {
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	keyID, problem, err := a.status(ctx)
	if err == nil && a.tried != keyID {
		problem, err = a.roundTrip(ctx, keyID)
		a.tried = keyID
	}
	h := &a.health
	h.At = now()
	h.Well = err == nil
	h.Serving = problem != plugin.Unreachable && problem != plugin.TimedOut
	switch {
	case h.Serving:
		h.SilentSince = time.Time{}
	case h.SilentSince.IsZero():
		h.SilentSince = h.At
	}
	if keyID != "" {
		h.KeyIDHash = hashed.ID(keyID)
	}
	if err == nil {
		h.LastWell = h.At
		return *h
	}
	a.tried = ""
	if problem == plugin.Unreachable {
		a.close() // gRPC would wait longer and longer before it dials again
	}
	h.LastFailure, h.Class, h.Message = h.At, problem, plugin.Cut(err).Error()
	return *h
}

func (a *asked) status(ctx context.Context) (keyID string, problem plugin.Problem, err error) {
	if err := a.dialled(); err != nil {
		return "", plugin.Unreachable, err
	}
	s, err := kmsapi.NewKeyManagementServiceClient(a.conn).Status(ctx, &kmsapi.StatusRequest{})
	switch {
	case err != nil:
		return "", plugin.ProblemOf(err), fmt.Errorf("status: %w", err)
	case s.Version != "v2" && s.Version != "v2beta1":
		return "", plugin.BadVersion, fmt.Errorf("status: it speaks version %.100q of the KMS API, not v2 or v2beta1", s.Version)
	case len(s.KeyId) == 0 || len(s.KeyId) > maxKeyID:
		return "", plugin.BadKeyID, fmt.Errorf("status: its key_id has %d bytes, and 1 to %d are allowed", len(s.KeyId), maxKeyID)
	case s.Healthz != "ok":
		return s.KeyId, plugin.Unhealthy, fmt.Errorf("status: it reports healthz %.300q, not \"ok\"", s.Healthz)
	}
	return s.KeyId, "", nil
}

// maxKeyID is what KMS v2 allows, in bytes.
const maxKeyID = 1024

// roundTrip has it encrypt something random, and decrypt that.
func (a *asked) roundTrip(ctx context.Context, keyID string) (plugin.Problem, error) {
	client := kmsapi.NewKeyManagementServiceClient(a.conn)
	secret := make([]byte, 32)
	_, _ = rand.Read(secret)
	sealed, err := client.Encrypt(ctx, &kmsapi.EncryptRequest{Plaintext: secret, Uid: a.spec.Instance})
	switch {
	case err != nil:
		return plugin.ProblemOf(err), fmt.Errorf("encrypt: %w", err)
	case len(sealed.Ciphertext) == 0 || bytes.Contains(sealed.Ciphertext, secret):
		return plugin.BadAnswer, errors.New("encrypt: it gave back what it was given in the clear, or nothing")
	case sealed.KeyId != keyID:
		return plugin.Disagreement, fmt.Errorf("encrypt: it used key_id %s and status names %s", hashed.ID(sealed.KeyId), hashed.ID(keyID))
	}
	opened, err := client.Decrypt(ctx, &kmsapi.DecryptRequest{Ciphertext: sealed.Ciphertext, KeyId: sealed.KeyId, Annotations: sealed.Annotations, Uid: a.spec.Instance})
	switch {
	case err != nil:
		return plugin.ProblemOf(err), fmt.Errorf("decrypt: %w", err)
	case !bytes.Equal(opened.Plaintext, secret):
		return plugin.BadAnswer, errors.New("decrypt: it gave back something else than it was given")
	}
	return "", nil
}
