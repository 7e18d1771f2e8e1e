package plugin

import "sync"

// Leases count who uses a plugin, to read and to write, and the calls to it
// under way: it is followed for as long as somebody writes with it, and closed
// when nobody uses it any more. Set the functions before the first lease. Safe
// for concurrent use.
type Leases struct {
	// Start begins to follow the plugin, for the first lease to write. Stop ends
	// that, after the last one, and returns what waits for the end. Neither must
	// block nor take a lease.
	Start func()
	Stop  func() (wait func())
	// Close closes the plugin when the last lease and the last call have ended.
	Close func()

	mu      sync.Mutex
	users   int
	writers int
	closed  bool
	calls   sync.WaitGroup
}

// Read is a lease to read. It lasts until end is called; that is harmless twice.
func (l *Leases) Read() (end func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.users++
	return sync.OnceFunc(l.endRead)
}

// Write is a lease to read and to write.
func (l *Leases) Write() (end func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.users++
	l.writers++
	if l.writers == 1 {
		l.Start()
	}
	return sync.OnceFunc(l.endWrite)
}

func (l *Leases) endWrite() {
	l.mu.Lock()
	l.writers--
	wait := func() {}
	if l.writers == 0 {
		wait = l.Stop()
	}
	l.mu.Unlock()
	wait()
	l.endRead()
}

func (l *Leases) endRead() {
	l.mu.Lock()
	l.users--
	last := l.users == 0
	l.closed = l.closed || last
	l.mu.Unlock()
	if last {
		l.calls.Wait()
		l.Close()
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
