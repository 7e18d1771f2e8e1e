package preflight

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/envelope"
	"github.com/kube-atrest/atrest/envelope/kmsv1"
)

// Options are how plugins are asked. The zero value of each is its default.
type Options struct {
	// Dial and DialV1 reach a plugin; default [envelope.Dial] and [kmsv1.Dial].
	Dial   func(envelope.Endpoint, time.Duration, envelope.Recorder) (envelope.Plugin, error)
	DialV1 func(envelope.Endpoint, time.Duration, envelope.Recorder) (kmsv1.Plugin, error)
	// Clock measures the calls, and Random makes the DEKs.
	Clock  clock.PassiveClock
	Random io.Reader
}

func (o Options) withDefaults() Options {
	if o.Dial == nil {
		o.Dial = envelope.Dial
	}
	if o.DialV1 == nil {
		o.DialV1 = kmsv1.Dial
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Random == nil {
		o.Random = rand.Reader
	}
	return o
}

// Result is what was found out about one plugin.
type Result struct {
	// Names are those of the providers on the plugin, and Kind is that of them all.
	Names    []string    `json:"names"`
	Kind     config.Kind `json:"kind"`
	Endpoint string      `json:"endpoint"`
	// Writes reports whether something is written with the plugin. One that is
	// only read with needs no more than Decrypt.
	Writes bool `json:"writes"`
	// KeyIDHash is [envelope.HashKeyID] of the key_id that Status named. KMS v1
	// has none.
	KeyIDHash string `json:"keyIDHash,omitempty"`
	// Status, Encrypt and Decrypt are how long the calls took, 0 for one that was
	// not made. KMS v1 has no Status.
	Status  time.Duration `json:"statusNanoseconds,omitempty"`
	Encrypt time.Duration `json:"encryptNanoseconds,omitempty"`
	Decrypt time.Duration `json:"decryptNanoseconds,omitempty"`
	// Failure is what is wrong: an apiserver could not do with the plugin what
	// the file asks of it. Nil when it works.
	Failure *Failure `json:"failure,omitempty"`
	// Warnings are what works, and is seldom meant.
	Warnings []string `json:"warnings,omitempty"`
}

// Failure is why a plugin cannot be used.
type Failure struct {
	// Step is the call that failed.
	Step string `json:"step"`
	// Problem is its class.
	Problem envelope.Problem `json:"problem"`
	// Text is one line, with what to do. It holds no key material.
	Text string `json:"text"`
	// Err is the cause.
	Err error `json:"-"`
}

// Error is [Failure.Text].
func (f *Failure) Error() string { return f.Text }

// Unwrap gives the cause.
func (f *Failure) Unwrap() error { return f.Err }

// Check asks every plugin of a configuration, all at once, and waits for them
// all. The results are in the order of the file. Each call takes as long as the
// provider's timeout at most, and there are at most three.
func Check(ctx context.Context, c *config.Configuration, o Options) []Result {
	o = o.withDefaults()
	plugins := pluginsIn(c)
	results := make([]Result, len(plugins))
	var asked sync.WaitGroup
	for i, p := range plugins {
		asked.Go(func() { results[i] = p.check(ctx, o) })
	}
	asked.Wait()
	warnOfSharedKEKs(results)
	return results
}

// plugin is what is asked once: a socket, a version of the API and a timeout.
type plugin struct {
	kind   config.Kind
	kms    config.KMS
	names  []string
	writes bool
}

func pluginsIn(c *config.Configuration) []*plugin {
	var all []*plugin
	for _, p := range c.Providers() {
		kms := p.KMS()
		if kms.Name == "" {
			continue
		}
		i := slices.IndexFunc(all, func(q *plugin) bool {
			return q.kind == p.Kind() && q.kms.Address == kms.Address && q.kms.Timeout == kms.Timeout
		})
		if i < 0 {
			i = len(all)
			all = append(all, &plugin{kind: p.Kind(), kms: kms})
		}
		all[i].names = append(all[i].names, kms.Name)
		all[i].writes = all[i].writes || p.Writes()
	}
	return all
}

func (p *plugin) check(ctx context.Context, o Options) Result {
	r := &Result{Names: p.names, Kind: p.kind, Endpoint: p.kms.Endpoint, Writes: p.writes}
	if p.kind == config.KMSv1 {
		r.Failure = p.checkV1(ctx, o, r)
	} else {
		r.Failure = p.checkV2(ctx, o, r)
	}
	return *r
}

// endpoint is the one form that says what the file means.
func (p *plugin) endpoint() envelope.Endpoint { return envelope.Endpoint(p.kms.URL()) }

// warnOfSharedKEKs tells of two plugins with one KEK: moving from one to the
// other changes nothing about who can read.
func warnOfSharedKEKs(results []Result) {
	first := map[string]string{}
	for i := range results {
		r := &results[i]
		if r.KeyIDHash == "" {
			continue
		}
		if other, ok := first[r.KeyIDHash]; ok {
			r.Warnings = append(r.Warnings, fmt.Sprintf("it has the key_id of %q too: if that is the same KEK, moving from one to the other protects nothing", other))
			continue
		}
		first[r.KeyIDHash] = r.Names[0]
	}
}

// timed is how long a call took, at least a nanosecond so that it shows.
func timed(c clock.PassiveClock, call func() error) (time.Duration, error) {
	start := c.Now()
	err := call()
	return max(c.Since(start), 1), err
}
