package envelope

import (
	"maps"
	"sync"
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
// unwrapped it.
type refusal struct {
	dek   *knownDEK
	times int
}

const (
	// maxUnanswered is how many are kept. Each stands for all the others.
	maxUnanswered = 16
	// questionable is how often one is refused until that raises a question: a plugin
	// may be busy for a moment.
	questionable = 3
)

// refused notes that the plugin did not unwrap a DEK.
func (u *unanswered) refused(tail string, dek *knownDEK) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if _, known := u.deks[tail]; !known && len(u.deks) == maxUnanswered {
		return
	}
	if u.deks == nil {
		u.deks = map[string]refusal{}
	}
	u.deks[tail] = refusal{dek, u.deks[tail].times + 1}
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
	mark(u.deks[tail].dek, false)
	delete(u.deks, tail)
}

// all are those that there are.
func (u *unanswered) all() map[string]refusal {
	u.mu.Lock()
	defer u.mu.Unlock()
	return maps.Clone(u.deks)
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
