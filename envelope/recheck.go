package envelope

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	"github.com/kube-atrest/atrest/internal/stored"
)

// Of what is in question, a plugin that is well is asked at a healthy poll, and when the
// question comes up, until it has refused recheckAtOnce, and for recheckTime. What it
// refused recheckTimes is asked for one by one, when there is nothing else.
const (
	recheckAtOnce = 16
	recheckTime   = 2 * time.Second
	recheckTimes  = 10
	never         = math.MaxUint32 // the plugin has said that it has no such KEK
)

// rechecked is when, and in which era, there last was a recheck. It is for the
// follower's goroutine.
type rechecked struct {
	at  time.Time
	era uint32
}

// recheck has the plugin unwrap again some of what is in question. What it unwraps is
// of the present era.
func (p *Provider) recheck(ctx context.Context, keyID string) {
	began, era := p.opts.Clock.Now(), p.era.now.Load()
	if era == 0 || era == p.rechecked.era && began.Sub(p.rechecked.at) < p.opts.HealthyPoll {
		return
	}
	p.rechecked = rechecked{began, era}
	refused := 0
	for _, e := range p.inQuestion(keyID) {
		source, err := stored.ParseSource(e.tail)
		if err != nil {
			e.dek.refusals.Store(never) // it was parsed before
			continue
		}
		t, lost := p.unwrapKnown(ctx, e.dek, &source)
		switch {
		case ctx.Err() != nil:
			return
		case lost && e.dek.keyID == keyID:
			e.dek.refusals.Store(never)
		case t != nil:
			e.dek.refusals.Add(1)
		}
		if t != nil {
			refused++
		}
		if refused == recheckAtOnce || t != nil && e.dek.refusals.Load() > recheckTimes || p.opts.Clock.Since(began) >= recheckTime {
			return // others wait for the follower
		}
	}
}

// askUnanswered asks a plugin that is well for what it did not unwrap before, under its
// present key_id: it may have been away for a moment, or busy. What it says it has lost,
// and what it refuses again and again, raises a question if this provider writes. sure is
// what the plugin has unwrapped just now.
func (p *Provider) askUnanswered(ctx context.Context, keyID string, sure *knownDEK) {
	began, inDoubt := p.opts.Clock.Now(), false
	for _, refused := range p.unanswered.all() {
		if refused.source.KeyID != keyID {
			continue
		}
		if p.opts.Clock.Since(began) >= recheckTime {
			break
		}
		t, lost := p.unwrapMet(ctx, refused.dek, refused.source)
		switch {
		case ctx.Err() != nil:
			return
		case lost && refused.dek == sure:
			sure = nil // it is tried
		case lost && refused.dek != nil:
			refused.dek.refusals.Store(never)
		}
		inDoubt = inDoubt || lost || t != nil && p.unanswered.again(refused.source, began, p.opts.UnhealthyPoll)
	}
	if inDoubt && p.writer.current() != nil {
		p.question(sure)
	}
}

// inQuestion are entries of DEKs that are in question and to be asked for, in that
// order: those under the present key_id before others, and first that were refused
// least. What is written with is not among them: it is tried.
func (p *Provider) inQuestion(keyID string) []*entry {
	seen := p.inUse()
	entries := p.cache.entries(func(d *knownDEK) bool {
		return p.era.isOver(d) && !p.era.isLost(d) && d.refusals.Load() != never
	})
	entries = slices.DeleteFunc(entries, func(e *entry) bool { // of several aliases one
		again := seen[e.dek]
		seen[e.dek] = true
		return again
	})
	late := func(e *entry) int {
		switch {
		case e.dek.refusals.Load() >= recheckTimes:
			return 2
		case e.dek.keyID != keyID:
			return 1
		}
		return 0
	}
	slices.SortStableFunc(entries, func(a, b *entry) int {
		return cmp.Or(late(a)-late(b), cmp.Compare(a.dek.refusals.Load(), b.dek.refusals.Load()))
	})
	return entries
}
