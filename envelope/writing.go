package envelope

import (
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"

	"github.com/kube-atrest/atrest/internal/hashed"
	"github.com/kube-atrest/atrest/internal/plugin"
	"github.com/kube-atrest/atrest/internal/stored"
)

// writeDEK is all that writing under one DEK needs, built whole and then only
// used: whoever holds one can seal with it. The plugin has unwrapped it once.
type writeDEK struct {
	sealer
	keyID  string
	source stored.DEKSource
	tail   []byte // encoded source, as it ends every object sealed under it
	opener *knownDEK

	reason string        // why it was made
	took   time.Duration // to make it
	begun  atomic.Bool   // it was written with
}

// lasts reports whether a DEK need not be replaced yet: it is not in the last
// eighth of its budget.
func (d *writeDEK) lasts(maxWrites uint64) bool { return d.uses().left() > maxWrites/8 }

// writing is what reads and writes need to know of writing. It is immutable.
type writing struct {
	// keyID is the one that Status last named, empty while that is not known.
	keyID string
	// dek is the DEK that is written with, nil if there was none yet, and open
	// whether it may be used.
	dek  *writeDEK
	open bool
	lost bool // the plugin has lost the one before

	turn uint64 // of the writer: what a timer may still change
	era  *eras
}

// outdates reports whether a value under a DEK is to be written again. Nothing is
// outdated where nothing is written, and everything while it is not known under
// which key_id it should be. What is of an earlier era was wrapped by a KEK that
// the plugin may have lost: it is readable in this process, and perhaps nowhere else.
func (w *writing) outdates(d *knownDEK) bool {
	return w != nil && (w.keyID != d.keyID || w.era.isOver(d))
}

// spare is a DEK that is not written with: made ahead, or set aside.
type spare struct {
	*writeDEK
	proven time.Time // when the plugin was last known to unwrap it
}

// writer holds what a provider writes with. Its present writing is read without
// a lock, and is nil while the provider does not write. A timer closes it at the
// end of the write window, so that a write need not look at the clock, and
// another ends what is known of the key_id.
type writer struct {
	clock  clock.WithDelayedExecution
	window time.Duration
	now    atomic.Pointer[writing]
	era    *eras // of the memory

	mu     sync.Mutex
	since  time.Time // when the plugin was last asked and entirely well; zero if never
	named  time.Time // when Status named the key_id
	spare  spare
	turn   uint64 // how often now was replaced
	timers []clock.Timer
}

// begin begins to write. What is spare is written with at once if the plugin was
// healthy at a time in the window, and knew the DEK: if it has named another
// key_id since, as after any change of it.
func (w *writer) begin(keyID string, named, healthy time.Time) (used spare) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !healthy.IsZero() && w.isFresh() {
		used, w.spare = w.spare, spare{}
		w.since = plugin.Earlier(healthy, used.proven)
	}
	w.named = named
	w.set(writing{keyID: keyID, dek: used.writeDEK, open: used.writeDEK != nil})
	return used
}

// isFresh reports whether there is a spare DEK that the plugin has unwrapped
// within the window.
func (w *writer) isFresh() bool {
	return w.spareIsNotLost() && w.clock.Since(w.spare.proven) <= w.window
}

// end ends writing. The DEK is set aside.
func (w *writer) end() (aside *writeDEK) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopTimers()
	if before := w.now.Swap(nil); before != nil && before.dek != nil {
		w.spare = spare{before.dek, w.since}
		aside = before.dek
	}
	w.since = time.Time{}
	return aside
}

// name notes under which key_id values should be, and when that was named; empty
// if it is not known.
func (w *writer) name(keyID string, at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.now.Load()
	if now == nil || now.keyID == keyID && w.named.Equal(at) {
		return // its timers run
	}
	w.named = at
	next := *now
	next.keyID = keyID
	w.set(next)
}

// permit lets dek be written with for the write window from since on, unless its KEK
// was lost meanwhile, and returns the one in whose place it comes, if that is another.
func (w *writer) permit(dek *writeDEK, since time.Time) (former *writeDEK) {
	w.mu.Lock()
	defer w.mu.Unlock()
	former, _ = w.put(dek, since)
	return former
}

// replace puts another DEK in the place of one that is used up. It does not
// prolong the write window. It is not ok if its KEK was lost meanwhile.
func (w *writer) replace(dek *writeDEK) (ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, ok = w.put(dek, w.since)
	return ok
}

// put is permit with mu held.
func (w *writer) put(dek *writeDEK, since time.Time) (former *writeDEK, ok bool) {
	now := w.now.Load()
	if now == nil {
		w.spare = spare{dek, since} // the role changed meanwhile
		return nil, true
	}
	if w.era.isLost(dek.opener) {
		return nil, false
	}
	if now.dek != dek {
		former = now.dek
	}
	w.since = since
	w.set(writing{keyID: dek.keyID, dek: dek, open: true})
	return former, true
}

// set replaces the present writing, and sets the timers that end it. The caller
// holds mu.
func (w *writer) set(next writing) {
	w.stopTimers()
	w.turn++
	next.turn, next.era = w.turn, w.era
	open := w.window - w.clock.Since(w.since)
	known := w.window - w.clock.Since(w.named)
	if open <= 0 {
		next.open = false
	}
	if known <= 0 {
		next.keyID = ""
	}
	w.now.Store(&next)
	if next.open {
		w.after(open, next.turn, func(now *writing) { now.open = false })
	}
	if next.keyID != "" {
		w.after(known, next.turn, func(now *writing) { now.keyID = "" })
	}
}

// after changes the present writing after a time, if it is still that of a turn.
// It neither takes mu nor looks at the clock.
func (w *writer) after(wait time.Duration, turn uint64, change func(*writing)) {
	w.timers = append(w.timers, w.clock.AfterFunc(wait, func() {
		for {
			now := w.now.Load()
			if now == nil || now.turn != turn {
				return
			}
			changed := *now
			change(&changed)
			if w.now.CompareAndSwap(now, &changed) {
				return
			}
		}
	}))
}

func (w *writer) stopTimers() {
	for _, t := range w.timers {
		t.Stop()
	}
	w.timers = nil
}

// takeSpare is the spare DEK if it is for keyID, lasts and is fresh; it is spare
// no longer.
func (w *writer) takeSpare(keyID string, maxWrites uint64) (taken spare, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.spareFits(keyID, maxWrites) || !w.isFresh() {
		return spare{}, false
	}
	taken, w.spare = w.spare, spare{}
	return taken, true
}

// fittingSpare is the spare DEK if it is for keyID and lasts, and when it was last
// proven.
func (w *writer) fittingSpare(keyID string, maxWrites uint64) (spare, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.spare, w.spareFits(keyID, maxWrites)
}

func (w *writer) spareFits(keyID string, maxWrites uint64) bool {
	return w.spareIsNotLost() && w.spare.keyID == keyID && w.spare.lasts(maxWrites)
}

// spareIsNotLost reports whether there is a spare DEK, which is not known to be lost.
func (w *writer) spareIsNotLost() bool {
	return w.spare.writeDEK != nil && !w.era.isLost(w.spare.opener) && w.spare.opener.refusals.Load() != never
}

// keepSpare keeps a DEK that was proven at a time; none for nil.
func (w *writer) keepSpare(dek *writeDEK, proven time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.spare = spare{dek, proven}
}

// distrust has a DEK, if it is spare, not written with before it is proven again.
func (w *writer) distrust(dek *writeDEK) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.spare.writeDEK == dek {
		w.spare.proven = time.Time{}
	}
}

// spareIsProvenSince reports whether there is a spare DEK that the plugin was known
// to unwrap at a time or later.
func (w *writer) spareIsProvenSince(at time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.spare.writeDEK != nil && !w.spare.proven.Before(at)
}

// wasProvenAfter reports whether what is written with was made after a time.
func (w *writer) wasProvenAfter(at time.Time) bool {
	now := w.now.Load()
	return now != nil && now.open && now.dek.opener.since.After(at)
}

// current is what is written with, or was until the window was over; nil if there
// is none.
func (w *writer) current() *writeDEK {
	if now := w.now.Load(); now != nil {
		return now.dek
	}
	return nil
}

// aside is a DEK that is not written with, though the plugin has unwrapped it; nil
// if there is none.
func (w *writer) aside() *writeDEK {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.spare.writeDEK
}

// lose ends writing with what the plugin has wrapped until now, and returns the DEK
// that was written with; nil if there was none.
func (w *writer) lose() (former *writeDEK) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if now := w.now.Load(); now != nil {
		former = now.dek
		w.set(writing{keyID: now.keyID, lost: now.lost || former != nil})
	}
	w.spare = spare{}
	return former
}

// into adds what the writer knows to a health.
func (w *writer) into(h *Health) {
	w.mu.Lock()
	defer w.mu.Unlock()
	h.LastHealthy = w.since
	now := w.now.Load()
	if now == nil || now.dek == nil {
		return
	}
	h.WritesUntil = w.since.Add(w.window)
	h.KeyIDHash = HashKeyID(now.dek.keyID)
	h.DEKCreated = now.dek.opener.since
	h.DEKWrites = now.dek.uses().spent()
	h.DEKHash = hashed.Name(now.dek.tail)
}
