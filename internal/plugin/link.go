package plugin

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http2"
)

// How long to wait before a socket is dialled again: at first, at most while calls wait for
// the plugin, so that one which comes back in time is found in time, and at most.
const (
	firstRedial = 50 * time.Millisecond
	youngRedial = 200 * time.Millisecond
	lastRedial  = time.Second
)

// greetsWithin is how long whoever listens may take to say that it speaks
// HTTP/2. It is found out before gRPC takes the connection over, which makes a
// log line of each that comes to nothing.
const greetsWithin = 5 * time.Second

// link dials the socket of a plugin, for as long as it takes, and knows whether
// there is a connection. While nobody listens, or whoever does serves no call,
// it dials later and later. Safe for concurrent use.
type link struct {
	socket string
	woken  chan struct{}

	mu      sync.Mutex
	useless int           // dials in a row that led to no call being served
	dialled time.Time     // when the latest was
	ready   bool          // gRPC has a connection
	current *linked       // the latest connection, which may have ended
	err     error         // of the latest dial, nil while there is none
	down    time.Time     // since when calls fail, zero while they do not
	broken  uint64        // how many connections broke
	changed chan struct{} // closed when ready or err become other
}

func newLink(socket string) *link {
	return &link{socket: socket, woken: make(chan struct{}, 1), changed: make(chan struct{})}
}

// change changes the link, and tells those who wait for that.
func (l *link) change(change func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change()
	l.told()
}

// told tells those who wait for a change. The caller has the lock.
func (l *link) told() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// dial makes a connection, as grpc.WithContextDialer wants it. It tries until
// there is one or ctx ends. The path is taken as it stands.
func (l *link) dial(ctx context.Context, _ string) (net.Conn, error) {
	for {
		if err := l.holdOff(ctx); err != nil {
			return nil, err
		}
		conn, err := l.dialOnce(ctx)
		l.change(func() {
			l.dialled, l.err = time.Now(), err
			l.useless++
			l.current = conn
			if err != nil && l.down.IsZero() {
				l.down = time.Now()
			}
		})
		if err == nil {
			return conn, nil
		}
	}
}

func (l *link) dialOnce(ctx context.Context) (*linked, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", l.socket)
	if err != nil {
		return nil, err
	}
	if listener, ok := conn.(*net.UnixConn); ok && strings.HasPrefix(l.socket, "@") {
		if err := checkServer(listener); err != nil {
			conn.Close()
			return nil, &net.OpError{Op: "dial", Net: "unix", Addr: conn.RemoteAddr(), Err: err}
		}
	}
	linked := &linked{Conn: conn, link: l}
	if err := linked.greet(ctx); err != nil {
		conn.Close()
		return nil, &net.OpError{Op: "dial", Net: "unix", Addr: conn.RemoteAddr(), Err: fmt.Errorf("whoever listens is no server of gRPC: %w", err)}
	}
	return linked, nil
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
	if !l.down.IsZero() && time.Since(l.down) < patience {
		wait = min(wait, youngRedial)
	}
	return l.dialled.Add(wait)
}

// failed notes that a call failed for want of a connection, and returns since when
// they do.
func (l *link) failed() (since time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.down.IsZero() {
		l.down = time.Now()
		l.told()
	}
	return l.down
}

// served notes that the plugin answered a call.
func (l *link) served() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.useless, l.down = 0, time.Time{}
}

// is notes whether gRPC has a connection, which counts while the latest one has
// not ended, and reports whether that is news. If there is one after calls have
// failed, that is worth asking the plugin how it is.
func (l *link) is(connected bool) (news bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ready := connected && l.current != nil && !l.current.ended
	if ready == l.ready {
		return false
	}
	l.ready = ready
	if ready {
		l.err = nil
		if !l.down.IsZero() {
			signal(l.woken)
		}
	}
	l.told()
	return true
}

// linkState is how a link is at one moment.
type linkState struct {
	ready   bool
	err     error
	down    time.Time
	broken  uint64
	changed <-chan struct{}
	over    *linked // the latest connection, nil if the latest attempt failed
}

func (l *link) state() linkState {
	l.mu.Lock()
	defer l.mu.Unlock()
	return linkState{l.ready, l.err, l.down, l.broken, l.changed, l.current}
}

// hasEnded reports whether a connection has, and what ends when the link changes again.
func (l *link) hasEnded(c *linked) (ended bool, changed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return c.ended, l.changed
}

// linked is a connection to somebody who speaks HTTP/2, and tells of its end.
type linked struct {
	net.Conn
	link    *link
	heard   bytes.Buffer // the greeting, until gRPC has read it
	greeted bool         // gRPC has written its own
	ended   bool         // of the link
	once    sync.Once
}

// largestGreeting is the least that a frame of HTTP/2 may be bounded by, in bytes.
const largestGreeting = 1 << 14

// greet begins HTTP/2 as a client does, with settings that change nothing, and
// hears what the server begins with: its settings (RFC 9113, section 3.4).
func (c *linked) greet(ctx context.Context) error {
	_ = c.Conn.SetDeadline(time.Now().Add(greetsWithin))
	notGivenUp := context.AfterFunc(ctx, func() { _ = c.Conn.SetDeadline(time.Unix(1, 0)) })
	defer notGivenUp()
	framer := http2.NewFramer(c.Conn, io.TeeReader(c.Conn, &c.heard))
	framer.SetMaxReadFrameSize(largestGreeting)
	if _, err := io.WriteString(c.Conn, http2.ClientPreface); err != nil {
		return err
	}
	if err := framer.WriteSettings(); err != nil {
		return err
	}
	switch frame, err := framer.ReadFrame(); {
	case err != nil:
		return err
	case frame.Header().Type != http2.FrameSettings:
		return fmt.Errorf("it begins with a frame of type %s", frame.Header().Type)
	case !notGivenUp():
		return ctx.Err()
	}
	return c.Conn.SetDeadline(time.Time{})
}

// Read reads, as gRPC does from one goroutine: first what was heard.
func (c *linked) Read(b []byte) (int, error) {
	if c.heard.Len() > 0 {
		return c.heard.Read(b)
	}
	return c.Conn.Read(b)
}

// Write writes. Of what gRPC begins with, the preface was sent.
func (c *linked) Write(b []byte) (int, error) {
	if c.greeted {
		return c.Conn.Write(b)
	}
	c.greeted = true
	rest, _ := bytes.CutPrefix(b, []byte(http2.ClientPreface))
	n, err := c.Conn.Write(rest)
	return len(b) - len(rest) + n, err
}

// Close ends the connection. gRPC calls it, also when the other side has. One that
// was drained may end long after another has taken its place.
func (c *linked) Close() error {
	c.once.Do(func() {
		c.link.change(func() {
			c.ended = true
			if c.link.current == c {
				c.link.broken++
				c.link.ready = false
			}
		})
		signal(c.link.woken)
	})
	return c.Conn.Close()
}
