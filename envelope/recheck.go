package envelope

import (
	"context"
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

// Of what is in question, a plugin is asked at each poll for recheckAtOnce at most,
// and for recheckTime; for one that it does not unwrap, recheckTimes in all.
const (
	recheckAtOnce = 16
	recheckTime   = time.Second
	recheckTimes  = 100
)

// recheck has a plugin that is well unwrap again some of what is in question under its
// present key_id. What it unwraps is of the present era.
func (p *Provider) recheck(ctx context.Context, keyID string) {
	began := p.opts.Clock.Now()
	for _, e := range p.inQuestion(keyID) {
		source, err := stored.ParseSource(e.tail)
		if err != nil {
			e.dek.refused.Store(recheckTimes) // it was parsed before
			continue
		}
		t, lost := p.unwrapKnown(ctx, e.dek, &source)
		switch {
		case ctx.Err() != nil:
			return
		case lost:
			e.dek.refused.Store(recheckTimes)
		case t != nil:
			e.dek.refused.Add(1)
		}
		if p.opts.Clock.Since(began) >= recheckTime {
			return // others wait for the follower
		}
	}
}

// inQuestion are entries of DEKs that are in question and to be asked for next: the
// one that is written with first, then those that were refused least.
func (p *Provider) inQuestion(keyID string) []*entry {
	asked := map[*knownDEK]bool{}
	entries := p.cache.entries(func(d *knownDEK) bool {
		return d.keyID == keyID && p.era.isOver(d) && !p.era.isLost(d) && d.refused.Load() < recheckTimes
	})
	entries = slices.DeleteFunc(entries, func(e *entry) bool { // of several aliases one
		again := asked[e.dek]
		asked[e.dek] = true
		return again
	})
	now := p.writer.current()
	after := func(e *entry) int {
		if now != nil && e.dek == now.opener {
			return -1
		}
		return int(e.dek.refused.Load())
	}
	slices.SortStableFunc(entries, func(a, b *entry) int { return after(a) - after(b) })
	return entries[:min(len(entries), recheckAtOnce)]
}
