package envelope

import (
	"bytes"
	"context"
	"encoding/base64"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apiserver/pkg/storage/value"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kube-atrest/atrest/internal/plugin"
)

// faultyPlugin is a plugin in memory whose every answer a test can change. Its
// wrapping is base64, that of the golden records.
type faultyPlugin struct {
	mu                           sync.Mutex
	status                       Status
	encryptKeyID                 string // instead of the status's, when set
	annotations                  map[string][]byte
	statusErr, encErr, decErr    error
	unwrapped                    []byte   // what Decrypt gives out, when set
	refused                      []byte   // of which alone Decrypt fails, or gives that out, if there is any
	refusedAll                   []string // the same of several
	spared                       []byte   // of which alone it does not, if there is any
	salt                         string   // newlines, which tell one wrapping from another
	statuses, encrypts, decrypts int
	wrapped                      [][]byte      // what Encrypt was given
	decrypting                   chan struct{} // when set, Decrypt waits for it
	wake                         chan struct{}
	closed                       bool
}

func newFaultyPlugin() *faultyPlugin {
	return &faultyPlugin{status: Status{Version: "v2", Healthz: "ok", KeyID: "1"}, wake: make(chan struct{})}
}

func (f *faultyPlugin) set(change func(*faultyPlugin)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

func (f *faultyPlugin) calls() (statuses, encrypts, decrypts int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.statuses, f.encrypts, f.decrypts
}

func (f *faultyPlugin) Status(context.Context) (Status, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.statuses++
	return f.status, f.statusErr
}

func (f *faultyPlugin) Encrypt(_ context.Context, dek []byte) (Wrapped, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.encrypts++
	f.wrapped = append(f.wrapped, append([]byte(nil), dek...))
	keyID := f.status.KeyID
	if f.encryptKeyID != "" {
		keyID = f.encryptKeyID
	}
	return Wrapped{Ciphertext: []byte(base64.StdEncoding.EncodeToString(dek) + f.salt), KeyID: keyID, Annotations: f.annotations}, f.encErr
}

func (f *faultyPlugin) Decrypt(ctx context.Context, w Wrapped) ([]byte, error) {
	f.mu.Lock()
	f.decrypts++
	err, gate, instead := f.decErr, f.decrypting, f.unwrapped
	if f.refused != nil && !bytes.Equal(f.refused, w.Ciphertext) {
		err, instead = nil, nil
	}
	if f.refusedAll != nil && !slices.Contains(f.refusedAll, string(w.Ciphertext)) {
		err, instead = nil, nil
	}
	if f.spared != nil && bytes.Equal(f.spared, w.Ciphertext) {
		err, instead = nil, nil
	}
	f.mu.Unlock()
	if gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if err != nil {
		return nil, err
	}
	if instead != nil {
		return bytes.Clone(instead), nil
	}
	return base64.StdEncoding.DecodeString(string(w.Ciphertext))
}

func (f *faultyPlugin) Wake() <-chan struct{} { return f.wake }

func (f *faultyPlugin) Close() error {
	f.set(func(f *faultyPlugin) { f.closed = true })
	return nil
}

var errGone = status.Error(codes.Unavailable, "nobody listens")

func (f *faultyPlugin) die() {
	f.set(func(f *faultyPlugin) { f.statusErr, f.encErr, f.decErr = errGone, errGone, errGone })
}
func (f *faultyPlugin) live() {
	f.set(func(f *faultyPlugin) { f.statusErr, f.encErr, f.decErr = nil, nil, nil })
}

// Lease is a provider in a role, which a test holds.
type Lease struct {
	*Provider
	End func()
}

func lease(p *Provider, r Role) *Lease {
	end := p.Hold()
	p.SetRole(r)
	return &Lease{p, end}
}

// rig is a provider on a faulty plugin and a clock that stands still.
type rig struct {
	*Lease
	t      *testing.T
	plugin *faultyPlugin
	clock  *testingclock.FakeClock
}

var testStart = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func newRig(t *testing.T, change ...func(*Options)) *rig {
	return newRigOn(t, newFaultyPlugin(), change...)
}

func newRigOn(t *testing.T, p *faultyPlugin, change ...func(*Options)) *rig {
	r := &rig{t: t, plugin: p, clock: testingclock.NewFakeClock(testStart)}
	opts := Options{Clock: r.clock}
	for _, c := range change {
		c(&opts)
	}
	r.Lease = lease(NewProvider(r.plugin, opts), Writes)
	t.Cleanup(r.End)
	require.NoError(t, r.Asked(t.Context()))
	return r
}

// pass lets time go by, and waits for the end of a question that is due. A
// trouble that is new then is let come to count.
func (r *rig) pass(d time.Duration) {
	r.t.Helper()
	r.settle()
	r.clock.Step(d)
	r.settle()
	if k := r.followed.Load(); (k.Status.Trouble != nil || k.Encrypt.Trouble != nil) && r.Health().Problem == "" {
		r.clock.Step(plugin.Grace)
		r.settle()
	}
}

// settle waits until the follower waits for its next poll, and has asked what is
// due: of two jobs the second is not done before that.
func (r *rig) settle() {
	r.t.Helper()
	for range 2 {
		require.NoError(r.t, r.followed.Do(r.t.Context(), func(context.Context) {}))
	}
}

// suspect has a value under key_id 1 speak against the plugin, which is then tried.
func (r *rig) suspect() {
	r.t.Helper()
	r.followed.Suspect("1", plugin.Troublef(Failed, "x"))
	r.settle()
}

// hold keeps the follower from asking until release is called.
func (r *rig) hold() (release func()) {
	held, began := make(chan struct{}), make(chan struct{})
	go func() {
		_ = r.followed.Do(context.Background(), func(context.Context) { close(began); <-held })
	}()
	<-began
	return sync.OnceFunc(func() { close(held) })
}

const testPrefix = "k8s:enc:kms:v2:test:"

var testKey = value.DefaultContext("/registry/secrets/default/golden")

func (r *rig) write(plaintext string) []byte {
	r.t.Helper()
	out, err := r.Seal(r.t.Context(), testPrefix, []byte(plaintext), testKey)
	require.NoError(r.t, err)
	return out[len(testPrefix):]
}

func (r *rig) read(payload []byte) (string, bool) {
	r.t.Helper()
	out, stale, err := r.Open(r.t.Context(), payload, testKey)
	require.NoError(r.t, err)
	return string(out), stale
}

// How long a test waits for another goroutine before it gives up, and how
// often it looks.
const (
	testWait = 10 * time.Second
	testTick = 50 * time.Microsecond
)
