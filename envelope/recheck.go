package envelope

import (
	"cmp"
	"context"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/kube-atrest/atrest/internal/stored"
)

// unanswered is the encoded source of a DEK that the plugin has unwrapped, and did
// not unwrap when it was last tried by it; nil if there is none. If another DEK takes
// its place, whether it is lost is a question.
type unanswered struct{ atomic.Pointer[string] }

func (u *unanswered) refused(tail string) { u.Store(&tail) }

func (u *unanswered) unwrapped(tail string) {
	if r := u.Load(); r != nil && *r == tail {
		u.CompareAndSwap(r, nil)
	}
}

// askUnanswered asks a plugin that is well for what it last did not unwrap, if that is
// still of interest: it may have been away for a moment. If it says that it has lost
// that, all is in question.
func (p *Provider) askUnanswered(ctx context.Context, keyID string) {
	tail := p.refused.Load()
	if tail == nil {
		return
	}
	source, err := stored.ParseSource([]byte(*tail))
	dek := p.cache.find([]byte(*tail))
	if err != nil || dek == nil || source.KeyID != keyID {
		p.refused.CompareAndSwap(tail, nil)
		return
	}
	if _, lost := p.unwrapKnown(ctx, dek, &source); lost && ctx.Err() == nil {
		p.question(p, 0)
	}
}

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

// recheck has the plugin unwrap again some of what is in question. What it unwraps is
// of the present era.
func (p *Provider) recheck(ctx context.Context, keyID string) {
	began, era := p.opts.Clock.Now(), p.era.now.Load()
	if era == p.rechecked.era && began.Sub(p.rechecked.at) < p.opts.HealthyPoll {
		return
	}
	p.rechecked = rechecked{began, era}
	for _, e := range p.inQuestion(keyID) {
		source, err := stored.ParseSource(e.tail)
		if err != nil {
			e.dek.refused.Store(never) // it was parsed before
			continue
		}
		t, lost := p.unwrapKnown(ctx, e.dek, &source)
		switch {
		case ctx.Err() != nil:
			return
		case lost:
			e.dek.refused.Store(never)
		case t != nil:
			e.dek.refused.Add(1)
		}
		if p.opts.Clock.Since(began) >= recheckTime {
			return // others wait for the follower
		}
	}
}

// inQuestion are entries of DEKs that are in question and to be asked for next: those
// under the present key_id before others, and first that were refused least. What is
// written with is not among them: it is tried.
func (p *Provider) inQuestion(keyID string) []*entry {
	seen := p.inUse()
	entries := p.cache.entries(func(d *knownDEK) bool {
		return p.era.isOver(d) && !p.era.isLost(d) && d.refused.Load() != never
	})
	entries = slices.DeleteFunc(entries, func(e *entry) bool { // of several aliases one
		again := seen[e.dek]
		seen[e.dek] = true
		return again
	})
	slices.SortStableFunc(entries, func(a, b *entry) int {
		switch {
		case a.dek.refused.Load() != b.dek.refused.Load():
			return cmp.Compare(a.dek.refused.Load(), b.dek.refused.Load())
		case a.dek.keyID == keyID && b.dek.keyID != keyID:
			return -1
		case b.dek.keyID == keyID && a.dek.keyID != keyID:
			return 1
		}
		return 0
	})
	n := 0
	for n < min(len(entries), recheckAtOnce) && (n == 0 || entries[n].dek.refused.Load() < recheckTimes) {
		n++
	}
	return entries[:n]
}
