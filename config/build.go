package config

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/klog/v2"

	"github.com/kube-atrest/atrest/envelope"
	"github.com/kube-atrest/atrest/envelope/kmsv1"
	"github.com/kube-atrest/atrest/internal/metrics"
	"github.com/kube-atrest/atrest/transformer"
)

// BuildOptions are what the providers of a file work with. The zero value of
// each is its default.
type BuildOptions struct {
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

// Build makes the transformers of a checked configuration. A KMS provider that
// previous uses already (the same plugin, called with the same timeout) is
// taken over with its connection, its DEK and its cache; previous may be nil.
// Build waits for nobody: see [Transformers.Ready].
//
// The caller owns the result and must close it, after which nothing that Build
// started is left.
func Build(c *Configuration, previous *Transformers, o BuildOptions) (*Transformers, error) {
	if o.Dial == nil {
		o.Dial = envelope.Dial
	}
	if o.DialV1 == nil {
		o.DialV1 = kmsv1.Dial
	}
	t := &Transformers{configuration: c, entries: map[*Provider][]transformer.Entry{}, warming: make(chan struct{}, WarmAtOnce)}
	for _, p := range c.Providers() {
		entries, err := t.build(p, previous, o)
		if err != nil {
			t.Close()
			return nil, fmt.Errorf("%s: %w", p.Path(), err)
		}
		t.entries[p] = entries
	}
	for _, u := range t.plugins {
		u.begin()
	}
	return t, nil
}

// build makes the entries of one element of the file, in the order of its keys.
func (t *Transformers) build(p *Provider, previous *Transformers, o BuildOptions) ([]transformer.Entry, error) {
	switch p.Kind() {
	case Identity:
		e := identityEntry()
		e.Reads = t.localUse(means{name: string(Identity)}, previous)
		return []transformer.Entry{e}, nil
	case AESGCM:
		return t.keyEntries(p, previous, transformer.NewAESGCM)
	case AESCBC:
		return t.keyEntries(p, previous, transformer.NewAESCBC)
	case Secretbox:
		return t.keyEntries(p, previous, transformer.NewSecretbox)
	case KMSv1, KMSv2:
		return t.kmsEntries(p, previous, o)
	}
	return nil, fmt.Errorf("%s providers cannot be built", p.Kind())
}

func identityEntry() transformer.Entry {
	return transformer.Entry{Label: metrics.PrefixIdentity, Provider: transformer.Identity()}
}

func (t *Transformers) keyEntries(p *Provider, previous *Transformers, make func([]byte) (transformer.Provider, error)) ([]transformer.Entry, error) {
	format, _ := p.Kind().format()
	var entries []transformer.Entry
	for i, key := range p.Keys() {
		secret := key.Secret()
		built, err := make(secret)
		clear(secret)
		if err != nil {
			return nil, fmt.Errorf("keys[%d]: %w", i, err)
		}
		entries = append(entries, transformer.Entry{
			Prefix: format.PrefixFor(key.Name), Label: format.Prefix, Provider: built,
			Reads: t.localUse(meansOfKey(p.Kind(), key), previous),
		})
	}
	return entries, nil
}

// kmsEntries makes the entry of a KMS provider on its plugin, which other
// elements of the file may name too.
func (t *Transformers) kmsEntries(p *Provider, previous *Transformers, o BuildOptions) ([]transformer.Entry, error) {
	u, err := t.plugin(p, previous, o)
	if err != nil {
		return nil, err
	}
	u.providers = append(u.providers, p)
	format, _ := p.Kind().format()
	prefix := format.PrefixFor(p.KMS().Name)
	return []transformer.Entry{{Prefix: prefix, Label: prefix, Provider: u.held}}, nil
}

// plugin is the use of a plugin: one that this file named before, else one that
// the previous file used, else a new one.
func (t *Transformers) plugin(p *Provider, previous *Transformers, o BuildOptions) (*pluginUse, error) {
	kms := p.KMS()
	id := pluginID{kind: p.Kind(), socket: kms.Address, timeout: kms.Timeout, cacheSize: kms.CacheSize}
	if u := t.use(id); u != nil {
		return u, nil
	}
	u := &pluginUse{id: id}
	if old := previous.use(id); old != nil {
		u.observer, u.source, u.wroteBefore = old.observer, old.source, old.writes()
	} else if err := u.dial(kms, o); err != nil {
		return nil, err
	}
	u.held = u.source.toHold()
	t.plugins = append(t.plugins, u)
	return u, nil
}

func (u *pluginUse) dial(kms KMS, o BuildOptions) error {
	u.observer = newObserver(kms.Name, o)
	if u.id.kind == KMSv1 {
		return u.dialV1(kms, o)
	}
	plugin, err := o.Dial(endpointOf(kms), kms.Timeout, u.observer.called)
	if err != nil {
		return err
	}
	opts := o.Envelope
	opts.Observer = u.observer
	u.source = v2{envelope.NewProvider(kms.Name, plugin, opts)}
	return nil
}

func (u *pluginUse) dialV1(kms KMS, o BuildOptions) error {
	plugin, err := o.DialV1(endpointOf(kms), kms.Timeout, u.observer.called)
	if err != nil {
		return err
	}
	e := o.Envelope
	u.source = v1{kmsv1.NewProvider(kms.Name, plugin, kmsv1.Options{
		CacheSize: kms.CacheSize, MaxDEKAge: e.MaxDEKAge, HealthyPoll: e.HealthyPoll, UnhealthyPoll: e.UnhealthyPoll,
		Clock: e.Clock, Random: e.Random, Observer: u.observer,
	})}
	return nil
}

// endpointOf is the endpoint in the one form that says what it means.
func endpointOf(kms KMS) envelope.Endpoint {
	if kms.Address != "" && kms.Address[0] == '@' {
		return envelope.Endpoint("unix:///" + kms.Address)
	}
	return envelope.Endpoint("unix://" + kms.Address)
}

// Ready waits until every plugin that this file begins to write with was asked
// for the first time. It returns a [NotReady] error if one of them cannot be
// written with yet. Plugins that were written with before, and those that are
// only read, are not waited for: the file makes nothing worse for them.
func (t *Transformers) Ready(ctx context.Context) error {
	var errs []error
	for _, u := range t.plugins {
		if !u.writes() || u.wroteBefore {
			continue
		}
		if err := u.inUse.Probed(ctx); err != nil {
			return err
		}
		if h := u.inUse.Health(); h.Problem != "" {
			errs = append(errs, &NotReady{Names: u.names(), Cause: h.Err})
		}
	}
	return errors.Join(errs...)
}

// NotReady says that a KMS plugin that is to be written with is not healthy.
type NotReady struct {
	// Names are those of the providers on the plugin.
	Names []string
	Cause error
}

// Error names the providers and the cause.
func (e *NotReady) Error() string {
	return fmt.Sprintf("kms provider %q is to write and is not healthy: %v", e.Names, e.Cause)
}

// Unwrap gives the cause.
func (e *NotReady) Unwrap() error { return e.Cause }

// Retryable is true: the same file may work once the plugin is healthy.
func (e *NotReady) Retryable() bool { return true }
