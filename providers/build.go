package providers

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/envelope"
	"github.com/kube-atrest/atrest/envelope/kmsv1"
	"github.com/kube-atrest/atrest/internal/metrics"
	"github.com/kube-atrest/atrest/internal/stored"
	"github.com/kube-atrest/atrest/transformer"
)

// Options are what the providers of a file work with. The zero value of
// each is its default.
type Options struct {
	// Envelope is how KMS providers work. Its Observer is set by [Build].
	Envelope envelope.Options
	// Dial reaches a KMS plugin; default [envelope.Dial].
	Dial func(envelope.Endpoint, time.Duration, envelope.Recorder) (envelope.Plugin, error)
	// DialV1 reaches a KMS v1 plugin; default [kmsv1.Dial].
	DialV1 func(envelope.Endpoint, time.Duration, envelope.Recorder) (kmsv1.Plugin, error)
	// APIServerID names the server in metrics.
	APIServerID string
	// Logger is told of changes in the health of KMS plugins; default
	// discards.
	Logger klog.Logger
}

// Build makes the transformers of a checked configuration. It calls no plugin.
// A KMS provider that one of before uses already (the same plugin, called with
// the same timeout) is taken over with its connection, its DEKs and all that is
// known of it. The first of before is the one in use, which the result is to
// replace; there may be none, and nil ones are passed over.
//
// The caller owns the result and must close it, after which nothing that Build
// made is left. To take it into use, call [Transformers.Prepare] and then
// [Transformers.Commit].
func Build(c *config.Configuration, o Options, before ...*Transformers) (*Transformers, error) {
	if o.Dial == nil {
		o.Dial = envelope.Dial
	}
	if o.DialV1 == nil {
		o.DialV1 = kmsv1.Dial
	}
	t := &Transformers{configuration: c, entries: map[*config.Provider][]transformer.Entry{}, warming: make(chan struct{}, warmAtOnce)}
	b := builder{Transformers: t, options: o, before: slices.DeleteFunc(slices.Clone(before), func(t *Transformers) bool { return t == nil })}
	if len(before) > 0 {
		t.replaces = before[0]
	}
	for _, p := range c.Providers() {
		entries, err := b.build(p)
		if err != nil {
			t.Close()
			return nil, fmt.Errorf("%s: %w", p.Path(), err)
		}
		t.entries[p] = entries
	}
	return t, nil
}

// builder fills Transformers.
type builder struct {
	*Transformers
	options Options
	before  []*Transformers
}

// build makes the entries of one element of the file, in the order of its keys.
func (b builder) build(p *config.Provider) ([]transformer.Entry, error) {
	switch p.Kind() {
	case config.Identity:
		e := identityEntry()
		e.Reads = b.localUse(config.PlainMeans())
		return []transformer.Entry{e}, nil
	case config.AESGCM:
		return b.keyEntries(p, transformer.NewAESGCM)
	case config.AESCBC:
		return b.keyEntries(p, transformer.NewAESCBC)
	case config.Secretbox:
		return b.keyEntries(p, transformer.NewSecretbox)
	case config.KMSv1, config.KMSv2:
		return b.kmsEntries(p)
	}
	return nil, fmt.Errorf("%s providers cannot be built", p.Kind())
}

func identityEntry() transformer.Entry {
	return transformer.Entry{Label: metrics.PrefixIdentity, Provider: transformer.Identity()}
}

func (b builder) keyEntries(p *config.Provider, make func([]byte) (transformer.Provider, error)) ([]transformer.Entry, error) {
	format, _ := stored.FormatOf(string(p.Kind()))
	var entries []transformer.Entry
	means := p.Means()
	for i, key := range p.Keys() {
		secret := key.Secret()
		built, err := make(secret)
		clear(secret)
		if err != nil {
			return nil, fmt.Errorf("keys[%d]: %w", i, err)
		}
		entries = append(entries, transformer.Entry{
			Prefix: format.PrefixFor(key.Name), Label: format.Prefix, Provider: built,
			Reads: b.localUse(means[i]),
		})
	}
	return entries, nil
}

// kmsEntries makes the entry of a KMS provider on its plugin, which other
// elements of the file may name too.
func (b builder) kmsEntries(p *config.Provider) ([]transformer.Entry, error) {
	u, err := b.plugin(p)
	if err != nil {
		return nil, err
	}
	u.providers = append(u.providers, p)
	format, _ := stored.FormatOf(string(p.Kind()))
	prefix := format.PrefixFor(p.KMS().Name)
	return []transformer.Entry{{Prefix: prefix, Label: prefix, Provider: u.source}}, nil
}

// plugin is the use of a plugin: one that this file named before, else one that
// an earlier file used, else a new one.
func (b builder) plugin(p *config.Provider) (*pluginUse, error) {
	kms := p.KMS()
	id := pluginID{kind: p.Kind(), socket: kms.Address, timeout: kms.Timeout, cacheSize: kms.CacheSize}
	if u := b.use(id); u != nil {
		return u, nil
	}
	u := &pluginUse{id: id}
	for _, t := range b.before {
		if old := t.use(id); old != nil && u.source == nil {
			u.observer, u.source = old.observer, old.source
		}
	}
	if u.source == nil {
		if err := u.dial(kms, b.options); err != nil {
			return nil, err
		}
		b.inherit(u)
	}
	u.release = u.source.Hold()
	u.counts = b.counting(id) == nil
	b.plugins = append(b.plugins, u)
	return u, nil
}

// inherit has a plugin share what is in memory, and the counts, with those on the
// same socket that are called with another timeout: in this file, or before. All
// that are on one socket do so from their beginning, so any of them will do; best
// one that keeps as many DEKs, as only such share them.
func (b builder) inherit(u *pluginUse) {
	var from *pluginUse
	for _, t := range append([]*Transformers{b.Transformers}, b.before...) {
		for _, old := range t.plugins {
			if old.id.sameSocket(u.id) && (from == nil || from.id.cacheSize != u.id.cacheSize && old.id.cacheSize == u.id.cacheSize) {
				from = old
			}
		}
	}
	if from != nil {
		u.source.inherit(from.source)
		u.observer.recorded = from.observer.recorded
	}
}

// counting is the use that counts for the socket of a plugin; nil if there is none.
func (t *Transformers) counting(id pluginID) *pluginUse {
	if t == nil {
		return nil
	}
	i := slices.IndexFunc(t.plugins, func(u *pluginUse) bool { return u.counts && u.id.sameSocket(id) })
	if i < 0 {
		return nil
	}
	return t.plugins[i]
}

func (u *pluginUse) dial(kms config.KMS, o Options) error {
	u.observer = newObserver(o)
	if u.id.kind == config.KMSv1 {
		return u.dialV1(kms, o)
	}
	plugin, err := o.Dial(envelope.Endpoint(kms.URL()), kms.Timeout, u.observer.called)
	if err != nil {
		return err
	}
	opts := o.Envelope
	opts.Observer = u.observer
	u.source = v2{envelope.NewProvider(plugin, opts)}
	return nil
}

func (u *pluginUse) dialV1(kms config.KMS, o Options) error {
	plugin, err := o.DialV1(envelope.Endpoint(kms.URL()), kms.Timeout, u.observer.called)
	if err != nil {
		return err
	}
	e := o.Envelope
	opts := kmsv1.Options{
		CacheSize: kms.CacheSize, MaxDEKAge: e.MaxDEKAge, HealthyPoll: e.HealthyPoll, UnhealthyPoll: e.UnhealthyPoll,
		Random: e.Random, Observer: u.observer,
	}
	if e.Clock != nil { // else it would be an interface that holds nil
		opts.Clock = e.Clock
	}
	u.source = v1{kmsv1.NewProvider(plugin, opts)}
	return nil
}
