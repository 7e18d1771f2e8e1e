package envelope

import (
	"context"
	"crypto/sha256"

	"github.com/kube-atrest/atrest/internal/plugin"
)

// try has the plugin unwrap again what it should be able to, when that is due: the
// DEK that is written with, or one that a value was read with. It returns the DEK
// to write with, which is none if the plugin has lost it.
func (p *Provider) try(ctx context.Context, d *draft, role Role, dek *writeDEK) *writeDEK {
	if ctx.Err() != nil || role == Writes && dek == nil || !d.TrialIsDue(role, p.opts.HealthyPoll, p.opts.Clock.Now()) {
		return dek
	}
	if dek == nil {
		p.trySample(ctx, d)
		return nil
	}
	asked := p.opts.Clock.Now()
	t, lost := p.unwrapAgain(ctx, dek)
	if ctx.Err() != nil {
		return nil
	}
	now := p.opts.Clock.Now()
	d.learn(func(k plugin.Known) plugin.Known { return k.AfterTrial(t, asked, now) })
	if !lost {
		return dek
	}
	p.lose(dek)
	return nil
}

// unwrapAgain has the plugin unwrap a DEK that it has unwrapped before. lost
// reports whether it said that it no longer can.
func (p *Provider) unwrapAgain(ctx context.Context, dek *writeDEK) (t *plugin.Trouble, lost bool) {
	got, err := p.plugin.Decrypt(ctx, wrappedOf(&dek.source))
	defer clear(got)
	switch {
	case err != nil:
		return plugin.Troublef(plugin.ProblemOf(err), "decrypt: the plugin no longer unwraps what it has wrapped: %w", err), plugin.OfTheValue(err)
	case fingerprintOf(got) != dek.fingerprint:
		return plugin.Troublef(BadAnswer, "decrypt: the plugin no longer gives back the DEK that it was given to encrypt"), true
	}
	return nil, false
}

// fingerprint tells whether two DEKs are the same, and nothing else of them.
type fingerprint [sha256.Size]byte

func fingerprintOf(secret []byte) fingerprint {
	return sha256.Sum256(append([]byte("atrest: the fingerprint of a DEK\x00"), secret...))
}

// lose ends writing with a DEK that the plugin has lost. What was written with it
// is readable for as long as this process has it, and to be written again: it is
// as if it were under a key_id that is no longer named.
func (p *Provider) lose(dek *writeDEK) {
	p.writer.discard(dek)
	p.cache.drop(func(d *knownDEK) bool { return d == dek.opener })
	outdated := &knownDEK{opener: dek.opener.opener, since: dek.opener.since, use: dek.opener.use}
	outdated.proven.Store(true)
	p.cache.addSource(&dek.source, nil, outdated)
	p.cache.findSource(&dek.source, dek.tail)
}

// trySample tries a plugin by a DEK that a value was read with, or could not be.
// That the plugin has no such KEK, or refuses one that is not its present one, is
// the value's matter.
func (p *Provider) trySample(ctx context.Context, d *draft) {
	source := p.samples.Best()
	if source == nil {
		return
	}
	asked := p.opts.Clock.Now()
	_, t, err := p.callDecrypt(ctx, source)
	if ctx.Err() != nil {
		return
	}
	now := p.opts.Clock.Now()
	if t != nil && (plugin.OfTheValue(err) || !t.LostContact() && source.KeyID != d.KeyID && d.KeyID != "") {
		p.samples.Forget(source)
		d.learn(func(k plugin.Known) plugin.Known {
			k.Decrypt = k.Decrypt.Moot(now)
			return k.AfterMoot(asked, now).Answered(nil, now)
		})
		return
	}
	d.learn(func(k plugin.Known) plugin.Known { return k.AfterTrial(t, asked, now) })
}
