package kmsv1

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"sync/atomic"

	"golang.org/x/sync/singleflight"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apiserver/pkg/storage/value"

	"github.com/kube-atrest/atrest/envelope"
	"github.com/kube-atrest/atrest/internal/plugin"
	"github.com/kube-atrest/atrest/internal/redact"
	"github.com/kube-atrest/atrest/transformer"
)

// Provider encrypts and decrypts with one KMS v1 plugin: one connection, one
// cache of DEKs, and while something is written with it one loop that probes
// it. It is shared by all who mention the plugin, through [Lease]s. Safe for
// concurrent use.
type Provider struct {
	redact.As
	name   string
	plugin Plugin
	opts   Options

	cache   *cache
	leases  plugin.Leases
	unwraps singleflight.Group
	usage   usage
	notes   notes
	reading atomic.Pointer[plugin.Condition] // what the last Decrypt call of a read came to

	prober atomic.Pointer[prober] // nil while nothing is written
}

var _ transformer.Provider = (*Provider)(nil)

// NewProvider makes a provider of a plugin, which it owns from then on: the
// plugin is closed when the last lease ends. name is used in errors only; the
// name in the stored form comes with each call.
func NewProvider(name string, p Plugin, opts Options) *Provider {
	opts = opts.withDefaults()
	provider := &Provider{As: "KMS v1 provider", name: name, plugin: p, opts: opts, cache: newCache(opts.CacheSize)}
	provider.reading.Store(&plugin.Condition{Since: opts.Clock.Now()})
	provider.leases.Follow = provider.follow
	provider.leases.Close = func() { _ = p.Close() } // there is nobody left whom an error could concern
	return provider
}

// Open decrypts the record in payload, for the etcd key in at. It is stale
// when it is AES-CBC, see the package. It fails with [envelope.ErrCorrupt], or
// with [envelope.ErrUnavailable] or [envelope.ErrUnknownKEK] when the DEK is not
// in the cache and the plugin does not unwrap it. payload is neither changed
// nor kept.
func (p *Provider) Open(ctx context.Context, payload []byte, at value.Context) ([]byte, bool, error) {
	wrapped, data, ok := split(payload)
	if !ok {
		return nil, false, p.errorf("%w: its %d bytes are too few for a KMS v1 record", envelope.ErrCorrupt, len(payload))
	}
	d := p.cache.find(wrapped)
	if d == nil {
		var err error
		if d, err = p.unwrap(ctx, wrapped); err != nil {
			return nil, false, err
		}
	}
	plaintext, asCBC, err := d.open(ctx, data, at)
	if err != nil {
		if !d.proven.Load() {
			p.cache.forget(d)
		}
		return nil, false, p.errorf("%w: it does not open under its own DEK", envelope.ErrCorrupt)
	}
	if !d.proven.Load() {
		d.proven.Store(true)
	}
	p.usage.reads.Add(1)
	if asCBC {
		p.noteCBC(at)
	}
	return plaintext, asCBC, nil
}

// noteCBC tells of a value that was opened as AES-CBC.
func (p *Provider) noteCBC(at value.Context) {
	p.opts.Observer.CBCOpened()
	if n := p.notes.due(p.opts.Clock.Now()); n > 0 {
		p.opts.Observer.CBCNoted(string(at.AuthenticatedData()), n)
	}
}

// unwrap has the plugin unwrap a DEK, once for all who wait for it. A caller
// that gives up does not end the call for the others; as the call may outlast
// it, the call has its own copy of what is wrapped.
func (p *Provider) unwrap(ctx context.Context, wrapped []byte) (*dek, error) {
	own := bytes.Clone(wrapped)
	call := p.unwraps.DoChan(string(own), func() (any, error) {
		if d := p.cache.find(own); d != nil { // by a call that ended just now
			return d, nil
		}
		return p.callDecrypt(context.WithoutCancel(ctx), own)
	})
	select {
	case r := <-call:
		if r.Err != nil {
			return nil, r.Err
		}
		return r.Val.(*dek), nil
	case <-ctx.Done():
		return nil, p.errorf("%w: gave up waiting for the DEK: %w", envelope.ErrUnavailable, ctx.Err())
	}
}

func (p *Provider) callDecrypt(ctx context.Context, wrapped []byte) (*dek, error) {
	if !p.leases.Begin() {
		return nil, p.closedError()
	}
	defer p.leases.Done()
	if !p.cache.off() {
		p.opts.Observer.CacheMissed()
	}
	secret, err := p.plugin.Decrypt(ctx, wrapped)
	if err != nil {
		p.readingFound(&plugin.Trouble{Problem: problemOf(err), Err: fmt.Errorf("decrypt: %w", err)})
		return nil, p.errorf("%w: it did not unwrap the DEK; reads of what is cached go on: %w", sentinelOf(err), err)
	}
	d, err := newStoredDEK(secret)
	clear(secret)
	if err != nil {
		p.readingFound(plugin.Troublef(plugin.BadAnswer, "decrypt: the plugin's answer is no key: %w", err))
		return nil, p.errorf("%w: the plugin gave what is no key: %w", envelope.ErrCorrupt, err)
	}
	p.readingFound(nil)
	p.remember(wrapped, d)
	return d, nil
}

// sentinelOf is what the error of a Decrypt call means to a caller.
func sentinelOf(err error) error {
	switch status.Code(err) {
	case codes.NotFound:
		return envelope.ErrUnknownKEK
	case codes.InvalidArgument:
		return envelope.ErrForeignDEK
	}
	return envelope.ErrUnavailable
}

func (p *Provider) remember(wrapped []byte, d *dek) {
	if p.cache.off() {
		return
	}
	p.cache.add(wrapped, d, p.opts.Clock.Now())
	p.opts.Observer.CacheFilled(p.cache.fill())
}

func (p *Provider) readingFound(t *plugin.Trouble) {
	after := p.reading.Load().Next(t, p.opts.Clock.Now())
	p.reading.Store(&after)
}

// Seal encrypts plaintext for the etcd key in at, under a DEK of its own which
// the plugin wraps, and returns prefix and the record in one new slice. It
// fails with [envelope.ErrUnavailable] when the plugin does not wrap the DEK,
// and with [envelope.ErrWritesStopped] when the provider is not leased for
// writing. plaintext is neither changed nor kept.
func (p *Provider) Seal(ctx context.Context, prefix string, plaintext []byte, at value.Context) ([]byte, error) {
	if p.prober.Load() == nil {
		return nil, p.errorf("%w: it is configured to read only", envelope.ErrWritesStopped)
	}
	if !p.leases.Begin() {
		return nil, p.closedError()
	}
	defer p.leases.Done()
	d, wrapped, err := p.makeDEK(ctx)
	if err != nil {
		return nil, err
	}
	out, err := d.gcm.Seal(ctx, head(prefix, wrapped), plaintext, at)
	if err != nil {
		return nil, p.errorf("seal: %w", err)
	}
	p.remember(wrapped, d)
	p.usage.writes.Add(1)
	return out, nil
}

// makeDEK generates a DEK and has the plugin wrap it.
func (p *Provider) makeDEK(ctx context.Context) (*dek, []byte, error) {
	secret := make([]byte, dekSize)
	defer clear(secret)
	start := p.opts.Clock.Now()
	_, err := io.ReadFull(p.opts.Random, secret)
	p.opts.Observer.DEKGenerated(p.opts.Clock.Since(start), err)
	if err != nil {
		return nil, nil, p.errorf("generate a DEK: %w", err)
	}
	wrapped, err := p.plugin.Encrypt(ctx, secret)
	if err != nil {
		return nil, nil, p.errorf("%w: it did not wrap the DEK of the value to write; look at the plugin: %w", envelope.ErrUnavailable, err)
	}
	if err := checkWrapped(wrapped); err != nil {
		return nil, nil, p.errorf("%w: %w", envelope.ErrUnavailable, err)
	}
	if bytes.Contains(wrapped, secret) {
		return nil, nil, p.errorf("%w: the plugin gave the DEK back in the clear", envelope.ErrUnavailable)
	}
	d, err := newDEK(secret)
	if err != nil {
		return nil, nil, p.errorf("build the DEK: %w", err)
	}
	return d, wrapped, nil
}

func (p *Provider) closedError() error {
	return p.errorf("%w: the configuration that named it was replaced", envelope.ErrClosed)
}

func (p *Provider) errorf(format string, args ...any) error {
	return fmt.Errorf("kms provider %q: "+format, append([]any{p.name}, args...)...)
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
	var h envelope.Health
	if w := p.prober.Load(); w != nil {
		h = w.health()
	} else {
		into(&h, p.reading.Load())
	}
	h.CachedDEKs = p.cache.len()
	p.usage.into(&h)
	return h
}
