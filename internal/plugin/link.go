package plugin

import (
	"context"
	"net"
	"sync"
	"time"
)

// How long to wait before a socket is dialled again: at first, and at most.
const (
	firstRedial = 50 * time.Millisecond
	lastRedial  = time.Second
)

// link dials the socket of a plugin, and knows what became of its connections.
// One that broke before it served a call is dialled again later and later: who
// accepts a connection is not yet well. Safe for concurrent use.
type link struct {
	socket string
	woken  chan struct{}

	mu      sync.Mutex
	useless int       // connections in a row that served no call
	dialled time.Time // when the latest was made
	down    time.Time // since when calls fail, zero while they do not
	broken  uint64    // how many connections broke
}

func newLink(socket string) *link { return &link{socket: socket, woken: make(chan struct{}, 1)} }

// dial makes a connection, as grpc.WithContextDialer wants it. The path is taken
// as it stands.
func (l *link) dial(ctx context.Context, _ string) (net.Conn, error) {
	if err := l.holdOff(ctx); err != nil {
		return nil, err
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", l.socket)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dialled = time.Now()
	if err != nil {
		l.fail()
		return nil, err
	}
	l.useless++
	return &linked{Conn: conn, link: l}, nil
}

// holdOff waits until the socket may be dialled.
func (l *link) holdOff(ctx context.Context) error {
	timer := time.NewTimer(time.Until(l.redialAt()))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *link) redialAt() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.useless == 0 {
		return time.Time{}
	}
	wait := lastRedial
	if doublings := l.useless - 1; doublings < 5 {
		wait = min(firstRedial<<doublings, lastRedial)
	}
	return l.dialled.Add(wait)
}

// fail notes that calls fail, with mu held.
func (l *link) fail() {
	if l.down.IsZero() {
		l.down = time.Now()
	}
}

func (l *link) failed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fail()
}

// served notes that the plugin answered a call.
func (l *link) served() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.useless, l.down = 0, time.Time{}
}

// downSince is when the outage began that there is.
func (l *link) downSince() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.down
}

func (l *link) isDown() bool { return !l.downSince().IsZero() }

// breaks is how many connections broke so far.
func (l *link) breaks() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.broken
}

func (l *link) wake() { signal(l.woken) }

// linked is a connection that tells of its end.
type linked struct {
	net.Conn
	link *link
	once sync.Once
}

// Close ends the connection. gRPC calls it, also when the other side has.
func (c *linked) Close() error {
	c.once.Do(func() {
		c.link.mu.Lock()
		c.link.broken++
		c.link.mu.Unlock()
		c.link.wake()
	})
	return c.Conn.Close()
}
