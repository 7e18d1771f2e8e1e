package envelope

import (
	"cmp"
	"crypto/rand"
	"io"
	"time"

	"k8s.io/utils/clock"
)

// The defaults of [Options], those of kube-apiserver and KEP-3299.
const (
	DefaultWriteWindow   = 3 * time.Minute
	DefaultHealthyPoll   = 60 * time.Second
	DefaultUnhealthyPoll = 10 * time.Second
)

// Options are how a provider works. The zero value of every field is its default.
type Options struct {
	// Mode is how values are sealed; default the first of [WriteModes].
	Mode WriteMode
	// WriteWindow is how long writing goes on after Status was last healthy.
	WriteWindow time.Duration
	// HealthyPoll and UnhealthyPoll are the times between two calls of Status.
	HealthyPoll, UnhealthyPoll time.Duration
	// MaxWrites is how many values one DEK seals; default [DefaultMaxWrites].
	MaxWrites uint64
	// MaxDEKs is how many unwrapped DEKs are kept; default [DefaultMaxDEKs].
	MaxDEKs int
	// MaxDEKAge is how long an unwrapped DEK is kept for reading, used or not;
	// default 0, without end, so that an outage of the plugin costs no key that
	// was in use. A DEK that is dropped has to be unwrapped again by the next
	// read under it. See [Provider.DropAged].
	MaxDEKAge time.Duration
	// Clock and Random are the time and the randomness, by default the real
	// ones. Random must be fit for keys.
	Clock  clock.WithTickerAndDelayedExecution
	Random io.Reader
	// Observer is told what happens; default nobody.
	Observer Observer
}

func (o Options) withDefaults() Options {
	o.Mode = cmp.Or(o.Mode, WriteModes()[0])
	o.WriteWindow = cmp.Or(o.WriteWindow, DefaultWriteWindow)
	o.HealthyPoll = cmp.Or(o.HealthyPoll, DefaultHealthyPoll)
	o.UnhealthyPoll = cmp.Or(o.UnhealthyPoll, DefaultUnhealthyPoll)
	o.MaxWrites = cmp.Or(o.MaxWrites, DefaultMaxWrites)
	o.MaxDEKs = cmp.Or(o.MaxDEKs, DefaultMaxDEKs)
	o.Clock = cmp.Or[clock.WithTickerAndDelayedExecution](o.Clock, clock.RealClock{})
	o.Random = cmp.Or[io.Reader](o.Random, rand.Reader)
	o.Observer = cmp.Or[Observer](o.Observer, silent{})
	return o
}

// Observer is told what happens beside the way of a value, for metrics and
// logs. Its methods are called by several goroutines, must not block, and are
// never given key material.
type Observer interface {
	// StatusSeen: Status answered with a usable key_id.
	StatusSeen(keyID string)
	// KeyIDRefused: Status answered with an empty or oversized key_id.
	KeyIDRefused(err error)
	// DEKMade: a DEK was generated and wrapped, or that failed.
	DEKMade(reason string, took time.Duration, err error)
	// DEKUnwrapped: a DEK was not in the cache and the plugin unwrapped it.
	// Now size of them are held.
	DEKUnwrapped(size int)
	// DEKsDropped: DEKs of the maximum age were dropped. Now size are held.
	DEKsDropped(size int)
	// Changed: the provider's health became another.
	Changed(h Health)
}

type silent struct{}

func (silent) StatusSeen(string)                    {}
func (silent) KeyIDRefused(error)                   {}
func (silent) DEKMade(string, time.Duration, error) {}
func (silent) DEKUnwrapped(int)                     {}
func (silent) DEKsDropped(int)                      {}
func (silent) Changed(Health)                       {}
