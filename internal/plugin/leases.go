package plugin

import "sync"

// Use is what a plugin is used for, by all who lease it together.
type Use int

// The uses of a plugin.
const (
	Held     Use = iota // not at all, or by those who only keep it open
	ReadWith            // somebody reads with it, and nobody writes
	Written             // somebody writes with it
)

// Leases count who uses a plugin and for what, and the calls to it under way:
// it is followed as what it is used for, and closed when nobody has it any
// more. Set the functions before the first lease. Safe for concurrent use.
type Leases struct {
	// Follow begins to follow the plugin when what it is used for has become
	// another, with a loop that comes after the one before; nil for none. The one
	// before is told to end already. It must neither block nor take a lease.
	Follow func(now Use, before *Loop) *Loop
	// Close closes the plugin when the last lease, the last loop and the last
	// call have ended.
	Close func()

	mu    sync.Mutex
	has   leased
	loop  *Loop // the latest
	calls sync.WaitGroup

	closed bool
}

// leased is how many have a plugin, and how many of them read and write.
type leased struct{ users, readers, writers int }

func (n leased) use() Use {
	switch {
	case n.writers > 0:
		return Written
	case n.readers > 0:
		return ReadWith
	}
	return Held
}

// Hold keeps the plugin open. It lasts until end is called; that is harmless
// twice.
func (l *Leases) Hold() (end func()) { return l.begin(leased{users: 1}) }

// Read is a lease to read.
func (l *Leases) Read() (end func()) { return l.begin(leased{users: 1, readers: 1}) }

// Write is a lease to read and to write.
func (l *Leases) Write() (end func()) { return l.begin(leased{users: 1, writers: 1}) }

func (l *Leases) begin(n leased) (end func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.change(leased{l.has.users + n.users, l.has.readers + n.readers, l.has.writers + n.writers})
	return sync.OnceFunc(func() { l.end(n) })
}

func (l *Leases) end(n leased) {
	l.mu.Lock()
	l.change(leased{l.has.users - n.users, l.has.readers - n.readers, l.has.writers - n.writers})
	last, loop := l.has.users == 0, l.loop
	l.closed = l.closed || last
	l.mu.Unlock()
	if last {
		loop.Wait()
		l.calls.Wait()
		l.Close()
	}
}

// change has the plugin followed as what it is used for from now on. The caller
// holds mu.
func (l *Leases) change(now leased) {
	before := l.has.use()
	l.has = now
	if now.use() == before {
		return
	}
	l.loop.Stop()
	if next := l.Follow(now.use(), l.loop); next != nil {
		l.loop = next
	}
}

// Begin holds the plugin open for a call until [Leases.Done]; false if it is
// closed.
func (l *Leases) Begin() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.calls.Add(1)
	return true
}

// Done ends a call that was begun.
func (l *Leases) Done() { l.calls.Done() }
