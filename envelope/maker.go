package envelope

import (
	"bytes"
	"context"
	"crypto/subtle"
	"io"
	"time"

	"github.com/kube-atrest/atrest/internal/plugin"
	"github.com/kube-atrest/atrest/internal/redact"
	"github.com/kube-atrest/atrest/internal/stored"
)

// maker makes write DEKs. It is for one goroutine.
type maker struct {
	pending *pendingDEK
	refused refused // the last try ahead of writing that failed
}

// refused is why no DEK could be made ahead of writing, under a key_id at a time.
type refused struct {
	keyID string
	*plugin.Trouble
	at time.Time
}

// refusal is why the last try ahead of writing failed, if it was under keyID and
// came to an answer that will hardly be another soon: a file that is tried every
// few seconds must not cost a call of Encrypt each time.
func (m *maker) refusal(keyID string, after time.Time) *plugin.Trouble {
	r := &m.refused
	if r.Trouble == nil || r.keyID != keyID || !r.at.After(after) || r.Problem != BadAnswer && r.Problem != Disagreement && !plugin.OfTheValue(r.Err) {
		return nil
	}
	return r.Trouble
}

// pendingDEK is a DEK that may not be used yet: not wrapped, or wrapped and not
// yet unwrapped again. It is tried again next time, so that a plugin which does
// not settle costs no DEK each time.
type pendingDEK struct {
	redact.As
	secret [dekSize]byte
	source stored.DEKSource // zero until it is wrapped
	at     time.Time        // when it was
	era    uint32           // of the memory, before it was last unwrapped

	refused *stored.DEKSource // a sample of what was not unwrapped
}

// make makes a DEK for writing under the key_id that d knows, and tells if that
// fails. One that is made is told of when it is first written with.
func (p *Provider) make(ctx context.Context, d *draft, reason string) (*writeDEK, *plugin.Trouble) {
	start := p.opts.Clock.Now()
	dek, t := p.makeDEK(ctx, d, reason)
	if t != nil && ctx.Err() == nil {
		p.opts.Observer.DEKMade(reason, p.opts.Clock.Since(start), t.Cause())
	}
	return dek, t
}

// makeDEK makes a DEK: fresh, wrapped by the plugin under the key_id that d knows,
// and unwrapped by it again to the same DEK.
func (p *Provider) makeDEK(ctx context.Context, d *draft, reason string) (dek *writeDEK, t *plugin.Trouble) {
	start := p.opts.Clock.Now()
	t = p.noted(d, encrypted, func() *plugin.Trouble { return p.wrapped(ctx, d.KeyID) })
	if t == nil && !d.tried {
		p.tryFormer(ctx, d.KeyID)
	}
	if t == nil {
		t = p.noted(d, decrypted, func() *plugin.Trouble { return p.prove(ctx, p.maker.pending) })
	}
	if t == nil {
		t = p.noted(d, encrypted, func() (t *plugin.Trouble) { dek, t = p.build(p.maker.pending); return t })
	}
	if t != nil {
		return nil, t
	}
	p.maker.drop()
	dek.reason, dek.took = reason, p.opts.Clock.Since(start)
	return dek, nil
}

// tryFormer tries the plugin by the DEK in whose place another comes, or by the one that
// is aside: nobody may try it again.
func (p *Provider) tryFormer(ctx context.Context, keyID string) {
	now := p.writer.current()
	former := now
	if former == nil {
		former = p.writer.aside()
	}
	if former == nil || former.keyID != keyID || p.era.isLost(former.opener) {
		return
	}
	if _, lost := p.unwrapAgain(ctx, former); lost && ctx.Err() == nil {
		p.lose(p, former.opener.era.Load())
		if now != nil {
			p.mustMakeAnother() // until the other is there
		}
	}
}

// noted makes a step and learns what came of it.
func (p *Provider) noted(d *draft, record recording, step func() *plugin.Trouble) *plugin.Trouble {
	asked := p.opts.Clock.Now()
	t := step()
	now := p.opts.Clock.Now()
	d.learn(func(k plugin.Known) plugin.Known { return record(k, t, asked, now) })
	return t
}

// recording is how what is known changes by a step that came to a trouble.
type recording func(k plugin.Known, t *plugin.Trouble, asked, now time.Time) plugin.Known

func encrypted(k plugin.Known, t *plugin.Trouble, asked, now time.Time) plugin.Known {
	k.Encrypt = k.Encrypt.After(t, asked, now)
	return k.Answered(t, now)
}

func decrypted(k plugin.Known, t *plugin.Trouble, asked, now time.Time) plugin.Known {
	return k.AfterTrial(t, asked, now)
}

// wrapped sees to it that a DEK is pending and wrapped under keyID.
func (p *Provider) wrapped(ctx context.Context, keyID string) *plugin.Trouble {
	if err := p.maker.begin(p.opts.Random); err != nil {
		return plugin.Troublef(Failed, "generate a DEK: %w", err)
	}
	if p.maker.pending.source.KeyID == keyID {
		return nil
	}
	return p.wrap(ctx, p.maker.pending, keyID)
}

// begin sees to it that a DEK is pending.
func (m *maker) begin(random io.Reader) error {
	if m.pending != nil {
		return nil
	}
	fresh := &pendingDEK{As: "DEK"}
	if _, err := io.ReadFull(random, fresh.secret[:]); err != nil {
		return err
	}
	m.pending = fresh
	return nil
}

// drop ends what is pending.
func (m *maker) drop() {
	clear(m.pending.secret[:])
	m.pending = nil
}

// wrap has the plugin wrap a DEK under keyID.
func (p *Provider) wrap(ctx context.Context, pending *pendingDEK, keyID string) *plugin.Trouble {
	pending.source = stored.DEKSource{}
	p.samples.Forget(pending.refused)
	wrapped, err := p.plugin.Encrypt(ctx, pending.secret[:])
	if err != nil {
		return plugin.TroubleOf("encrypt", err)
	}
	if wrapped.Reveals(pending.secret[:]) {
		return plugin.Troublef(BadAnswer, "encrypt: the plugin gave the DEK back in the clear")
	}
	source, err := stored.NewDEKSource(p.opts.Mode.sourceType(), wrapped.KeyID, wrapped.Ciphertext, wrapped.Annotations)
	if err != nil {
		return plugin.Troublef(BadAnswer, "encrypt: the plugin's answer cannot be stored: %w", err)
	}
	pending.source, pending.at = source, p.opts.Clock.Now()
	if got := source.KeyID; got != keyID {
		return plugin.Troublef(Disagreement, "encrypt used key_id %s and status names %s: the plugin has not settled on one",
			HashKeyID(got), HashKeyID(keyID))
	}
	return nil
}

// Reveals reports whether a DEK stands anywhere in the answer in the clear.
func (w *Wrapped) Reveals(dek []byte) bool {
	if bytes.Contains(w.Ciphertext, dek) || bytes.Contains([]byte(w.KeyID), dek) {
		return true
	}
	for name, value := range w.Annotations {
		if bytes.Contains(value, dek) || bytes.Contains([]byte(name), dek) {
			return true
		}
	}
	return false
}

// prove has the plugin unwrap what it has wrapped, and holds it to its answer. A
// plugin that cannot give a DEK back must not get anything to write.
func (p *Provider) prove(ctx context.Context, pending *pendingDEK) *plugin.Trouble {
	pending.era = p.era.now.Load()
	got, err := p.plugin.Decrypt(ctx, wrappedOf(&pending.source))
	defer clear(got)
	switch {
	case err != nil:
		source := pending.source
		pending.refused = &source
		p.samples.Refused(&source)
		if plugin.OfTheValue(err) || p.opts.Clock.Since(pending.at) >= p.opts.HealthyPoll {
			pending.source = stored.DEKSource{} // what it wrapped is lost, or may be: have it wrapped again
		}
		return plugin.Troublef(plugin.ProblemOf(err), "decrypt: the plugin does not unwrap what it has wrapped: %w", err)
	case subtle.ConstantTimeCompare(got, pending.secret[:]) != 1:
		pending.source = stored.DEKSource{}
		return plugin.Troublef(BadAnswer, "decrypt: the plugin does not give back the DEK that it was given to encrypt")
	}
	p.samples.Forget(pending.refused)
	return nil
}

// build makes of what is pending what is written with.
func (p *Provider) build(pending *pendingDEK) (*writeDEK, *plugin.Trouble) {
	source, tail := pending.source, pending.source.Tail()
	sealer, err := p.opts.newSealer(pending.secret[:], tail)
	if err != nil {
		return nil, plugin.Troublef(Failed, "build the DEK: %w", err)
	}
	open, err := newOpener(source.Type, pending.secret[:])
	if err != nil {
		return nil, plugin.Troublef(Failed, "build the DEK: %w", err)
	}
	known := p.newDEK(open, source.KeyID, fingerprintOf(pending.secret[:]), pending.era)
	known.proven.Store(true)
	return &writeDEK{sealer: sealer, keyID: source.KeyID, source: source, tail: tail, opener: known}, nil
}

func (o *Options) newSealer(secret, tail []byte) (sealer, error) {
	if o.Mode == Seed {
		return newSeedSealer(secret, tail, o.Random, o.MaxWrites)
	}
	return newCounterSealer(secret, tail, o.Random, o.MaxWrites)
}

// use enters a DEK into the cache and the usage, and tells of it, when it is first
// written with.
func (p *Provider) use(d *writeDEK) {
	if d.begun.CompareAndSwap(false, true) {
		p.usage.seals(d.keyID, d.uses(), p.writesWith)
		p.cache.addSource(&d.source, nil, d.opener)
		p.opts.Observer.DEKMade(d.reason, d.took, nil)
	}
}
