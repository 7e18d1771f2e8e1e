package conformance

import (
	"context"
	"sync"
	"time"
)

// leaving is how it is seen that a plugin takes no more connections.
type leaving struct {
	*session
	wire   *wire // one that it has taken
	opened time.Time
}

// seen looks, each time that it is called: the plugin leaves if nobody answers on a new
// connection, or if it has told the old one that it leaves, and not because each has its age.
func (l leaving) seen(ctx context.Context) func() bool {
	aged := false
	return func() bool {
		if aged {
			return !l.takesConnections(ctx, nil)
		}
		taken := l.takesConnections(ctx, l.wire)
		if !l.wire.isLeaving() {
			return !taken
		}
		aged = l.endsAnother(ctx, max(2*time.Since(l.opened), l.Timeout/10))
		return !aged
	}
}

// takesConnections reports whether somebody answers on a new connection. One to a socket that was
// passed on to the plugin waits in it for the next plugin, and nobody answers; that is not waited
// for when the plugin leaves the old one, if there is one.
func (s *session) takesConnections(ctx context.Context, old *wire) bool {
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	var watch sync.WaitGroup
	defer watch.Wait()
	defer cancel()
	wire, err := s.openWire(ctx)
	if err != nil {
		return false
	}
	defer wire.close()
	if old != nil {
		watch.Go(func() {
			defer cancel()
			_ = eventually(ctx, s.Timeout, old.isLeaving)
		})
	}
	return wire.connection.Ping(ctx) == nil
}

// endsAnother reports whether somebody takes a new connection and ends that too in this time.
func (s *session) endsAnother(ctx context.Context, d time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	wire, err := s.openWire(ctx)
	if err != nil {
		return false
	}
	defer wire.close()
	return wire.connection.Ping(ctx) == nil && eventually(ctx, d, wire.isLeaving) == nil
}
