package envelope

import (
	"maps"
	"sync"
)

// unanswered are DEKs that the plugin has unwrapped, and did not when it was last tried
// by them. If another DEK takes the place of one, whether they are lost is a question.
// Safe for concurrent use.
type unanswered struct {
	mu   sync.Mutex
	deks map[string]*knownDEK // by their encoded source; nil for one that is not in memory
}

// maxUnanswered is how many are kept. Each stands for all the others.
const maxUnanswered = 16

// refused notes that the plugin did not unwrap a DEK.
func (u *unanswered) refused(tail string, dek *knownDEK) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if _, known := u.deks[tail]; !known && len(u.deks) == maxUnanswered {
		return
	}
	if u.deks == nil {
		u.deks = map[string]*knownDEK{}
	}
	u.deks[tail] = dek
	mark(dek, true)
}

func mark(dek *knownDEK, unanswered bool) {
	if dek != nil {
		dek.unanswered.Store(unanswered)
	}
}

// unwrapped notes that it did.
func (u *unanswered) unwrapped(tail string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	mark(u.deks[tail], false)
	delete(u.deks, tail)
}

// all are those that there are.
func (u *unanswered) all() map[string]*knownDEK {
	u.mu.Lock()
	defer u.mu.Unlock()
	return maps.Clone(u.deks)
}

// take empties it, and reports whether there were any.
func (u *unanswered) take() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	any_ := len(u.deks) > 0
	for _, dek := range u.deks {
		mark(dek, false)
	}
	clear(u.deks)
	return any_
}
