package faults

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kube-atrest/atrest/internal/faultplugin"
)

// world is what the simulation knows: the server and its plugins, every value
// ever written, and what must hold of them.
type world struct {
	*server
	machines []*machine
	files    int // made so far

	restarting sync.RWMutex // held for reading by an operation
	mu         sync.Mutex   // guards the below
	// may are the contents that may be in use.
	may     []content
	version int             // of may
	hashes  map[string]bool // of all complete contents there were
	starts  int             // of the server
	objects []object
	errors  map[string]bool // texts of all that failed
	wrong   []string        // what should not have been

	tokens     chan struct{} // an operation takes one
	operations struct{ writes, refused, reads, unread atomic.Int64 }
}

// machine is a plugin and when it was last healthy.
type machine struct {
	*faultplugin.Plugin
	mu      sync.Mutex
	serves  bool
	healthy bool
	until   time.Time // healthy, if it is not

	dropped int // how many contents did not name it; guarded by the world's mu
}

// spoil makes the plugin unhealthy.
func (m *machine) spoil(now time.Time, fault func(*faultplugin.Plugin)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	fault(m.Plugin)
	if m.healthy {
		m.healthy, m.until = false, now
	}
}

// revive makes the plugin healthy.
func (m *machine) revive(keyID string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.healthy = true
	m.Heal(keyID)
	if !m.serves {
		m.Serve()
		m.serves = true
	}
}

func (m *machine) kill() {
	m.Kill()
	m.serves = false
}

// lastHealthy is the latest time at which the plugin may have said that it is
// healthy.
func (m *machine) lastHealthy(now time.Time) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.healthy {
		return now
	}
	return m.until
}

// object is a value that was written.
type object struct {
	resource int
	key      string
	value    []byte
	plain    string
	means    means
	// warm tells that its key is in memory for as long as start and dropped
	// are what they were then.
	warm           bool
	start, dropped int
}

// failf records what should not have been.
func (w *world) failf(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wrong = append(w.wrong, fmt.Sprintf(format, args...))
}

// publish notes that c may be in use from now on.
func (w *world) publish(c content) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.may = append(w.may, c)
	w.hashes[c.hash] = true
	w.version++
	for i, m := range w.machines {
		if !c.has(means{plugin: i}) {
			m.dropped++
		}
	}
}

// settled notes which content is in use, if that is the latest.
func (w *world) settled() bool {
	hash := w.Status().ConfigHash
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.hashes[hash] {
		w.wrong = append(w.wrong, "a content is in use that was never complete: "+hash)
	}
	last := w.may[len(w.may)-1]
	if last.hash != hash {
		return false
	}
	if len(w.may) > 1 {
		w.may, w.version = []content{last}, w.version+1
	}
	return true
}

// view is what an operation knows of the contents when it begins.
type view struct{ version, start int }

func (w *world) view() view {
	w.mu.Lock()
	defer w.mu.Unlock()
	return view{w.version, w.starts}
}

// every reports whether all contents that may be in use are such. The caller
// holds mu.
func (w *world) every(such func(*content) bool) bool {
	return !slices.ContainsFunc(w.may, func(c content) bool { return !such(&c) })
}

// mustRead reports whether o has to be readable, whatever its plugin does, to an
// operation that began with v.
func (w *world) mustRead(o object, v view) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.version != v.version || !w.every(func(c *content) bool { return c.names(o.resource, o.means) }) {
		return false
	}
	return o.means.plugin < 0 || o.warm && o.start == w.starts && o.dropped == w.machines[o.means.plugin].dropped
}

// mustWrite reports whether a write has to succeed, whatever the plugins do.
func (w *world) mustWrite(r int, v view) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.version == v.version && w.every(func(c *content) bool { return c.means[r][0].plugin < 0 })
}

// remember adds a value that was written by an operation that began with v.
func (w *world) remember(o object, v view) {
	w.mu.Lock()
	defer w.mu.Unlock()
	o.start = v.start
	o.warm = v.version == w.version
	if p := o.means.plugin; p >= 0 {
		o.warm = o.warm && w.every(func(c *content) bool { return c.has(o.means) })
		o.dropped = w.machines[p].dropped
	}
	w.objects = append(w.objects, o)
}

func (w *world) told(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.errors[err.Error()] = true
}
