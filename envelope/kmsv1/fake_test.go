package kmsv1

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/klog/v2"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kube-atrest/atrest/envelope"
	"github.com/kube-atrest/atrest/internal/faultplugin"
)

func TestMain(m *testing.M) {
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	os.Exit(m.Run())
}

// faultyPlugin is a plugin in memory whose every answer a test can change.
type faultyPlugin struct {
	faultplugin.V1
	mu                 sync.Mutex
	encErr, decErr     error
	wrap               func(dek []byte) []byte // instead of base64, when set
	wrapped            map[string][]byte       // by what wrap made of it; nil to lose it
	unwrapped          []byte                  // instead of the DEK, when set
	damaged            []byte                  // what Decrypt fails on alone
	damagedToo         []byte                  // and on this
	encrypts, decrypts int
	secrets            [][]byte      // what Encrypt was given
	decrypting         chan struct{} // when set, Decrypt waits for it
	takes              func()        // the time of a Decrypt
	wake               chan struct{}
	closed             bool
}

func newFaultyPlugin() *faultyPlugin {
	return &faultyPlugin{wrapped: map[string][]byte{}, wake: make(chan struct{})}
}

func (f *faultyPlugin) set(change func(*faultyPlugin)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

func (f *faultyPlugin) calls() (encrypts, decrypts int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.encrypts, f.decrypts
}

// given is what Encrypt was given so far: DEKs, and probes that look like them.
func (f *faultyPlugin) given() [][]byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.secrets)
}

// last is the last of them so far: a probe may come at any time.
func (f *faultyPlugin) last() []byte {
	given := f.given()
	return given[len(given)-1]
}

func (f *faultyPlugin) Encrypt(ctx context.Context, dek []byte) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.encrypts++
	f.secrets = append(f.secrets, bytes.Clone(dek))
	if f.encErr != nil {
		return nil, f.encErr
	}
	if f.wrap != nil {
		out := f.wrap(dek)
		if f.wrapped != nil {
			f.wrapped[string(out)] = bytes.Clone(dek)
		}
		return out, nil
	}
	return f.V1.Encrypt(ctx, dek)
}

func (f *faultyPlugin) Decrypt(ctx context.Context, wrapped []byte) ([]byte, error) {
	f.mu.Lock()
	f.decrypts++
	err, gate, instead, takes := f.decErr, f.decrypting, f.unwrapped, f.takes
	if len(f.damaged) > 0 && (bytes.Equal(f.damaged, wrapped) || bytes.Equal(f.damagedToo, wrapped)) {
		err = errDamaged
	}
	if known, ok := f.wrapped[string(wrapped)]; ok && instead == nil {
		instead = known
	}
	f.mu.Unlock()
	if takes != nil {
		takes()
	}
	if gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if err != nil || instead != nil {
		return bytes.Clone(instead), err
	}
	return f.V1.Decrypt(ctx, wrapped)
}

func (f *faultyPlugin) Wake() <-chan struct{} { return f.wake }

func (f *faultyPlugin) Close() error {
	f.set(func(f *faultyPlugin) { f.closed = true })
	return nil
}

var errDamaged = errors.New("cannot authenticate what is to be unwrapped")

var errGone = status.Error(codes.Unavailable, "nobody listens")

func (f *faultyPlugin) die()  { f.set(func(f *faultyPlugin) { f.encErr, f.decErr = errGone, errGone }) }
func (f *faultyPlugin) live() { f.set(func(f *faultyPlugin) { f.encErr, f.decErr = nil, nil }) }

// recorder is an observer that remembers.
type recorder struct {
	mu             sync.Mutex
	generated      int
	failed         int
	misses, opened int
	fill           float64
	fills          int
	notes          []uint64
	noted          string
	changes        []envelope.Health
}

func (r *recorder) do(f func()) { r.mu.Lock(); defer r.mu.Unlock(); f() }

func (r *recorder) DEKGenerated(_ time.Duration, err error) {
	r.do(func() {
		if r.generated++; err != nil {
			r.failed++
		}
	})
}
func (r *recorder) CacheMissed()              { r.do(func() { r.misses++ }) }
func (r *recorder) CacheFilled(share float64) { r.do(func() { r.fill, r.fills = share, r.fills+1 }) }
func (r *recorder) CBCOpened()                { r.do(func() { r.opened++ }) }
func (r *recorder) CBCNoted(key string, n uint64) {
	r.do(func() { r.notes, r.noted = append(r.notes, n), key })
}
func (r *recorder) Changed(h envelope.Health) { r.do(func() { r.changes = append(r.changes, h) }) }

// held is a provider that a test holds.
type held struct {
	*Provider
	End func()
}

func hold(t testing.TB, p *Provider, role envelope.Role) held {
	h := held{p, p.Hold()}
	t.Cleanup(h.End)
	p.SetRole(role)
	return h
}

// rig is a provider that writes, on a faulty plugin and a clock that stands still.
type rig struct {
	held
	t      testing.TB
	plugin *faultyPlugin
	clock  *testingclock.FakeClock
	seen   *recorder
}

var testStart = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func newRig(t testing.TB, change ...func(*Options)) *rig {
	return newRigOn(t, newFaultyPlugin(), change...)
}

func newRigOn(t testing.TB, plugin *faultyPlugin, change ...func(*Options)) *rig {
	r := &rig{t: t, plugin: plugin, clock: testingclock.NewFakeClock(testStart), seen: &recorder{}}
	opts := Options{Clock: r.clock, Observer: r.seen}
	for _, c := range change {
		c(&opts)
	}
	r.held = hold(t, NewProvider(plugin, opts), envelope.Writes)
	require.NoError(t, r.followed.Asked(t.Context()))
	return r
}

// reader is a provider that only reads, on a healthy base64 plugin.
func reader(t testing.TB, change ...func(*Options)) (held, *faultyPlugin) {
	plugin := newFaultyPlugin()
	opts := Options{}
	for _, c := range change {
		c(&opts)
	}
	return hold(t, NewProvider(plugin, opts), envelope.Reads), plugin
}

const testPrefix = "k8s:enc:kms:v1:test:"

var (
	testKey  value.Context = value.DefaultContext("/registry/secrets/default/golden")
	otherKey value.Context = value.DefaultContext("/registry/secrets/default/other")
)

// key is an etcd key that allocates nothing, unlike that of the storage layer.
type key []byte

func (k key) AuthenticatedData() []byte { return k }

func (r *rig) write(plaintext string) []byte {
	r.t.Helper()
	out, err := r.Seal(r.t.Context(), testPrefix, []byte(plaintext), testKey)
	require.NoError(r.t, err)
	return out[len(testPrefix):]
}

// How long a test waits for another goroutine before it gives up, and how
// often it looks.
const (
	testWait = 10 * time.Second
	testTick = 50 * time.Microsecond
)
