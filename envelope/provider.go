package envelope

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"golang.org/x/sync/singleflight"
	"k8s.io/apiserver/pkg/storage/value"

	"github.com/kube-atrest/atrest/internal/plugin"
	"github.com/kube-atrest/atrest/internal/stored"
	"github.com/kube-atrest/atrest/internal/tally"
)

// Provider encrypts and decrypts with one KMS v2 plugin: one connection, one
// cache of DEKs, one Status loop, and while something is written with it one
// write DEK. It is shared by all who mention the plugin, through [Lease]s.
// Safe for concurrent use.
type Provider struct {
	name   string
	plugin Plugin
	opts   Options

	cache    *cache
	leases   plugin.Leases
	unwraps  singleflight.Group
	usage    usage
	decrypts decrypts

	writer  atomic.Pointer[writer]  // nil while nothing is written
	watcher atomic.Pointer[watcher] // the latest, nil before the first
}

// NewProvider makes a provider of a plugin, which it owns from then on: the
// plugin is closed when the last lease ends. name is used in errors only; the
// name in the stored form comes with each call.
func NewProvider(name string, owned Plugin, opts Options) *Provider {
	opts = opts.withDefaults()
	p := &Provider{name: name, plugin: owned, opts: opts, cache: newCache(opts.MaxDEKs)}
	p.decrypts.condition.Store(&plugin.Condition{Since: opts.Clock.Now()})
	p.leases.Follow = p.follow
	p.leases.Close = func() { _ = owned.Close() } // there is nobody left whom an error could concern
	return p
}

// Open decrypts the stored object in payload, for the etcd key in at. It is
// stale when it was sealed under another key_id than values are written with
// now. It fails with [ErrCorrupt], or with [ErrUnavailable] when the DEK is not
// known yet and the plugin does not unwrap it. payload is neither changed nor kept.
func (p *Provider) Open(ctx context.Context, payload []byte, at value.Context) ([]byte, bool, error) {
	w := p.permit()
	data, tail, ok := stored.Split(payload)
	if ok {
		if dek := p.known(w, tail); dek != nil {
			return p.openWith(dek, w, data, at)
		}
	}
	return p.openCold(ctx, payload, at)
}

// permit is the present permit to write, nil if there is none.
func (p *Provider) permit() *permit {
	if w := p.writer.Load(); w != nil {
		return w.permit.Load()
	}
	return nil
}

// known is the DEK of an encoded source: mostly the one that is written with.
func (p *Provider) known(w *permit, tail []byte) *knownDEK {
	if w != nil && bytes.Equal(w.dek.tail, tail) {
		return w.dek.opener
	}
	return p.cache.find(tail)
}

func (p *Provider) openWith(dek *knownDEK, w *permit, data []byte, at value.Context) ([]byte, bool, error) {
	plaintext, err := dek.open(data, at.AuthenticatedData())
	if err != nil {
		p.doubt(dek)
		return nil, false, p.errorf("%w: sealed under key_id %s: %w", ErrCorrupt, HashKeyID(dek.keyID), err)
	}
	if !dek.proven.Load() {
		dek.proven.Store(true)
	}
	dek.use.reads.Add(tally.SpotOf(at))
	return plaintext, w != nil && w.dek.keyID != dek.keyID, nil
}

// doubt forgets a DEK that has opened nothing yet: a plugin may have answered
// with another key, and has to be asked again when it is well.
func (p *Provider) doubt(dek *knownDEK) {
	if !dek.proven.Load() {
		p.cache.drop(func(d *knownDEK) bool { return d == dek })
	}
}

// openCold reads the whole object, finds or unwraps its DEK, and opens it.
func (p *Provider) openCold(ctx context.Context, payload []byte, at value.Context) ([]byte, bool, error) {
	object, err := stored.Parse(payload)
	if err != nil {
		return nil, false, p.errorf("%w: %w", ErrCorrupt, err)
	}
	raw := rawTail(payload, &object)
	dek := p.cache.findSource(&object.Source, raw)
	if dek == nil {
		if dek, err = p.unwrap(ctx, &object.Source, raw); err != nil {
			return nil, false, err
		}
	}
	return p.openWith(dek, p.permit(), object.Data, at)
}

// rawTail is the part of payload by which [Provider.Open] will find the DEK of
// such an object the next time, or nil when its data does not come first and
// last: then looking at the rest is not enough to read it.
func rawTail(payload []byte, o *stored.Object) []byte {
	data, tail, ok := stored.Split(payload)
	if !ok || len(data) == 0 || &data[0] != &o.Data[0] {
		return nil
	}
	return tail
}

// unwrap has the plugin unwrap a DEK, once for all who wait for it. A caller
// that gives up does not end the call for the others; as the call may outlast
// it, the call has a copy of raw.
func (p *Provider) unwrap(ctx context.Context, s *stored.DEKSource, raw []byte) (*knownDEK, error) {
	raw = bytes.Clone(raw)
	call := p.unwraps.DoChan(string(s.Tail()), func() (any, error) {
		if dek := p.cache.findSource(s, raw); dek != nil { // by a call that ended just now
			return dek, nil
		}
		return p.callDecrypt(context.WithoutCancel(ctx), s, raw)
	})
	select {
	case r := <-call:
		if r.Err != nil {
			return nil, r.Err
		}
		return r.Val.(*knownDEK), nil
	case <-ctx.Done():
		return nil, p.errorf("%w: gave up waiting for the DEK under key_id %s: %w", ErrUnavailable, HashKeyID(s.KeyID), ctx.Err())
	}
}

func (p *Provider) callDecrypt(ctx context.Context, s *stored.DEKSource, raw []byte) (*knownDEK, error) {
	if !p.leases.Begin() {
		return nil, p.errorf("%w: the configuration that named it was replaced", ErrClosed)
	}
	defer p.leases.Done()
	secret, err := p.plugin.Decrypt(ctx, wrappedOf(s))
	if err != nil {
		p.readingFound(&plugin.Trouble{Problem: plugin.ProblemOf(err), Err: fmt.Errorf("decrypt: %w", err)})
		return nil, p.errorf("%w: it did not unwrap the DEK under key_id %s; reads under DEKs seen before go on: %w",
			sentinelOf(err), HashKeyID(s.KeyID), err)
	}
	open, err := newOpener(s.Type, secret)
	clear(secret)
	if err != nil {
		p.readingFound(plugin.Troublef(BadAnswer, "decrypt: the plugin's answer is no key: %w", err))
		return nil, p.errorf("%w: for key_id %s the plugin gave what is no key: %w", ErrCorrupt, HashKeyID(s.KeyID), err)
	}
	p.readingFound(nil)
	dek := &knownDEK{opener: open, keyID: s.KeyID, since: p.opts.Clock.Now(), use: p.usage.of(s.KeyID)}
	p.cache.addSource(s, raw, dek)
	p.opts.Observer.DEKUnwrapped(p.cache.len())
	return dek, nil
}

func (p *Provider) readingFound(t *plugin.Trouble) {
	p.decrypts.found(t, p.opts.Clock.Now())
}

// Seal encrypts plaintext for the etcd key in at and returns prefix and the
// stored object in one new slice. It fails with [ErrWritesStopped] when the
// plugin has not been healthy for the write window, and when it never was.
// plaintext is neither changed nor kept.
func (p *Provider) Seal(ctx context.Context, prefix string, plaintext []byte, at value.Context) ([]byte, error) {
	w := p.writer.Load()
	if w == nil {
		return nil, p.errorf("%w: it is configured to read only", ErrWritesStopped)
	}
	for {
		permit := w.permit.Load()
		if permit == nil || p.opts.Clock.Since(permit.since) > p.opts.WriteWindow {
			return nil, p.stopped(w)
		}
		out, err := permit.dek.seal(prefix, plaintext, at.AuthenticatedData())
		if err == nil {
			return out, nil
		}
		if !errors.Is(err, errUsedUp) {
			return nil, p.errorf("seal: %w", err)
		}
		if err := w.renew(ctx, permit.dek); err != nil {
			return nil, p.errorf("%w: the DEK is used up and could not be replaced: %w", ErrWritesStopped, err)
		}
	}
}

// stopped is the error of a write outside the window.
func (p *Provider) stopped(w *writer) error {
	h := w.health()
	cause := h.Err
	if cause == nil {
		cause = errors.New("the plugin was not asked in time")
	}
	if h.WritesUntil.IsZero() {
		return p.errorf("%w: no DEK yet, the plugin was never healthy since %s; writing begins when it is: %w",
			ErrWritesStopped, h.Since.UTC().Format(timeFormat), cause)
	}
	return p.errorf("%w: the plugin was last healthy at %s and writing ended %s later; it goes on when the plugin is healthy: %w",
		ErrWritesStopped, h.LastHealthy.UTC().Format(timeFormat), p.opts.WriteWindow, cause)
}

// timeFormat is RFC 3339 to the second.
const timeFormat = "2006-01-02T15:04:05Z07:00"

func (p *Provider) errorf(format string, args ...any) error {
	return fmt.Errorf("kms provider %q: "+format, append([]any{p.name}, args...)...)
}

// DropAged drops the DEKs that were unwrapped longer than [Options.MaxDEKAge]
// ago, but for the one that is written with. Nothing does so by itself: call it
// every few seconds. In a program built with GOEXPERIMENT=runtimesecret the
// memory of a dropped DEK is overwritten when its last reader is done; without
// that, only the seeds' is, because the expanded key of a cipher is out of reach.
func (p *Provider) DropAged() {
	if p.opts.MaxDEKAge <= 0 {
		return
	}
	oldest := p.opts.Clock.Now().Add(-p.opts.MaxDEKAge)
	if p.cache.drop(func(d *knownDEK) bool { return d.since.Before(oldest) }) {
		p.opts.Observer.DEKsDropped(p.cache.len())
	}
}

// Health is what the provider knows of itself now.
func (p *Provider) Health() Health {
	h := Health{}
	if w := p.writer.Load(); w != nil {
		h = w.health()
	} else if w := p.watcher.Load(); w != nil {
		h = w.health()
	} else {
		h.setCondition(p.decrypts.condition.Load())
	}
	h.CachedDEKs = p.cache.len()
	h.Reads, h.LastRead = p.usage.reads()
	return h
}
