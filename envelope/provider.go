package envelope

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"k8s.io/apiserver/pkg/storage/value"

	"github.com/kube-atrest/atrest/internal/plugin"
	"github.com/kube-atrest/atrest/internal/stored"
	"github.com/kube-atrest/atrest/internal/tally"
)

// Role is what a provider is used for, by the configuration in effect.
type Role = plugin.Role

// The roles of a provider.
const (
	Idle   = plugin.Idle   // by nothing yet, or no longer: its plugin is not asked how it is
	Reads  = plugin.Reads  // to read with
	Writes = plugin.Writes // to read and to write with
)

// Provider encrypts and decrypts with one KMS v2 plugin: one connection, one
// cache of DEKs, one goroutine that follows the plugin's Status, and while
// something is written with it one write DEK. It is shared by all who mention
// the plugin. It does not name itself in errors: one plugin may have several
// names. Safe for concurrent use.
//
// A provider lives for as long as somebody holds it (Hold). It can be read with
// from the start, and written with once it has the role [Writes] (SetRole) and
// its plugin has been found well.
type Provider struct {
	followed *plugin.Followed
	plugin   Plugin
	opts     Options

	*memory
	unwraps plugin.Unwrapper[*knownDEK]

	writer    writer
	maker     maker        // of the follower's goroutine
	rechecked rechecked    // of the same
	preparing atomic.Int32 // how many want it made ready to write
}

// NewProvider makes a provider of a plugin, which it owns from then on: the
// plugin is closed when the last hold ends. It calls nobody before it has a role
// or has to unwrap a DEK.
func NewProvider(owned Plugin, opts Options) *Provider {
	opts = opts.withDefaults()
	p := &Provider{plugin: bounded{owned}, opts: opts, memory: newMemory(opts.MaxDEKs)}
	p.writer = writer{clock: opts.Clock, window: opts.WriteWindow, era: &p.era}
	p.followed = plugin.Follow(plugin.Config{
		Clock: opts.Clock, Healthy: opts.HealthyPoll, Unhealthy: opts.UnhealthyPoll,
		Window: opts.WriteWindow, Wake: owned.Wake(),
		Ask:     p.ask,
		Changed: func() { opts.Observer.Changed(p.Health()) },
		Close:   p.close,
	})
	p.memory.join(p)
	return p
}

func (p *Provider) close() {
	for _, dek := range []*writeDEK{p.writer.current(), p.writer.aside()} {
		if dek != nil && dek.begun.Load() {
			p.keepUnanswered(&dek.source, dek.opener) // those that are left ask for it, if there are any
		}
	}
	p.memory.leave(p)
	_ = p.writer.end()
	_ = p.plugin.Close() // there is nobody left whom an error could concern
}

// Inherit has the provider share the DEKs in memory and the counts of another one
// on the same plugin: as when a plugin is called with two timeouts, or with another
// from now on. Call it before the provider is used.
func (p *Provider) Inherit(from *Provider) {
	p.memory = from.memory
	p.writer.era = &p.era
	p.memory.join(p)
}

// Hold keeps the provider open until end is called. The last one to end closes
// it: that waits for calls under way, which their timeout bounds. Ending twice is
// harmless.
func (p *Provider) Hold() (end func()) { return p.followed.Hold() }

// Ask has the plugin asked how it is now, and waits for what comes of it. One
// that was asked within the last second is not asked again: what is known has to
// do. It fails when ctx ends, and with [ErrClosed].
func (p *Provider) Ask(ctx context.Context) error { return p.followed.Ask(ctx) }

// SetRole says what the provider is used for from now on. One that begins to
// write does so at once if it was made ready ([Provider.Prepare]) and its plugin
// is well, else as soon as that is so. One that no longer writes refuses late
// writes. It waits for nobody.
func (p *Provider) SetRole(r Role) {
	switch before := p.followed.Role(); {
	case r == Writes && before != Writes:
		p.beginToWrite()
	case r != Writes && before == Writes:
		p.setAside(p.writer.current()) // before anybody could look for it in vain
		p.setAside(p.writer.end())
	}
	p.followed.SetRole(r)
}

// Ailing is what is known to be wrong with the plugin in the provider's present
// role, also what is new and does not count yet: nil for nothing.
func (p *Provider) Ailing() error { return p.followed.Load().Ailing(p.followed.Role()).Cause() }

// Open decrypts the stored object in payload, for the etcd key in at. If the
// provider writes, it is stale when it was sealed under another key_id than
// Status last named, and while that is not known. It fails with [ErrCorrupt], or
// with [ErrUnavailable] or [ErrUnknownKEK] when the DEK is not known yet and the
// plugin does not unwrap it. payload is neither changed nor kept.
func (p *Provider) Open(ctx context.Context, payload []byte, at value.Context) ([]byte, bool, error) {
	w := p.writer.now.Load()
	data, tail, ok := stored.Split(payload)
	if ok {
		if dek := p.known(w, tail); dek != nil {
			return p.openWith(dek, w, data, at)
		}
	}
	return p.openCold(ctx, payload, at)
}

// known is the DEK of an encoded source: mostly the one that is written with.
func (p *Provider) known(w *writing, tail []byte) *knownDEK {
	if w != nil && w.dek != nil && bytes.Equal(w.dek.tail, tail) {
		return w.dek.opener
	}
	return p.cache.find(tail)
}

func (p *Provider) openWith(dek *knownDEK, w *writing, data []byte, at value.Context) ([]byte, bool, error) {
	plaintext, err := dek.open(data, at.AuthenticatedData())
	if err != nil {
		p.doubt(dek)
		return nil, false, fmt.Errorf("%w: sealed under key_id %s: %w", ErrCorrupt, HashKeyID(dek.keyID), err)
	}
	if !dek.proven.Load() {
		dek.proven.Store(true)
		p.doubted.drop(func(d *knownDEK) bool { return d == dek })
	}
	dek.use.reads.Add(tally.SpotOf(at))
	return plaintext, w.outdates(dek), nil
}

// doubt puts a DEK in doubt that has opened nothing yet: a plugin may have answered
// with another key, and is asked again. If it does not unwrap what it did before,
// the DEK is still there for what opens under it.
func (p *Provider) doubt(dek *knownDEK) {
	if !dek.proven.Load() {
		for _, e := range p.cache.drop(func(d *knownDEK) bool { return d == dek }) {
			p.doubted.add(e.tail, dek)
		}
		p.followed.Suspect(dek.keyID, plugin.Troublef(BadAnswer, "decrypt: a value does not open under what the plugin unwrapped"))
	}
}

// Seal encrypts plaintext for the etcd key in at and returns prefix and the
// stored object in one new slice. It fails with [ErrWritesStopped] when the
// plugin has not been healthy for the write window, and when it never was.
// plaintext is neither changed nor kept.
func (p *Provider) Seal(ctx context.Context, prefix string, plaintext []byte, at value.Context) ([]byte, error) {
	for {
		w := p.writer.now.Load()
		if w == nil || !w.open {
			return nil, p.stopped(w)
		}
		out, err := w.dek.seal(prefix, plaintext, at.AuthenticatedData())
		if err == nil {
			return out, nil
		}
		if !errors.Is(err, errUsedUp) {
			return nil, fmt.Errorf("seal: %w", err)
		}
		if err := p.renew(ctx, w.dek); err != nil {
			return nil, fmt.Errorf("%w: the DEK is used up and could not be replaced: %w", ErrWritesStopped, err)
		}
	}
}

// stopped is the error of a write that may not be.
func (p *Provider) stopped(w *writing) error {
	if w == nil {
		return fmt.Errorf("%w: it is configured to read only", ErrWritesStopped)
	}
	h := p.Health()
	cause := h.Err
	if cause == nil {
		cause = errors.New("the plugin was not asked in time")
	}
	if h.WritesUntil.IsZero() {
		return fmt.Errorf("%w: there is no DEK that the plugin is known to unwrap, since %s; writing begins when there is: %w",
			ErrWritesStopped, h.Since.UTC().Format(timeFormat), cause)
	}
	return fmt.Errorf("%w: the plugin was last healthy at %s and writing ended %s later; it goes on when the plugin is healthy: %w",
		ErrWritesStopped, h.LastHealthy.UTC().Format(timeFormat), p.opts.WriteWindow, cause)
}

// timeFormat is RFC 3339 to the second.
const timeFormat = "2006-01-02T15:04:05Z07:00"

// DropAged drops the DEKs that were unwrapped longer than [Options.MaxDEKAge]
// ago, but for the one that is written with, and those whose KEK the plugin was
// found to have lost: they are nowhere else. What [Provider.Usage] has of a key_id
// without a DEK goes too. Nothing does so by itself: call it every few seconds. In a
// program built with GOEXPERIMENT=runtimesecret the memory of a dropped DEK is
// overwritten when its last reader is done; without that, only the seeds' is, because
// the expanded key of a cipher is out of reach.
func (p *Provider) DropAged() {
	p.usage.tend(p.opts.Clock.Now())
	if p.opts.MaxDEKAge <= 0 {
		return
	}
	oldest := p.opts.Clock.Now().Add(-p.opts.MaxDEKAge)
	aged := func(d *knownDEK) bool { return d.since.Before(oldest) && !p.isKept(d) }
	p.doubted.drop(aged)
	if len(p.cache.drop(aged)) > 0 {
		p.opts.Observer.DEKsDropped(p.cache.len())
	}
}
