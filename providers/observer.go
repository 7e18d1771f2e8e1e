package providers

import (
	"sync"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/kube-atrest/atrest/envelope"
	"github.com/kube-atrest/atrest/envelope/kmsv1"
	"github.com/kube-atrest/atrest/internal/metrics"
)

// observer turns what happens at one plugin into metrics and log lines, by the
// name that the file in use has for it. Of a plugin that no file in use has it
// says nothing: it is being tried, or on its way out. Safe for concurrent use.
type observer struct {
	apiServerID string
	logger      klog.Logger

	clock    clock.PassiveClock
	recorded *recorded

	mu   sync.Mutex
	name string // empty for none
}

var (
	_ envelope.Observer = (*observer)(nil)
	_ kmsv1.Observer    = (*observer)(nil)
)

func newObserver(o Options) *observer {
	made := &observer{apiServerID: o.APIServerID, logger: o.Logger, clock: clock.RealClock{}, recorded: &recorded{}}
	if o.Envelope.Clock != nil {
		made.clock = o.Envelope.Clock
	}
	return made
}

// record records something under the plugin's name, if it has one. No record
// comes after it was forgotten.
func (o *observer) record(what func(metrics.KMS)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.name != "" {
		what(metrics.KMS{Provider: o.name, APIServerID: o.apiServerID})
	}
}

// rename names the plugin from now on. What was forgotten with the name before is
// recorded under the new one.
func (o *observer) rename(name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.name != name {
		o.name = name
		o.recorded.statusAgain(metrics.KMS{Provider: name, APIServerID: o.apiServerID})
	}
}

// forget forgets the name, and what was recorded under it.
func (o *observer) forget() { o.forgetUnless("") }

// forgetUnless is forget unless the name stays the same. When names change hands,
// all that lose theirs come first.
func (o *observer) forgetUnless(name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.name != "" && o.name != name {
		metrics.KMS{Provider: o.name}.Forget()
		o.name = ""
	}
}

// logged is the name for a log line, and whether there is to be one.
func (o *observer) logged() (name string, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.name, o.name != ""
}

// used records what was read and written since it was last recorded.
func (o *observer) used(usage func() map[string]envelope.Use) {
	o.record(func(kms metrics.KMS) { o.recorded.use(kms, usage, o.clock.Now()) })
}

// usedV1 is the same for KMS v1.
func (o *observer) usedV1(usage func() envelope.Use) {
	o.record(func(kms metrics.KMS) { o.recorded.useV1(kms.V1(), usage) })
}

func (o *observer) called(method string, took time.Duration, err error) {
	o.record(func(kms metrics.KMS) { kms.Call(method, took, err) })
}

func (o *observer) StatusSeen(keyID string) {
	o.recorded.status(keyID, o.clock.Now())
	o.record(func(kms metrics.KMS) { kms.StatusKeyID(keyID) })
}

func (o *observer) KeyIDRefused(err error) {
	o.record(func(kms metrics.KMS) { kms.KeyIDRefused(err) })
}

func (o *observer) DEKMade(reason string, took time.Duration, err error) {
	o.record(func(kms metrics.KMS) { kms.DEKMade(reason, took, err) })
	if name, ok := o.logged(); ok && err == nil {
		o.logger.V(1).Info("Made a data encryption key", "provider", name, "reason", reason)
	}
}

func (o *observer) DEKUnwrapped(size int) {
	o.record(func(kms metrics.KMS) {
		kms.CacheMiss()
		kms.CacheSize(size)
	})
}

func (o *observer) DEKsDropped(size int) {
	o.record(func(kms metrics.KMS) { kms.CacheSize(size) })
}

func (o *observer) DEKGenerated(took time.Duration, err error) {
	o.record(func(kms metrics.KMS) { kms.V1().DEKGenerated(took, err) })
}

func (o *observer) CacheMissed() { o.record(func(kms metrics.KMS) { kms.V1().CacheMiss() }) }

func (o *observer) CacheFilled(share float64) {
	o.record(func(kms metrics.KMS) { kms.V1().CacheFill(share) })
}

func (o *observer) CBCOpened() { o.record(func(kms metrics.KMS) { kms.V1().CBCFallback() }) }

func (o *observer) CBCNoted(etcdKey string, n uint64) {
	name, _ := o.logged()
	o.logger.Info("Warning: opened values as AES-CBC, which authenticates nothing: write them again to be rid of it",
		"provider", name, "values", n, "latest", etcdKey)
}

func (o *observer) Changed(h envelope.Health) {
	name, ok := o.logged()
	if !ok {
		return
	}
	if h.Problem == "" {
		o.logger.Info("KMS plugin is healthy", "provider", name, "keyIDHash", h.KeyIDHash)
		return
	}
	if !h.Writes {
		o.logger.Error(h.Err, "KMS plugin is not healthy", "provider", name, "problem", h.Problem, "since", h.Since, "role", "read")
		return
	}
	o.logger.Error(h.Err, "KMS plugin is not healthy", "provider", name, "problem", h.Problem, "since", h.Since, "writesUntil", h.WritesUntil)
}
