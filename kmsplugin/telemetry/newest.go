package telemetry

import (
	"net"
	"slices"
	"sync"
)

// newest is a listener that has at most so many connections: each beyond them takes the place of
// the oldest. Who connects and stays keeps nobody out, and who asks anew is answered.
type newest struct {
	net.Listener
	most int
	mu   sync.Mutex
	open []*placed // the oldest first
}

// placed is a connection that has a place.
type placed struct {
	net.Conn
	listener *newest
}

func (n *newest) Accept() (net.Conn, error) {
	conn, err := n.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &placed{conn, n}
	if oldest := n.add(c); oldest != nil {
		_ = oldest.Conn.Close()
	}
	return c, nil
}

// add gives a connection a place, and returns the one that had it.
func (n *newest) add(c *placed) (oldest *placed) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.open = append(n.open, c)
	if len(n.open) > n.most {
		oldest = n.open[0]
		n.open = slices.Delete(n.open, 0, 1)
	}
	return oldest
}

// Close gives the place back.
func (c *placed) Close() error {
	c.listener.mu.Lock()
	c.listener.open = slices.DeleteFunc(c.listener.open, func(other *placed) bool { return other == c })
	c.listener.mu.Unlock()
	return c.Conn.Close()
}
