package faults

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kube-atrest/atrest"
	"github.com/kube-atrest/atrest/healthz"
	"github.com/kube-atrest/atrest/internal/faultplugin"
	"github.com/kube-atrest/atrest/internal/plugin"
	"github.com/kube-atrest/atrest/reload"
)

var (
	secrets    = schema.GroupResource{Resource: "secrets"}
	configmaps = schema.GroupResource{Resource: "configmaps"}
	at         = value.DefaultContext("/registry/secrets/default/x")
)

const identity = "identity: {}"

// fileOf is the content of an EncryptionConfiguration.
func fileOf(rules ...string) string {
	return "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n" + strings.Join(rules, "")
}

func rule(resources string, providers ...string) string {
	return fmt.Sprintf("- resources: [%s]\n  providers:\n  - %s\n", resources, strings.Join(providers, "\n  - "))
}

func kms(name string, p *faultplugin.Plugin, more ...string) string {
	fields := append([]string{"apiVersion: v2", "name: " + name, fmt.Sprintf("endpoint: %q", p.Endpoint())}, more...)
	return "kms: {" + strings.Join(fields, ", ") + "}"
}

// stillClock is a clock that moves when it is told to, and knows which timers
// run on it.
type stillClock struct {
	*testingclock.FakeClock
	mu     sync.Mutex
	timers map[*timer]struct{}
}

var _ clock.WithTicker = (*stillClock)(nil)

type timer struct {
	clock.Timer
	clock  *stillClock
	length time.Duration
	began  time.Time
	poll   bool // of a follower that waits for its next poll
}

func newClock() *stillClock {
	return &stillClock{
		FakeClock: testingclock.NewFakeClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)),
		timers:    map[*timer]struct{}{},
	}
}

func (c *stillClock) NewTimer(d time.Duration) clock.Timer {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := &timer{Timer: c.FakeClock.NewTimer(d), clock: c, length: d, began: c.Now(), poll: setsPoll()}
	c.timers[t] = struct{}{}
	return t
}

// setsPoll reports whether the caller's caller is a follower that sets its next
// poll, however long that is.
func setsPoll() bool {
	callers := make([]uintptr, 8)
	frames := runtime.CallersFrames(callers[:runtime.Callers(3, callers)])
	for {
		frame, more := frames.Next()
		if strings.HasSuffix(frame.Function, "internal/plugin.(*alarms).set") {
			return true
		}
		if !more {
			return false
		}
	}
}

func (t *timer) Stop() bool {
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	delete(t.clock.timers, t)
	return t.Timer.Stop()
}

func (c *stillClock) Step(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.FakeClock.Step(d)
}

// waiting counts those who wait for such a time. One that has passed counts no
// more, though they may not have noticed yet.
func (c *stillClock) waiting(such func(*timer) bool) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for t := range c.timers {
		if t.began.Add(t.length).After(c.Now()) && such(t) {
			n++
		}
	}
	return n
}

// waitingAnew reports whether somebody began at this very moment to wait for a
// time between least and most.
func (c *stillClock) waitingAnew(least, most time.Duration) bool {
	now := c.Now()
	return c.waiting(func(t *timer) bool { return t.began.Equal(now) && least <= t.length && t.length <= most }) > 0
}

// tb is what a test and a run of a simulation have in common.
type tb interface {
	require.TestingT
	Helper()
	Fatalf(format string, args ...any)
	Cleanup(func())
	Name() string
}

// server is the encryption of one apiserver, on a clock that stands still and
// with a log that can be read.
type server struct {
	*atrest.Encryption
	t     tb
	name  string // in metrics
	clock *stillClock
	path  string
	ctx   context.Context
	log   ktesting.Buffer
	stop  func() // ends following the file
}

// unprinted keeps a log out of the test's output.
type unprinted struct{}

func (unprinted) Helper()    {}
func (unprinted) Log(...any) {}

// prepare places the file of a server that is started later.
func prepare(t tb, content string) *server {
	folder, err := os.MkdirTemp("", "faults")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(folder)) })
	logger := ktesting.NewLogger(unprinted{}, ktesting.NewConfig(ktesting.BufferLogs(true), ktesting.Verbosity(10)))
	s := &server{
		t: t, name: t.Name(), clock: newClock(), path: filepath.Join(folder, "encryption.yaml"),
		ctx: klog.NewContext(context.Background(), logger), log: logger.GetSink().(ktesting.Underlier).GetBuffer(),
		stop: func() {},
	}
	s.put(content)
	return s
}

// options are those of the server; change may be nil.
func (s *server) options(change func(*atrest.Options)) *atrest.Options {
	o := atrest.NewOptions()
	o.ConfigFile, o.AutomaticReload, o.KMS.Clock = s.path, true, s.clock
	if change != nil {
		change(o)
	}
	return o
}

func (s *server) start(change func(*atrest.Options)) *server {
	var err error
	s.Encryption, err = s.options(change).Start(s.ctx, s.name)
	require.NoError(s.t, err)
	s.t.Cleanup(s.end)
	return s
}

func start(t tb, content string) *server { return prepare(t, content).start(nil) }

// follow follows the file.
func (s *server) follow() *server {
	ctx, stop := context.WithCancel(s.ctx)
	ended := make(chan error)
	go func() { ended <- s.Run(ctx) }()
	s.stop = sync.OnceFunc(func() {
		stop()
		require.NoError(s.t, <-ended)
	})
	s.looked()
	return s
}

// end shuts the server down. Doing so twice is harmless.
func (s *server) end() {
	s.stop()
	s.Close()
}

// put replaces the file at once, as an editor or a mounted Secret does.
func (s *server) put(content string) {
	require.NoError(s.t, os.WriteFile(s.path+".new", []byte(content), 0o600))
	require.NoError(s.t, os.Rename(s.path+".new", s.path))
}

// How long something real, such as a connection, may take, and how often it is
// looked at.
const (
	patience = 30 * time.Second
	tick     = time.Millisecond
)

// until waits for what comes without time passing on the clock.
func (s *server) until(condition func() bool, what string) {
	s.t.Helper()
	require.Eventually(s.t, condition, patience, tick, what)
}

// passUntil lets time pass, in steps than which no timer is shorter, until
// something has come.
func (s *server) passUntil(condition func() bool, what string) {
	s.t.Helper()
	s.until(func() bool {
		if condition() {
			return true
		}
		s.clock.Step(reload.DefaultQuiet)
		return false
	}, what)
}

// The poll rates of KMS v2, see the operations page.
const (
	healthyPoll   = 60 * time.Second
	unhealthyPoll = 10 * time.Second
	writeWindow   = 180 * time.Second
	reloadPoll    = reload.DefaultPoll
)

// idle waits until a loop has done all that is due and waits for its next poll.
func (s *server) idle(poll time.Duration) {
	s.t.Helper()
	s.until(func() bool { return s.clock.waitingAnew(poll, poll) }, "the loop waits for its next poll")
}

// comesTo waits until something is known of plugins without a poll being due. A
// plugin that was well and is out of reach counts when it is so for a moment:
// that is let pass.
func (s *server) comesTo(condition func() bool, what string) {
	s.t.Helper()
	s.until(func() bool {
		if condition() {
			return true
		}
		if s.clock.waitingAnew(plugin.Grace, plugin.Grace) {
			s.clock.Step(plugin.Grace)
		}
		return false
	}, what)
}

// allIdle waits until the loops of all plugins have done all that is due and
// wait for their next poll. It is for a server that does not follow its file.
func (s *server) allIdle() {
	s.t.Helper()
	s.until(s.allPaused, "all loops wait for their next poll")
}

// allPaused reports whether every follower of a plugin waits for its next poll.
func (s *server) allPaused() bool {
	return s.clock.waiting(func(t *timer) bool { return t.poll }) >= len(s.Status().Providers)
}

// looked waits until the file was looked at, at this moment of the clock, while
// it had not settled.
func (s *server) looked() {
	s.t.Helper()
	s.until(func() bool { return s.clock.waitingAnew(0, reloadPoll/10) }, "the file was looked at")
}

// provider is what is known of the plugin that a provider is on.
func (s *server) provider(name string) healthz.Provider {
	s.t.Helper()
	for _, p := range s.Status().Providers {
		if p.Names[0] == name {
			return p
		}
	}
	s.t.Fatalf("no provider %q", name)
	return healthz.Provider{}
}

func (s *server) check() error { return s.HealthChecker().Check(nil) }

// healthy reports whether the check passes.
func (s *server) healthy() bool { return s.check() == nil }

func (s *server) write(r schema.GroupResource) ([]byte, error) {
	return s.ResourceTransformers().TransformerForResource(r).TransformToStorage(context.Background(), []byte("plain"), at)
}

func (s *server) mustWrite(r schema.GroupResource) []byte {
	s.t.Helper()
	out, err := s.write(r)
	require.NoError(s.t, err)
	return out
}

func (s *server) read(r schema.GroupResource, stored []byte) error {
	s.t.Helper()
	out, _, err := s.ResourceTransformers().TransformerForResource(r).TransformFromStorage(context.Background(), stored, at)
	if err == nil {
		require.Equal(s.t, "plain", string(out))
	}
	return err
}

func (s *server) mustRead(r schema.GroupResource, stored []byte) {
	s.t.Helper()
	require.NoError(s.t, s.read(r, stored))
}

// stale reports whether a value is to be written again.
func (s *server) stale(r schema.GroupResource, stored []byte) bool {
	s.t.Helper()
	_, stale, err := s.ResourceTransformers().TransformerForResource(r).TransformFromStorage(context.Background(), stored, at)
	require.NoError(s.t, err)
	return stale
}

// elsewhere are values written by n other servers, each under a key of its own,
// with the plugin that name is on.
func elsewhere(t tb, n int, name string, p *faultplugin.Plugin) [][]byte {
	var values [][]byte
	for range n {
		other := prepare(t, fileOf(rule("secrets", kms(name, p))))
		other.name = "elsewhere"
		var err error
		other.Encryption, err = other.options(nil).Start(other.ctx, other.name)
		require.NoError(t, err)
		values = append(values, other.mustWrite(secrets))
		other.Close()
	}
	return values
}

func sorted[T cmp.Ordered](list []T) []T {
	slices.Sort(list)
	return list
}
