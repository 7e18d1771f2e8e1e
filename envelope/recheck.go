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
// question comes up, for recheckAtOnce at most, and for recheckTime. What it refused
// recheckTimes is asked for one by one, when there is nothing else.
const (
	recheckAtOnce = 16
	recheckTime   = time.Second
	recheckTimes  = 10
	never         = math.MaxUint32 // the plugin has said that it has no such KEK
)

// rechecked is when, and in which era, there last was a recheck. It is for the
// follower's goroutine.
type rechecked struct {
	at  time.Time
	era uint32
}

// recheck has the plugin unwrap again what is unanswered, and some of what is in
// question. What it unwraps is of the present era.
func (p *Provider) recheck(ctx context.Context, keyID string) {
	began, era := p.opts.Clock.Now(), p.era.now.Load()
	if era == p.rechecked.era && began.Sub(p.rechecked.at) < p.opts.HealthyPoll {
		return
	}
	p.rechecked = rechecked{began, era}
	p.askUnanswered(ctx, keyID)
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
		case lost:
			e.dek.refusals.Store(never)
		case t != nil:
			e.dek.refusals.Add(1)
		}
		if p.opts.Clock.Since(began) >= recheckTime {
			return // others wait for the follower
		}
	}
}

// askUnanswered asks a plugin that is well for what it last did not unwrap, under its
// present key_id: it may have been away for a moment. If it says that it has lost that,
// all is in question.
func (p *Provider) askUnanswered(ctx context.Context, keyID string) {
	for tail, dek := range p.unanswered.all() {
		source, err := stored.ParseSource([]byte(tail))
		if err != nil || source.KeyID != keyID || ctx.Err() != nil {
			continue
		}
		if _, lost := p.unwrapMet(ctx, dek, &source); lost && ctx.Err() == nil {
			p.question(p, 0)
			return
		}
	}
}

// inQuestion are entries of DEKs that are in question and to be asked for next: those
// under the present key_id before others, and first that were refused least. What is
// written with is not among them: it is tried.
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
	slices.SortStableFunc(entries, func(a, b *entry) int {
		switch {
		case a.dek.refusals.Load() != b.dek.refusals.Load():
			return cmp.Compare(a.dek.refusals.Load(), b.dek.refusals.Load())
		case a.dek.keyID == keyID && b.dek.keyID != keyID:
			return -1
		case b.dek.keyID == keyID && a.dek.keyID != keyID:
			return 1
		}
		return 0
	})
	n := 0
	for n < min(len(entries), recheckAtOnce) && (n == 0 || entries[n].dek.refusals.Load() < recheckTimes) {
		n++
	}
	return entries[:n]
}
