//go:build cgo

package pkcs11

import (
	"context"
	"slices"
	"sync"
	"time"

	cryptoki "github.com/miekg/pkcs11"
)

// A round has each session of a pool visited once, before anybody else has it: each may be with
// another HSM of a cluster, and what one of them has not is not gone.
type round struct {
	seen map[cryptoki.SessionHandle]bool
	come chan cryptoki.SessionHandle // with room for all
}

// round begins with one that is visited already. There is one round at a time.
func (p *pool) round(first cryptoki.SessionHandle) *round {
	r := &round{seen: map[cryptoki.SessionHandle]bool{first: true}, come: make(chan cryptoki.SessionHandle, cap(p.free))}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.going = r
	for {
		select {
		case h := <-p.free:
			r.visits(h)
		default:
			return r
		}
	}
}

// visits takes a session that is free, unless it was visited. It is called under the pool's lock.
func (r *round) visits(h cryptoki.SessionHandle) bool {
	if r == nil || r.seen[h] {
		return false
	}
	r.seen[h] = true
	r.come <- h
	return true
}

// instead is for a session that takes the place of another one.
func (p *pool) instead(h, next cryptoki.SessionHandle) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.going != nil && p.going.seen[h] {
		p.going.seen[next] = true
	}
}

// over ends a round.
func (p *pool) over(r *round) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.going = nil
	for len(r.come) > 0 {
		p.free <- <-r.come
	}
}

// busy is how long a round waits for sessions that are in use.
const busy = time.Second

// listed is what all sessions but h find, and whether there are others and all of them answered. One
// that is in use for long, or whose call hangs, is not waited for. It is an error if one says that
// the token is away.
func (s *session) listed(ctx context.Context, h cryptoki.SessionHandle) (objects []cryptoki.ObjectHandle, complete bool, away error) {
	r := s.pool.round(h)
	timer := s.token.config.Clock.NewTimer(busy)
	defer timer.Stop()
	var asking sync.WaitGroup
	var mu sync.Mutex
	visited, all := 1, true
	for waits := true; waits && visited+int(s.late.Load()) < s.pool.size(); {
		select {
		case other := <-r.come:
			visited++
			asking.Go(func() {
				found, failed := s.asked(ctx, other)
				mu.Lock()
				defer mu.Unlock()
				objects = append(objects, found...)
				all = all && failed == nil
				if isAway(failed) {
					away = failed
				}
			})
		case <-timer.C():
			waits = false
		case <-ctx.Done():
			waits = false
		}
	}
	s.pool.over(r)
	asking.Wait()
	slices.Sort(objects)
	return slices.Compact(objects), all && visited > 1 && visited >= s.pool.size(), away
}

// asked is what one session finds.
func (s *session) asked(ctx context.Context, h cryptoki.SessionHandle) (objects []cryptoki.ObjectHandle, err error) {
	err = s.on(ctx, h, "find its keys", func(d driver, h cryptoki.SessionHandle) (err error) {
		objects, err = d.find(h, s.token.keys())
		return err
	})
	return objects, err
}
