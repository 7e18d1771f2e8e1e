package envelope

import (
	"context"
	"time"

	"github.com/kube-atrest/atrest/internal/plugin"
	"github.com/kube-atrest/atrest/internal/stored"
)

// draft is what is known of a plugin while it is being asked. What it learns is
// known to others when all is done: a plugin that has named a new key_id is not
// well before there is a DEK under it.
type draft struct {
	plugin.Known
	changes []func(plugin.Known) plugin.Known
	tried   bool // by a write DEK, since it is being asked
}

func (p *Provider) draft() *draft { return &draft{Known: *p.followed.Load()} }

func (d *draft) learn(change func(plugin.Known) plugin.Known) {
	d.Known = change(d.Known)
	d.changes = append(d.changes, change)
}

// publish makes known what a draft has learned.
func (p *Provider) publish(d *draft) {
	p.followed.Learn(func(k plugin.Known) plugin.Known {
		for _, change := range d.changes {
			k = change(k)
		}
		return k
	})
}

// ask asks the plugin how it is, and brings what is written with into line. It
// is called by the follower's goroutine alone, as are all below it. What fails
// because ctx ended says nothing of the plugin.
func (p *Provider) ask(ctx context.Context, role Role) {
	if role == Idle && p.preparing.Load() == 0 {
		return
	}
	asked, d := p.opts.Clock.Now(), p.draft()
	p.askStatus(ctx, d, asked)
	var dek *writeDEK
	if role == Writes && ctx.Err() == nil {
		dek = p.supply(ctx, d)
	}
	if p.try(ctx, d, role, dek) {
		dek = nil
	}
	if ctx.Err() != nil {
		return
	}
	well := p.well(d)
	switch {
	case dek == nil:
	case well:
		p.writeWith(dek, asked) // before anybody is told that the plugin is well
	case p.writer.current() == dek:
	case d.Decrypt.Trouble == nil:
		p.writer.keepSpare(dek, asked) // for when it is well
	default:
		p.writer.keepSpare(dek, time.Time{}) // it may be what the plugin did not unwrap
	}
	p.publish(d)
	if well && dek != nil && p.era.isLost(dek.opener) {
		p.mustMakeAnother() // another provider has found that meanwhile
	}
	if d.Status.Trouble == nil && d.Decrypt.Trouble == nil {
		var sure *knownDEK
		if dek != nil && (d.tried || !dek.opener.since.Before(asked)) {
			sure = dek.opener
		}
		p.askUnanswered(ctx, d.KeyID, sure)
		p.recheck(ctx, d.KeyID)
	}
}

// writeWith lets a DEK be written with for the write window from since on, unless its
// KEK is known to be lost.
func (p *Provider) writeWith(dek *writeDEK, since time.Time) {
	if now := p.writer.current(); now != dek {
		p.setAside(now) // before anybody could look for it in vain
	}
	p.use(dek)
	p.setAside(p.writer.permit(dek, since))
}

// setAside keeps a DEK that is no longer written with among those that are read
// with, as the last that was used: it may have been pushed out meanwhile.
func (p *Provider) setAside(d *writeDEK) {
	if d != nil {
		p.cache.addSource(&d.source, nil, d.opener)
		p.cache.find(d.tail)
	}
}

// well reports whether nothing at all is wrong, also nothing that is new. Only
// such a plugin prolongs the write window, from the moment it was asked: the
// answer may be long under way, and was true before it came.
func (p *Provider) well(d *draft) bool {
	return d.Status.Trouble == nil && d.Encrypt.Trouble == nil && d.Decrypt.Trouble == nil &&
		d.Condition(Writes, p.opts.WriteWindow, p.opts.Clock.Now()).Trouble == nil
}

// askStatus calls Status.
func (p *Provider) askStatus(ctx context.Context, d *draft, asked time.Time) {
	s, err := p.plugin.Status(ctx)
	if ctx.Err() != nil {
		return
	}
	keyID, t := p.judge(s, err, d.Version)
	now := p.opts.Clock.Now()
	d.learn(func(k plugin.Known) plugin.Known {
		if t == nil && k.Version == "" {
			k.Version = s.Version
		}
		if keyID != "" {
			k.KeyID, k.NamedAt = keyID, asked
		}
		k.Status = k.Status.After(t, asked, now)
		return k
	})
}

// judge finds what is wrong with an answer to Status. The key_id of an answer
// without one that can be used is empty.
func (p *Provider) judge(s Status, err error, pinned string) (keyID string, t *plugin.Trouble) {
	if err != nil {
		return "", plugin.TroubleOf("status", err)
	}
	if err := stored.ValidateKeyID(s.KeyID); err != nil {
		p.opts.Observer.KeyIDRefused(err)
		return "", plugin.Troublef(BadKeyID, "status: %w", err)
	}
	p.opts.Observer.StatusSeen(s.KeyID)
	if s.Healthz != "ok" {
		return s.KeyID, plugin.Troublef(Unhealthy, "status: the plugin reports healthz %.300q, not \"ok\"", s.Healthz)
	}
	return s.KeyID, checkVersion(s.Version, pinned)
}

// checkVersion holds a version of the API to the one that is pinned, if there is
// one.
func checkVersion(v, pinned string) *plugin.Trouble {
	if v != "v2" && v != "v2beta1" {
		return plugin.Troublef(BadVersion, "status: the plugin speaks version %.100q of the KMS API, not v2 or v2beta1", v)
	}
	if pinned != "" && v != pinned {
		return plugin.Troublef(BadVersion, "status: the plugin changed its KMS API version from %s to %s; restart the apiserver if that is meant", pinned, v)
	}
	return nil
}

// Why a DEK is made.
const (
	atStart      = "start"         // there is none
	otherKeyID   = "key_id"        // the plugin has named another key_id
	usedUp       = "used_up"       // the budget of the one before is
	notUnwrapped = "not_unwrapped" // the plugin, though in reach, does not unwrap the one before
)

// supply is the DEK to write with under the key_id that Status named just now:
// the present one as long as the key_id stays, its budget lasts and the plugin
// unwraps it, else the spare one or a fresh one. It is nil if there is none.
func (p *Provider) supply(ctx context.Context, d *draft) *writeDEK {
	p.writer.name(p.knownKeyID(&d.Known), d.NamedAt)
	if d.Status.Trouble != nil {
		return nil
	}
	now, reason := p.writer.now.Load(), atStart
	switch {
	case now == nil:
	case now.lost:
		reason = notUnwrapped
	case now.dek == nil && d.Decrypt.Trouble != nil && p.writer.aside() != nil:
		reason = notUnwrapped // there is one, which may be what the plugin did not unwrap
	case now.dek == nil:
	case now.dek.keyID != d.KeyID:
		reason = otherKeyID
	case !now.dek.lasts(p.opts.MaxWrites):
		reason = usedUp
	case !now.open && d.Decrypt.Trouble != nil && !p.isWellAgain(ctx, d, now.dek):
		reason = notUnwrapped // the window is over: nothing is lost by another
	default:
		d.learn(proven(now.dek, p.opts.Clock.Now()))
		return now.dek
	}
	if reason != notUnwrapped {
		if spare, ok := p.writer.takeSpare(d.KeyID, p.opts.MaxWrites); ok {
			d.learn(proven(spare.writeDEK, p.opts.Clock.Now()))
			d.learn(func(k plugin.Known) plugin.Known { k.TriedAt = spare.proven; return k })
			return spare.writeDEK
		}
	}
	dek, _ := p.make(ctx, d, reason)
	return dek
}

// isWellAgain reports whether a trial by the present DEK ends the plugin's trouble with
// Decrypt. What is not known, as ctx ended, is no reason to make another.
func (p *Provider) isWellAgain(ctx context.Context, d *draft, dek *writeDEK) bool {
	p.tryDEK(ctx, d, dek, true)
	return d.Decrypt.Trouble == nil || ctx.Err() != nil
}

// proven is what is known by a DEK under the key_id that is named now: it was
// wrapped and unwrapped, and what Encrypt last came to does not matter.
func proven(dek *writeDEK, now time.Time) func(plugin.Known) plugin.Known {
	return func(k plugin.Known) plugin.Known {
		k.Encrypt = k.Encrypt.Moot(now).Well(dek.opener.since)
		k.Decrypt = k.Decrypt.Well(dek.opener.since)
		return k
	}
}

// knownKeyID is the key_id that Status last named, empty if that is longer ago
// than the write window: the KEK may be another by now.
func (p *Provider) knownKeyID(k *plugin.Known) string {
	if k.KeyID == "" || p.opts.Clock.Since(k.NamedAt) > p.opts.WriteWindow {
		return ""
	}
	return k.KeyID
}

// renew replaces a DEK that is used up, if the plugin is well. It waits for the
// follower, who asks the plugin.
func (p *Provider) renew(ctx context.Context, used *writeDEK) error {
	var t *plugin.Trouble
	err := p.followed.Do(ctx, func(ctx context.Context) {
		if now := p.writer.now.Load(); now == nil || now.dek != used {
			return
		}
		if t = p.followed.ConditionFor(Writes).Trouble; t != nil {
			return
		}
		d := p.draft()
		dek, trouble := p.make(ctx, d, usedUp)
		if t = trouble; ctx.Err() != nil {
			return
		}
		p.publish(d)
		if t == nil {
			p.setAside(used) // before anybody could look for it in vain
			p.use(dek)
			if !p.writer.replace(dek) {
				p.mustMakeAnother()
			}
		}
	})
	if err != nil {
		return err
	}
	return t.Cause()
}
