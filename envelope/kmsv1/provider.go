package kmsv1

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"k8s.io/apiserver/pkg/storage/value"

	"github.com/kube-atrest/atrest/envelope"
	"github.com/kube-atrest/atrest/internal/plugin"
	"github.com/kube-atrest/atrest/internal/redact"
	"github.com/kube-atrest/atrest/transformer"
)

// Provider encrypts and decrypts with one KMS v1 plugin: one connection, one
// cache of DEKs, and one goroutine that follows how the plugin is. It is shared
// by all who mention the plugin, and does not name itself in errors. Safe for
// concurrent use.
//
// A provider lives for as long as somebody holds it (Hold). It can be read with
// from the start, and written with while it has the role [envelope.Writes].
type Provider struct {
	redact.As
	followed *plugin.Followed
	plugin   Plugin
	opts     Options

	cache   *cache
	unwraps plugin.Unwrapper[*dek]
	samples *plugin.Samples[[]byte]
	latest  atomic.Pointer[[]byte] // what was last wrapped
	usage   *usage
	notes   notes

	proof atomic.Pointer[proof]         // of what was last tried ahead of writing
	kept  atomic.Pointer[plugin.Record] // of unwrapping what was wrapped just before
}

var _ transformer.Provider = (*Provider)(nil)

// NewProvider makes a provider of a plugin, which it owns from then on: the
// plugin is closed when the last hold ends. It calls nobody before it has a role
// or has a DEK to wrap or unwrap.
func NewProvider(owned Plugin, opts Options) *Provider {
	opts = opts.withDefaults()
	p := &Provider{As: "KMS v1 provider", plugin: bounded{owned}, opts: opts, cache: newCache(opts.CacheSize), usage: &usage{}, samples: &plugin.Samples[[]byte]{}}
	p.kept.Store(&plugin.Record{})
	p.followed = plugin.Follow(plugin.Config{
		Clock: opts.Clock, Healthy: opts.HealthyPoll, Unhealthy: opts.UnhealthyPoll,
		OnlyWriters: true, Wake: owned.Wake(),
		Ask:     p.ask,
		Changed: func() { opts.Observer.Changed(p.Health()) },
		Close:   func() { _ = owned.Close() }, // there is nobody left whom an error could concern
	})
	return p
}

// Inherit has the provider share the counts of another one on the same plugin, and
// the DEKs in memory, if it keeps as many: as when a plugin is called with two
// timeouts, or with another from now on. Call it before the provider is used.
func (p *Provider) Inherit(from *Provider) {
	p.usage, p.samples = from.usage, from.samples
	if p.cache.max == from.cache.max {
		p.cache = from.cache
	}
}

// Hold keeps the provider open until end is called. The last one to end closes
// it: that waits for calls under way, which their timeout bounds. Ending twice is
// harmless.
func (p *Provider) Hold() (end func()) { return p.followed.Hold() }

// Ask has the plugin probed now, if it is written with, and waits for what comes
// of it. One that was probed within the last second is not probed again. It fails
// when ctx ends, and with [envelope.ErrClosed].
func (p *Provider) Ask(ctx context.Context) error { return p.followed.Ask(ctx) }

// Ailing is what is known to be wrong with the plugin in the provider's present
// role, also what is new and does not count yet: nil for nothing.
func (p *Provider) Ailing() error { return p.followed.Load().Ailing(p.followed.Role()).Cause() }

// Open decrypts the record in payload, for the etcd key in at. It is stale
// when it is AES-CBC, see the package. It fails with [envelope.ErrCorrupt], or
// with [envelope.ErrUnavailable] or [envelope.ErrUnknownKEK] when the DEK is not
// in the cache and the plugin does not unwrap it. payload is neither changed
// nor kept.
func (p *Provider) Open(ctx context.Context, payload []byte, at value.Context) ([]byte, bool, error) {
	wrapped, data, ok := split(payload)
	if !ok {
		return nil, false, fmt.Errorf("%w: its %d bytes are too few for a KMS v1 record", envelope.ErrCorrupt, len(payload))
	}
	d := p.cache.find(wrapped)
	if d == nil {
		var err error
		if d, err = p.unwrap(ctx, wrapped); err != nil {
			return nil, false, err
		}
	}
	plaintext, asCBC, err := d.open(ctx, data, at)
	if (err != nil || asCBC) && !d.proven.Load() {
		// Only AES-GCM proves a DEK: that the padding of AES-CBC was right may be
		// chance, and then the plugin has to be asked again.
		p.cache.forget(d)
	}
	if err != nil {
		return nil, false, fmt.Errorf("%w: it does not open under its own DEK", envelope.ErrCorrupt)
	}
	if asCBC {
		p.noteCBC(at)
	} else if !d.proven.Load() {
		d.proven.Store(true)
	}
	p.usage.reads.Add(1)
	return plaintext, asCBC, nil
}

// noteCBC tells of a value that was opened as AES-CBC.
func (p *Provider) noteCBC(at value.Context) {
	p.opts.Observer.CBCOpened()
	if n := p.notes.due(p.opts.Clock.Now()); n > 0 {
		p.opts.Observer.CBCNoted(string(at.AuthenticatedData()), n)
	}
}

// unwrap has the plugin unwrap a DEK, once for all who wait for it. As the call
// may outlast its caller, it has its own copy of what is wrapped.
func (p *Provider) unwrap(ctx context.Context, wrapped []byte) (*dek, error) {
	own := bytes.Clone(wrapped)
	return p.unwraps.Unwrap(ctx, p.followed, plugin.Call[*dek]{
		ID: string(own),
		Find: func() (*dek, bool) {
			d := p.cache.find(own)
			return d, d != nil
		},
		Decrypt: func(ctx context.Context) (*dek, *plugin.Trouble, error) {
			if !p.cache.off() {
				p.opts.Observer.CacheMissed()
			}
			d, t, err := p.callDecrypt(ctx, own)
			if err != nil && !plugin.OfTheValue(err) {
				p.samples.Refused(&own)
			}
			if err != nil {
				return nil, t, err
			}
			p.samples.Unwrapped(&own, true)
			p.remember(own, d)
			return d, nil, nil
		},
	})
}

// callDecrypt asks the plugin for a DEK.
func (p *Provider) callDecrypt(ctx context.Context, wrapped []byte) (*dek, *plugin.Trouble, error) {
	secret, err := p.plugin.Decrypt(ctx, wrapped)
	if err != nil {
		return nil, troubleOf("decrypt", err), err
	}
	defer clear(secret)
	d, err := newStoredDEK(secret)
	if err != nil {
		err = fmt.Errorf("%w: %w", plugin.ErrNoKey, err)
		return nil, plugin.Troublef(plugin.BadAnswer, "decrypt: %w", err), err
	}
	return d, nil, nil
}

func (p *Provider) remember(wrapped []byte, d *dek) {
	if p.cache.off() {
		return
	}
	p.cache.add(wrapped, d, p.opts.Clock.Now())
	p.opts.Observer.CacheFilled(p.cache.fill())
}

// Seal encrypts plaintext for the etcd key in at, under a DEK of its own which
// the plugin wraps, and returns prefix and the record in one new slice. It
// fails with [envelope.ErrUnavailable] when the plugin does not wrap the DEK,
// and with [envelope.ErrWritesStopped] when the provider's role is not to
// write, or when the plugin was last seen not to unwrap what it wraps. plaintext
// is neither changed nor kept.
func (p *Provider) Seal(ctx context.Context, prefix string, plaintext []byte, at value.Context) ([]byte, error) {
	if p.followed.Role() != envelope.Writes {
		return nil, fmt.Errorf("%w: it is configured to read only", envelope.ErrWritesStopped)
	}
	if !p.followed.Begin() {
		return nil, fmt.Errorf("%w: the configuration that named it was replaced", envelope.ErrClosed)
	}
	defer p.followed.Done()
	if err := p.lost(); err != nil {
		return nil, err
	}
	d, wrapped, err := p.makeDEK(ctx)
	if err != nil {
		return nil, err
	}
	out, err := d.gcm.Seal(ctx, head(prefix, wrapped), plaintext, at)
	if err != nil {
		return nil, fmt.Errorf("seal: %w", err)
	}
	p.remember(wrapped, d)
	p.usage.writes.Add(1)
	return out, nil
}

// lost is why what is written could not be read again, as far as is known: the
// plugin was never seen to unwrap what it wraps, or last did not though it was
// neither away nor busy, or was not seen to for as long as KMS v2 may be written with
// then. It is asked again soon. What becomes of other values says nothing of that: one
// may be damaged, or older than a plugin that no longer wraps what it can unwrap.
func (p *Provider) lost() error {
	kept := p.kept.Load()
	refuses := kept.Trouble != nil && !kept.LostContact() && kept.Problem != plugin.Throttled
	if !refuses && !kept.WellAt.IsZero() && p.opts.Clock.Since(kept.WellAt) <= p.window() {
		return nil
	}
	p.followed.Look()
	cause := kept.Cause()
	if cause == nil {
		cause = p.followed.Load().Ailing(envelope.Writes).Cause()
	}
	if cause == nil {
		cause = errors.New("it was not asked in time")
	}
	switch {
	case kept.WellAt.IsZero():
		return fmt.Errorf("%w: the plugin was not yet seen to unwrap what it wraps: %w", envelope.ErrUnavailable, cause)
	case refuses:
		return fmt.Errorf("%w: the plugin does not unwrap what it wraps: %w", envelope.ErrWritesStopped, cause)
	}
	return fmt.Errorf("%w: the plugin was last seen to unwrap what it wraps at %s: %w",
		envelope.ErrWritesStopped, kept.WellAt.UTC().Format(time.RFC3339), cause)
}

// window is for how long a plugin may be written with that was not seen to unwrap.
func (p *Provider) window() time.Duration {
	return max(envelope.DefaultWriteWindow, 2*p.opts.HealthyPoll)
}

// makeDEK generates a DEK and has the plugin wrap it.
func (p *Provider) makeDEK(ctx context.Context) (*dek, []byte, error) {
	secret := make([]byte, dekSize)
	defer clear(secret)
	start := p.opts.Clock.Now()
	_, err := io.ReadFull(p.opts.Random, secret)
	p.opts.Observer.DEKGenerated(p.opts.Clock.Since(start), err)
	if err != nil {
		return nil, nil, fmt.Errorf("generate a DEK: %w", err)
	}
	wrapped, t := p.wrap(ctx, secret)
	if ctx.Err() == nil { // what failed because its client gave up says nothing of the plugin
		p.wrote(t)
	}
	if t != nil {
		return nil, nil, fmt.Errorf("%w: it did not wrap the DEK of the value to write; look at the plugin: %w", envelope.ErrUnavailable, t.Err)
	}
	d, err := newDEK(secret)
	if err != nil {
		return nil, nil, fmt.Errorf("build the DEK: %w", err)
	}
	return d, wrapped, nil
}

// DropAged drops the DEKs that were unwrapped or made longer than
// [Options.MaxDEKAge] ago. Nothing does so by itself: call it every few seconds.
func (p *Provider) DropAged() {
	if p.opts.MaxDEKAge <= 0 || p.cache.off() {
		return
	}
	if p.cache.dropBefore(p.opts.Clock.Now().Add(-p.opts.MaxDEKAge)) {
		p.opts.Observer.CacheFilled(p.cache.fill())
	}
}

// Health is what the provider knows of itself now. One that writes is probed:
// LastHealthy is when it last wrapped and unwrapped. KMS v1 writes nothing
// without its plugin, so WritesUntil is LastHealthy when there is a problem and
// zero when there is none. There is no key_id and no write DEK.
func (p *Provider) Health() envelope.Health {
	k, c := p.followed.Load(), p.followed.Condition()
	h := envelope.Health{Writes: p.followed.Role() == envelope.Writes, Since: c.Since, CachedDEKs: p.cache.len()}
	if c.Trouble != nil {
		h.Problem, h.Err = c.Problem, c.Err
	}
	if h.Writes {
		h.LastHealthy = plugin.Earlier(k.Encrypt.WellAt, k.Decrypt.WellAt)
		if h.Problem != "" {
			h.WritesUntil = h.LastHealthy
		}
	}
	p.usage.into(&h)
	return h
}
