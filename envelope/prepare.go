package envelope

import (
	"context"
	"time"

	"github.com/kube-atrest/atrest/internal/plugin"
)

// beginToWrite takes what was made ready into use.
func (p *Provider) beginToWrite() {
	k := p.followed.Load()
	healthy := k.Status.WellAt
	if k.Status.Trouble != nil || k.Decrypt.Trouble != nil && !p.writer.spareIsProvenSince(k.Decrypt.FailedAt) {
		healthy = time.Time{}
	}
	if spare := p.writer.begin(p.knownKeyID(k), k.NamedAt, healthy); spare.writeDEK != nil {
		p.use(spare.writeDEK)
		now := p.opts.Clock.Now()
		p.followed.Learn(func(k plugin.Known) plugin.Known {
			k.Decrypt, k.TriedAt = k.Decrypt.Moot(now), spare.proven
			return proven(spare.writeDEK, now)(k)
		})
	}
}

// Prepare makes the provider ready to write, or to write something more, or says
// why it cannot be: its plugin has to be well, and to wrap and unwrap a DEK. That
// is kept for when the provider gets the role [Writes], or needs another. Nothing
// else changes. Prepare fails when ctx ends, and with [ErrClosed].
func (p *Provider) Prepare(ctx context.Context) error {
	p.preparing.Add(1)
	defer p.preparing.Add(-1)
	if p.followed.Role() == Writes {
		if err := p.followed.Asked(ctx); err != nil {
			return err
		}
	}
	if !p.followed.Fresh() {
		if err := p.followed.Ask(ctx); err != nil {
			return err
		}
	}
	var t *plugin.Trouble
	if err := p.followed.Do(ctx, func(ctx context.Context) { t = p.makeSpare(ctx) }); err != nil {
		return err
	}
	return t.Cause()
}

// makeSpare makes a DEK ahead of when it is needed. One that there is has to be
// unwrapped again.
func (p *Provider) makeSpare(ctx context.Context) *plugin.Trouble {
	k, now := p.followed.Load(), p.opts.Clock.Now()
	if t := p.followed.Condition().Trouble; t != nil && p.followed.Role() == Writes {
		return t
	}
	if t := k.Ailing(p.followed.Role()); t != nil {
		return t
	}
	if k.KeyID == "" {
		return plugin.Troublef(Unreachable, "status: the plugin has not answered yet")
	}
	if p.writer.wasProvenAfter(now.Add(-time.Second)) {
		return nil
	}
	if dek := p.writer.current(); dek != nil && dek.keyID == k.KeyID {
		if t := p.tryNow(ctx, dek); t != nil {
			return t
		}
	}
	if t := p.maker.refusal(k.KeyID, now.Add(-p.opts.HealthyPoll)); t != nil {
		return t
	}
	t := p.makeOrProveSpare(ctx, k.KeyID)
	if t != nil && ctx.Err() == nil {
		p.maker.refused = refused{k.KeyID, t, now}
	}
	return t
}

func (p *Provider) makeOrProveSpare(ctx context.Context, keyID string) *plugin.Trouble {
	if spare, ok := p.writer.fittingSpare(keyID, p.opts.MaxWrites); ok {
		return p.proveAgain(ctx, spare)
	}
	now := p.opts.Clock.Now()
	dek, t := p.makeDEK(ctx, p.draft(), atStart) // what comes of trying a file changes nothing of what runs
	if t == nil {
		p.writer.keepSpare(dek, now)
	}
	return t
}

// proveAgain has the plugin unwrap a spare DEK again, if that is not known since a
// moment ago: it may be long that it was made. One that it no longer unwraps is
// dropped, and the next try makes another.
func (p *Provider) proveAgain(ctx context.Context, s spare) *plugin.Trouble {
	now := p.opts.Clock.Now()
	if now.Sub(s.proven) < time.Second {
		return nil
	}
	t, lost := p.unwrapAgain(ctx, s.writeDEK)
	switch {
	case ctx.Err() != nil:
	case lost && p.writer.current() != nil:
		p.writer.keepSpare(nil, time.Time{}) // the present one was unwrapped just now
	case lost:
		p.lose(p, s.opener.era.Load())
	case t == nil:
		p.writer.keepSpare(s.writeDEK, now)
	case now.Sub(s.proven) >= p.opts.HealthyPoll:
		p.writer.keepSpare(nil, time.Time{})
	}
	return t
}
