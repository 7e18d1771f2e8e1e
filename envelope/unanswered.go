package envelope

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/kube-atrest/atrest/internal/stored"
)

// unanswered are DEKs that the plugin has unwrapped, and did not when it was last tried
// by them, or that nobody would try it by again. Those that a plugin which is well does
// not unwrap either raise a question: whether they are lost, and what else is. Safe for
// concurrent use.
type unanswered struct {
	mu   sync.Mutex
	deks map[string]refusal // by their encoded source
}

// refusal is a DEK, nil for one that is not in memory, and how often the plugin has not
// unwrapped it though it was well, at last at a time.
type refusal struct {
	source *stored.DEKSource
	dek    *knownDEK
	times  int
	at     time.Time
}

const (
	// maxUnanswered is how many are kept. Each stands for all the others.
	maxUnanswered = 16
	// questionable is how often one is refused, at polls, until that raises a question:
	// a plugin may be busy for a moment.
	questionable = 2
)

// refused notes that the plugin did not unwrap a DEK.
func (u *unanswered) refused(source *stored.DEKSource, dek *knownDEK) {
	u.mu.Lock()
	defer u.mu.Unlock()
	tail := string(source.Tail())
	r, known := u.deks[tail]
	if !known && len(u.deks) == maxUnanswered && !u.makeRoom(source.KeyID) {
		return
	}
	if u.deks == nil {
		u.deks = map[string]refusal{}
	}
	mark(r.dek, false)
	r.source, r.dek = source, dek
	u.deks[tail] = r
	mark(dek, true)
}

// makeRoom drops one under another key_id, of which nothing is asked now, and reports
// whether there was one. The caller holds mu.
func (u *unanswered) makeRoom(keyID string) bool {
	for tail, r := range u.deks {
		if r.source.KeyID != keyID {
			mark(r.dek, false)
			delete(u.deks, tail)
			return true
		}
	}
	return false
}

// again counts a refusal by a plugin that is well, if the one before is long ago enough,
// and reports whether there were so many that they raise a question.
func (u *unanswered) again(source *stored.DEKSource, now time.Time, every time.Duration) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	tail := string(source.Tail())
	r, known := u.deks[tail]
	if known && now.Sub(r.at) >= every {
		r.times, r.at = r.times+1, now
		u.deks[tail] = r
	}
	return r.times >= questionable
}

func mark(dek *knownDEK, unanswered bool) {
	if dek != nil {
		dek.unanswered.Store(unanswered)
	}
}

// unwrapped notes that it did.
func (u *unanswered) unwrapped(source *stored.DEKSource) {
	u.mu.Lock()
	defer u.mu.Unlock()
	tail := string(source.Tail())
	mark(u.deks[tail].dek, false)
	delete(u.deks, tail)
}

// all are those that there are.
func (u *unanswered) all() []refusal {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Collect(maps.Values(u.deks))
}

// clear drops them.
func (u *unanswered) clear() {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, r := range u.deks {
		mark(r.dek, false)
	}
	clear(u.deks)
}
