package kmsv1

import (
	"cmp"
	"crypto/rand"
	"io"
	"time"

	"k8s.io/utils/clock"

	"github.com/kube-atrest/atrest/envelope"
)

// defaultCacheSize is how many unwrapped DEKs a provider keeps, as in
// kube-apiserver.
const defaultCacheSize = 1000

// Options are how a provider works. The zero value of every field is its default.
type Options struct {
	// CacheSize is how many unwrapped DEKs are kept, some 3 KiB each; default
	// 1000. None are if it is negative: then every read asks the plugin, and
	// fails with it.
	CacheSize int
	// MaxDEKAge is how long an unwrapped DEK is kept, used or not; default 0,
	// without end. See [Provider.DropAged].
	MaxDEKAge time.Duration
	// HealthyPoll and UnhealthyPoll are the times between two probes of a
	// plugin that is written with; default those of package envelope.
	HealthyPoll, UnhealthyPoll time.Duration
	// Clock and Random are the time and the randomness, by default the real
	// ones. Random must be fit for keys.
	Clock  clock.Clock
	Random io.Reader
	// Observer is told what happens; default nobody.
	Observer Observer
}

func (o Options) withDefaults() Options {
	o.CacheSize = cmp.Or(o.CacheSize, defaultCacheSize)
	o.HealthyPoll = cmp.Or(o.HealthyPoll, envelope.DefaultHealthyPoll)
	o.UnhealthyPoll = cmp.Or(o.UnhealthyPoll, envelope.DefaultUnhealthyPoll)
	o.Clock = cmp.Or[clock.Clock](o.Clock, clock.RealClock{})
	o.Random = cmp.Or[io.Reader](o.Random, rand.Reader)
	o.Observer = cmp.Or[Observer](o.Observer, silent{})
	return o
}

// Observer is told what happens beside the way of a value, for metrics and
// logs. Its methods are called by several goroutines, must not block, and are
// never given key material.
type Observer interface {
	// DEKGenerated: a DEK was generated for a write, or that failed.
	DEKGenerated(took time.Duration, err error)
	// CacheMissed: a DEK was not in the cache and had to be unwrapped.
	CacheMissed()
	// CacheFilled: DEKs were added or dropped; now share, from 0 to 1, of the
	// cache is in use.
	CacheFilled(share float64)
	// CBCOpened: a value did not open as AES-GCM and was opened as AES-CBC.
	CBCOpened()
	// CBCNoted: n values were since the last note, the latest at etcdKey. It
	// is called with the first of them and then at most once a minute.
	CBCNoted(etcdKey string, n uint64)
	// Changed: the health of a provider that writes became another.
	Changed(h envelope.Health)
}

type silent struct{}

func (silent) DEKGenerated(time.Duration, error) {}
func (silent) CacheMissed()                      {}
func (silent) CacheFilled(float64)               {}
func (silent) CBCOpened()                        {}
func (silent) CBCNoted(string, uint64)           {}
func (silent) Changed(envelope.Health)           {}
