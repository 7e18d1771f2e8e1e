//go:build cgo

package pkcs11

import (
	"context"
	"sync"
	"time"

	cryptoki "github.com/miekg/pkcs11"
	"k8s.io/utils/clock"
)

// pool is sessions with the token, in the sense of PKCS#11, under one login: as many as there
// may be, or fewer while the token has no more. Each has one owner at a time, who takes it and
// puts it back: a session does one thing at once. It is safe for concurrent use.
type pool struct {
	open  func() (cryptoki.SessionHandle, error)
	close func(cryptoki.SessionHandle)
	clock clock.PassiveClock
	free  chan cryptoki.SessionHandle // with room for as many as there may be

	mu      sync.Mutex
	have    int       // that are open
	opening int       // that are not yet
	full    time.Time // when the token last had no more, zero if it had
	closed  bool      // no others are opened
	going   *round    // nil if there is none

	exchanging sync.Mutex
}

// again is the time after which a token that had no more sessions is asked for one again.
const again = time.Second

func newPool(most int, handles []cryptoki.SessionHandle, c clock.PassiveClock) *pool {
	p := &pool{clock: c, free: make(chan cryptoki.SessionHandle, most), have: len(handles)}
	for _, h := range handles {
		p.free <- h
	}
	return p
}

// take is a session that is free, or another one if there may be more.
func (p *pool) take(ctx context.Context, isStuck func() bool) (cryptoki.SessionHandle, error) {
	select {
	case h := <-p.free:
		return h, nil
	default:
	}
	if h, ok := p.grow(); ok {
		return h, nil
	}
	if isStuck() {
		return 0, errHang
	}
	select {
	case h := <-p.free:
		return h, nil
	case <-ctx.Done():
		if isStuck() {
			return 0, errHang
		}
		return 0, context.Cause(ctx)
	}
}

// grow opens another session, if there may be more.
func (p *pool) grow() (cryptoki.SessionHandle, bool) {
	p.mu.Lock()
	may := !p.closed && p.have+p.opening < cap(p.free) && (p.full.IsZero() || p.clock.Since(p.full) >= again)
	if may {
		p.opening++
	}
	p.mu.Unlock()
	if !may {
		return 0, false
	}
	h, err := p.open()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.opening--
	if err == nil {
		p.have++
		return h, true
	}
	p.full = p.clock.Now()
	return 0, false
}

func (p *pool) put(h cryptoki.SessionHandle) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.going.visits(h) {
		p.free <- h // which has room
	}
}

// drop closes a session for good.
func (p *pool) drop(h cryptoki.SessionHandle) {
	p.close(h)
	p.lost()
}

func (p *pool) lost() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.have--
}

// size is how many are open.
func (p *pool) size() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.have
}

func (p *pool) isEmpty() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.have+p.opening == 0
}

// lend gives away a session that is free, for good, unless it is the last.
func (p *pool) lend() (cryptoki.SessionHandle, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.have < 2 {
		return 0, false
	}
	select {
	case h := <-p.free:
		p.have--
		return h, true
	default:
		return 0, false
	}
}

// exchange gives another session for one in which something may be half done. The other one is
// opened first: with the last one that is closed the token logs this process out. A token that
// has no more is given the one back before, as long as there are others; if another one cannot
// be had then either, next is 0.
func (p *pool) exchange(h cryptoki.SessionHandle) (next cryptoki.SessionHandle, err error) {
	defer func() { p.instead(h, next) }()
	if next, err = p.open(); err == nil {
		p.close(h)
		return next, nil
	}
	if !hasNoMore(err) {
		return h, err
	}
	p.exchanging.Lock() // two that are closed at once may be the last two
	defer p.exchanging.Unlock()
	if p.size() < 2 {
		return h, errLast
	}
	p.close(h)
	if next, err = p.open(); err != nil {
		p.lost()
		return 0, err
	}
	return next, nil
}

// giveUp closes those that are free now. No others are opened.
func (p *pool) giveUp() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	for {
		select {
		case h := <-p.free:
			p.drop(h)
		default:
			return
		}
	}
}

// end closes all, and waits for those that are in use.
func (p *pool) end(ctx context.Context) error {
	p.giveUp()
	for !p.isEmpty() {
		select {
		case h := <-p.free:
			p.drop(h)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}
