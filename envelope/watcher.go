package envelope

import (
	"context"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kube-atrest/atrest/internal/plugin"
)

// watcher follows the Status of a plugin that is only read with, to tell of it:
// no read waits for it or depends on it. Its loop alone changes anything; any
// number of others read.
type watcher struct {
	*plugin.Loop
	asker
	decrypts *decrypts

	condition atomic.Pointer[plugin.Condition] // by Status alone
	told      atomic.Pointer[told]

	refused time.Time // of the loop alone: since when Status is refused
}

// told is what Status last told. It is immutable.
type told struct {
	keyID   string
	healthy time.Time // when it was last asked and well
}

// decrypts is what is known of a plugin by its calls of Decrypt.
type decrypts struct {
	condition atomic.Pointer[plugin.Condition] // what the last came to
	succeeded atomic.Pointer[time.Time]        // when one last did
}

// found records what a call came to.
func (d *decrypts) found(t *plugin.Trouble, now time.Time) {
	if t == nil {
		d.succeeded.Store(&now)
	}
	plugin.Record(&d.condition, t, now)
}

// startWatcher begins to follow the provider's plugin when the loop before has
// ended.
func startWatcher(p *Provider, before *plugin.Loop) *watcher {
	w := &watcher{asker: p.asker(), decrypts: &p.decrypts}
	w.condition.Store(&plugin.Condition{Since: p.opts.Clock.Now()})
	w.told.Store(&told{})
	w.Loop = w.follow(before, w.probe)
	return w
}

// probe asks the plugin how it is. A Status that is well also ends a problem
// that Decrypt had with reaching the plugin. It ends no other: only Decrypt can
// tell whether the plugin unwraps again.
func (w *watcher) probe(ctx context.Context) error {
	asked, before := w.opts.Clock.Now(), w.decrypts.condition.Load()
	s, t := w.status(ctx)
	if ctx.Err() != nil {
		return ctx.Err() // another loop follows, or none: what failed says nothing of the plugin
	}
	w.heard(s, t, asked)
	if w.excused(t, asked) {
		t = nil
	}
	now := w.opts.Clock.Now()
	if t == nil && before.Trouble != nil && before.Problem == Unreachable {
		after := before.Next(nil, now)
		w.decrypts.condition.CompareAndSwap(before, &after)
	}
	if plugin.Record(&w.condition, t, now) {
		w.opts.Observer.Changed(w.health())
	}
	return t.Cause()
}

// heard notes what Status told.
func (w *watcher) heard(s Status, t *plugin.Trouble, asked time.Time) {
	now := *w.told.Load()
	if s.KeyID != "" {
		now.keyID = s.KeyID
	}
	if t == nil {
		now.healthy = asked
	}
	w.told.Store(&now)
}

// excused tells whether t is no problem of a plugin that is only read with. It
// may refuse Status, as at the end of a rotation, when its KEK may only decrypt
// any more. What refuses may as well have lost its credentials: so it is
// excused once Decrypt has succeeded since it began to refuse.
func (w *watcher) excused(t *plugin.Trouble, asked time.Time) bool {
	if !refuses(t) {
		w.refused = time.Time{}
		return false
	}
	if w.refused.IsZero() {
		w.refused = asked
	}
	last := w.decrypts.succeeded.Load()
	return last != nil && !last.Before(w.refused)
}

func refuses(t *plugin.Trouble) bool {
	code := status.Code(t.Cause())
	return code == codes.PermissionDenied || code == codes.Unimplemented
}

// health is the reading side of [Health]. What Decrypt came to is first: a
// plugin whose Status is well may still not unwrap.
func (w *watcher) health() Health {
	var h Health
	h.setCondition(w.condition.Load())
	if d := w.decrypts.condition.Load(); d.Trouble != nil || h.Problem == "" && d.Since.After(h.Since) {
		h.setCondition(d)
	}
	seen := w.told.Load()
	h.KeyIDHash, h.LastHealthy = HashKeyID(seen.keyID), seen.healthy
	return h
}
