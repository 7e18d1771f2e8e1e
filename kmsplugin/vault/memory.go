package vault

import (
	"slices"
	"strconv"
	"sync"

	"github.com/kube-atrest/atrest/kmsplugin"
)

// A memory is what outlives a session. The zero value is empty, and it is safe for concurrent
// use.
type memory struct {
	mu sync.Mutex
	// newest is the newest state of the key that was seen.
	newest *key
	// used are versions that DEKs were wrapped under in this life and that unwrapped when it
	// was looked last.
	used []kmsplugin.Version
	// trusted is what Vault was seen to do as it was asked.
	trusted trust
	// told is whether it was told that the key may leave Vault.
	told bool
}

// toldOnce is true once.
func (m *memory) toldOnce() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	was := m.told
	m.told = true
	return !was
}

// accept takes a state of the key, unless it is older than what was seen.
func (m *memory) accept(k *key) (before *key, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if k.goesBack(m.newest) {
		return m.newest, false
	}
	before, m.newest = m.newest, k
	return before, true
}

// wrappedUnder remembers that something was.
func (m *memory) wrappedUnder(v kmsplugin.Version) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !slices.ContainsFunc(m.used, same(v)) {
		m.used = append(m.used, v)
	}
}

// passed are versions that something was wrapped under and that are below the lowest which
// unwraps. Each is told once.
func (m *memory) passed(c Config, k *key) []kmsplugin.Version {
	m.mu.Lock()
	defer m.mu.Unlock()
	var passed, stay []kmsplugin.Version
	for _, v := range m.used {
		if n, err := strconv.Atoi(v.Label); err == nil && n < k.minDecrypt {
			passed = append(passed, v)
		} else {
			stay = append(stay, v)
		}
	}
	m.used = stay
	return passed
}

func same(v kmsplugin.Version) func(kmsplugin.Version) bool {
	keyID := v.KeyID()
	return func(other kmsplugin.Version) bool { return other.KeyID() == keyID }
}

// trusts is what was seen.
func (m *memory) trusts() trust {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.trusted
}

// saw changes what was seen.
func (m *memory) saw(change func(*trust)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change(&m.trusted)
}
