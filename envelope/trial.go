package envelope

import (
	"context"
	"crypto/sha256"

	"github.com/kube-atrest/atrest/internal/plugin"
	"github.com/kube-atrest/atrest/internal/stored"
)

// try has the plugin unwrap again what it should be able to, when that is due: the
// DEK that is about to be written with, or else the present one; where nothing is
// written, one that a value was read with. It reports whether the plugin has lost
// it.
func (p *Provider) try(ctx context.Context, d *draft, role Role, dek *writeDEK) (lost bool) {
	if dek == nil {
		dek = p.writer.current()
	}
	inQuestion := dek != nil && p.era.isOver(dek.opener) && !d.Status.LostContact()
	if ctx.Err() != nil || d.tried || !inQuestion && !d.TrialIsDue(role, p.opts.HealthyPoll, p.opts.Clock.Now()) {
		return false
	}
	if role != Writes {
		p.trySample(ctx, d)
		return false
	}
	if dek == nil {
		return false
	}
	return p.tryDEK(ctx, d, dek, d.Doubt != nil || d.Decrypt.Trouble != nil)
}

// tryDEK tries the plugin by a write DEK, and if it is in doubt also by what was read
// before: it may remember what it wrapped last, and unwrap nothing else. It reports
// whether the plugin has lost the DEK: then that is no longer written with.
func (p *Provider) tryDEK(ctx context.Context, d *draft, dek *writeDEK, doubted bool) (lost bool) {
	d.tried = true
	asked := p.opts.Clock.Now()
	t, lost := p.unwrapAgain(ctx, dek)
	if good := p.samples.Good(under(d.KeyID)); t == nil && doubted && good != nil && ctx.Err() == nil {
		t, _ = p.unwrapSample(ctx, d, good)
	}
	if ctx.Err() != nil {
		return false
	}
	now := p.opts.Clock.Now()
	d.learn(func(k plugin.Known) plugin.Known { return k.AfterTrial(t, asked, now) })
	if lost {
		p.setAside(dek) // it may be about to be written with
		p.lose(p, dek.opener.era.Load())
	}
	return lost
}

// tryNow tries the plugin by the present write DEK, out of turn.
func (p *Provider) tryNow(ctx context.Context, dek *writeDEK) *plugin.Trouble {
	d := p.draft()
	p.tryDEK(ctx, d, dek, false)
	if ctx.Err() != nil {
		return nil // whoever waits is told
	}
	p.publish(d)
	if p.era.isLost(dek.opener) && d.Decrypt.Trouble == nil {
		p.mustMakeAnother()
	}
	return d.Decrypt.Trouble
}

// unwrapAgain has the plugin unwrap a DEK that it has unwrapped before. lost
// reports whether it said that it no longer can.
func (p *Provider) unwrapAgain(ctx context.Context, dek *writeDEK) (t *plugin.Trouble, lost bool) {
	t, lost = p.unwrapKnown(ctx, dek.opener, &dek.source)
	if t != nil && ctx.Err() == nil {
		p.keepUnanswered(&dek.source, dek.opener)
	}
	return t, lost
}

// keepUnanswered notes that the plugin did not unwrap a DEK that it has unwrapped before,
// and keeps it; nil for one that is not in memory.
func (p *Provider) keepUnanswered(source *stored.DEKSource, dek *knownDEK) {
	if dek != nil && p.era.isLost(dek) {
		return
	}
	if met := p.cache.find(source.Tail()); met != nil && dek != nil && met.fingerprint == dek.fingerprint {
		dek = met // that is the one which is read with
	}
	p.unanswered.refused(source, dek)
	if dek != nil {
		p.cache.addSource(source, nil, dek)
	}
}

// under reports whether a source is under a key_id.
func under(keyID string) func(*stored.DEKSource) bool {
	return func(s *stored.DEKSource) bool { return s.KeyID == keyID }
}

// unwrapKnown is unwrapAgain for any DEK that is in memory.
func (p *Provider) unwrapKnown(ctx context.Context, dek *knownDEK, source *stored.DEKSource) (t *plugin.Trouble, lost bool) {
	era := p.era.now.Load()
	got, err := p.plugin.Decrypt(ctx, wrappedOf(source))
	defer clear(got)
	switch {
	case err != nil:
		return plugin.Troublef(plugin.ProblemOf(err), "decrypt: the plugin no longer unwraps what it has wrapped: %w", err), plugin.OfTheValue(err)
	case fingerprintOf(got) != dek.fingerprint:
		return plugin.Troublef(BadAnswer, "decrypt: the plugin no longer gives back the DEK that it was given to encrypt"), true
	}
	p.era.unwrapped(dek, era)
	p.unanswered.unwrapped(source)
	return nil, false
}

// unwrapMet has the plugin unwrap what it has unwrapped before. dek is nil if that is
// not in memory; one that is not known to be what it is taken for tells nothing.
func (p *Provider) unwrapMet(ctx context.Context, dek *knownDEK, source *stored.DEKSource) (t *plugin.Trouble, lost bool) {
	if dek != nil && dek.proven.Load() {
		return p.unwrapKnown(ctx, dek, source)
	}
	_, t, err := p.callDecrypt(ctx, source)
	if t == nil {
		p.unanswered.unwrapped(source)
	}
	return t, plugin.OfTheValue(err)
}

// fingerprint tells whether two DEKs are the same, and nothing else of them.
type fingerprint [sha256.Size]byte

func fingerprintOf(secret []byte) (f fingerprint) {
	h := sha256.New()
	h.Write([]byte("atrest: the fingerprint of a DEK\x00"))
	h.Write(secret)
	h.Sum(f[:0])
	return f
}

// trySample tries a plugin that is only read with, by a DEK that a value was read
// with, or could not be, or else by one that it has wrapped itself. If there is
// none, nothing is known against it.
func (p *Provider) trySample(ctx context.Context, d *draft) {
	asked := p.opts.Clock.Now()
	t, telling := p.askSample(ctx, d)
	if ctx.Err() != nil {
		return
	}
	now := p.opts.Clock.Now()
	d.learn(func(k plugin.Known) plugin.Known { return k.AfterSample(t, telling, asked, now) })
}

// askSample has the plugin unwrap what it is tried by. telling reports whether t is
// about the plugin.
func (p *Provider) askSample(ctx context.Context, d *draft) (t *plugin.Trouble, telling bool) {
	if source := p.samples.Best(under(d.KeyID)); source != nil {
		return p.unwrapSample(ctx, d, source)
	}
	switch aside := p.writer.aside(); {
	case aside == nil || p.era.isLost(aside.opener):
		return nil, false
	case aside.keyID != d.KeyID:
		return p.unwrapSample(ctx, d, &aside.source)
	default:
		t, lost := p.unwrapAgain(ctx, aside)
		if t != nil {
			p.writer.distrust(aside)
		}
		if !lost || ctx.Err() != nil {
			return t, true
		}
		if p.knownKeyID(&d.Known) == "" {
			return nil, false // it may have been retired
		}
		p.lose(p, aside.opener.era.Load())
		return t, true
	}
}

// unwrapSample has the plugin unwrap a stored value's DEK. That it has no such KEK,
// or refuses one that is not its present one, is the value's matter, and nothing
// to be tried by again. But one that it has unwrapped before, under the KEK that it
// works with, it should know: then that is lost. telling reports whether t is
// about the plugin.
func (p *Provider) unwrapSample(ctx context.Context, d *draft, source *stored.DEKSource) (t *plugin.Trouble, telling bool) {
	era, good := p.era.now.Load(), p.samples.IsGood(source)
	dek := p.cache.find(source.Tail())
	t, lost := p.unwrapMet(ctx, dek, source)
	if t == nil || ctx.Err() != nil {
		return nil, true
	}
	present := good && source.KeyID == d.KeyID
	if present {
		p.keepUnanswered(source, dek)
	}
	switch {
	case lost:
		p.samples.Forget(source)
		if !present || p.knownKeyID(&d.Known) == "" {
			return nil, false
		}
		p.lose(p, era)
	case d.KeyID != "" && source.KeyID != d.KeyID && !t.LostContact():
		p.samples.Forget(source)
		return nil, false
	}
	return t, true
}
