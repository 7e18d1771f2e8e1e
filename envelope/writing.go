package envelope

import (
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"

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
	counts sync.Once // enters it into the usage when it is first written with
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
}

// outdates reports whether a value under keyID is to be written again. Nothing
// is outdated where nothing is written, and everything while it is not known
// under which key_id it should be.
func (w *writing) outdates(keyID string) bool { return w != nil && w.keyID != keyID }

// writer holds what a provider writes with. Its present writing is read without
// a lock, and is nil while the provider does not write. A timer closes it at the
// end of the write window, so that a write need not look at the clock.
type writer struct {
	clock  clock.WithDelayedExecution
	window time.Duration
	now    atomic.Pointer[writing]

	mu      sync.Mutex
	since   time.Time // when the plugin was last asked and entirely well; zero if never
	spare   *writeDEK // proven and not written with: made ahead, or set aside
	closing clock.Timer
}

// begin begins to write. What is spare is written with at once if it can be.
func (w *writer) begin(keyID string, healthy time.Time) (used *writeDEK) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.spare != nil && w.spare.keyID == keyID && !healthy.IsZero() {
		used, w.spare, w.since = w.spare, nil, healthy
	}
	w.set(&writing{keyID: keyID, dek: used, open: used != nil}, "")
	return used
}

// end ends writing. The DEK is set aside.
func (w *writer) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closing != nil {
		w.closing.Stop()
	}
	if before := w.now.Swap(nil); before != nil && before.dek != nil {
		w.spare = before.dek
	}
	w.since = time.Time{}
}

// name notes under which key_id values should be; empty if that is not known.
// since is that of the permit if it is not older than this knowledge.
func (w *writer) name(keyID string, at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.now.Load()
	if now == nil || now.keyID == keyID {
		return
	}
	w.set(&writing{keyID: keyID, dek: now.dek, open: now.open}, afterwards(keyID, at, w.since))
}

// permit lets dek be written with for the write window from since on.
func (w *writer) permit(dek *writeDEK, since time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.now.Load() == nil {
		w.spare = dek // the role changed meanwhile
		return
	}
	w.since = since
	w.set(&writing{keyID: dek.keyID, dek: dek, open: true}, "")
}

// replace puts another DEK in the place of one that is used up. It does not
// prolong the write window.
func (w *writer) replace(dek *writeDEK) {
	w.mu.Lock()
	since := w.since
	w.mu.Unlock()
	w.permit(dek, since)
}

// afterwards is the key_id that is still known when the window from since on has
// passed, of one that was named at.
func afterwards(keyID string, at, since time.Time) string {
	if at.After(since) {
		return keyID
	}
	return ""
}

// set replaces the present writing. When the window has passed it is closed, and
// then keyID is what is known. The caller holds mu.
func (w *writer) set(next *writing, keyID string) {
	if w.closing != nil {
		w.closing.Stop()
		w.closing = nil
	}
	closed := &writing{keyID: keyID, dek: next.dek}
	left := w.window - w.clock.Since(w.since)
	if next.open && left <= 0 {
		next = closed
	}
	w.now.Store(next)
	if next.open {
		w.closing = w.clock.AfterFunc(left, func() { w.now.CompareAndSwap(next, closed) })
	}
}

// takeSpare is the spare DEK if it is for keyID and lasts; it is spare no longer.
func (w *writer) takeSpare(keyID string, maxWrites uint64) *writeDEK {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.spareFits(keyID, maxWrites) {
		return nil
	}
	spare := w.spare
	w.spare = nil
	return spare
}

func (w *writer) hasSpare(keyID string, maxWrites uint64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.spareFits(keyID, maxWrites)
}

func (w *writer) spareFits(keyID string, maxWrites uint64) bool {
	return w.spare != nil && w.spare.keyID == keyID && w.spare.lasts(maxWrites)
}

func (w *writer) keepSpare(dek *writeDEK) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.spare = dek
}

// wrapped is the source of a DEK that the plugin has unwrapped once and should
// be able to unwrap again, if there is one for keyID.
func (w *writer) wrapped(keyID string) *stored.DEKSource {
	w.mu.Lock()
	defer w.mu.Unlock()
	if now := w.now.Load(); now != nil && now.dek != nil && now.dek.keyID == keyID {
		return &now.dek.source
	}
	if w.spare != nil && w.spare.keyID == keyID {
		return &w.spare.source
	}
	return nil
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
}
