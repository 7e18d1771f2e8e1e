//go:build cgo

package pkcs11

import (
	"context"
	"slices"
	"sync"
	"time"

	cryptoki "github.com/miekg/pkcs11"
	"k8s.io/utils/clock"
)

// pool is lines to the token, under one login: as many as there may be, or fewer while the token has
// no more sessions. Each has one owner at a time, who takes it and puts it back. It is safe for
// concurrent use.
type pool struct {
	open   func() (cryptoki.SessionHandle, error)
	close  func(cryptoki.SessionHandle)
	driver driver
	clock  clock.PassiveClock
	most   int

	mu      sync.Mutex
	lines   map[*line]bool // that are open
	free    []*line        // the one that was put back first comes first
	waiting []*waiter
	opening int           // that are not yet
	opened  int           // sessions, so far
	full    time.Time     // when the token last had no more, zero if it had
	refused bool          // one could not be opened, for another reason, and not all there may be are
	closed  bool          // no others are opened, and none is taken
	empty   chan struct{} // closed when it is closed and none is left

	exchanging sync.Mutex
}

// want says which line is wanted: one of those that were not had, and first one that is liked.
type want struct {
	had   map[*line]bool
	likes func(*line) bool
	ahead bool // of who waits
}

type waiter struct {
	want
	come chan *line // has room for it; nil comes from a pool that is closed
}

// again is the time after which a token that had no more sessions is asked for one again.
const again = time.Second

func newPool(d driver, most int, handles []cryptoki.SessionHandle, c clock.PassiveClock) *pool {
	p := &pool{driver: d, clock: c, most: most, lines: map[*line]bool{}, empty: make(chan struct{})}
	for _, h := range handles {
		p.free = append(p.free, newLine(d, h))
		p.lines[p.free[len(p.free)-1]] = true
	}
	return p
}

// pick is a line that is free. It is called under the lock.
func (p *pool) pick(w want) *line {
	at := slices.IndexFunc(p.free, func(l *line) bool { return !w.had[l] && w.likes != nil && w.likes(l) })
	if at < 0 {
		at = slices.IndexFunc(p.free, func(l *line) bool { return !w.had[l] })
	}
	if at < 0 {
		return nil
	}
	l := p.free[at]
	p.free = slices.Delete(p.free, at, at+1)
	return l
}

// now is a line that is free, or nil.
func (p *pool) now(w want) *line {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pick(w)
}

// wait waits for a line.
func (p *pool) wait(ctx context.Context, w want) (*line, error) {
	p.mu.Lock()
	l := p.pick(w)
	if l != nil || p.closed {
		p.mu.Unlock()
		return or(l)
	}
	me := &waiter{want: w, come: make(chan *line, 1)}
	at := len(p.waiting)
	if w.ahead {
		at = 0
	}
	p.waiting = slices.Insert(p.waiting, at, me)
	p.mu.Unlock()
	select {
	case l := <-me.come:
		return or(l)
	case <-ctx.Done():
	}
	p.mu.Lock()
	p.waiting = slices.DeleteFunc(p.waiting, func(w *waiter) bool { return w == me })
	p.mu.Unlock()
	select {
	case l := <-me.come:
		return or(l)
	default:
		return nil, context.Cause(ctx)
	}
}

// or is an error if a line is none.
func or(l *line) (*line, error) {
	if l == nil {
		return nil, errOver
	}
	return l, nil
}

// grow has another line opened, if there may be more, for who waits for one. Nobody waits for that
// itself: it may take long where an HSM is away, and one that is in use comes free before.
func (p *pool) grow() bool {
	may := p.mayOpen()
	if may {
		go p.opens()
	}
	return may
}

// fill opens lines, one after another, until there are as many as there may be or the token has no more.
// It may be asked for more as soon as somebody needs one.
func (p *pool) fill() {
	for p.mayOpen() && p.opens() {
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.full = time.Time{}
}

// mayOpen reports whether there may be another line, which is to be opened then.
func (p *pool) mayOpen() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	may := !p.closed && len(p.lines)+p.opening < p.most && (p.full.IsZero() || p.clock.Since(p.full) >= again)
	if may {
		p.opening++
	}
	return may
}

// opens opens one that there may be.
func (p *pool) opens() bool {
	h, err := p.open()
	l := p.isOpened(h, err)
	if l != nil {
		p.put(l)
	}
	return l != nil
}

func (p *pool) isOpened(h cryptoki.SessionHandle, err error) *line {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.opening--
	defer p.left()
	if err != nil {
		p.refuses(err)
		return nil
	}
	l := newLine(p.driver, h)
	p.lines[l] = true
	p.opened++
	p.refused = p.refused && len(p.lines) < p.most
	return l
}

// refuses is for a session that could not be opened. That the token, or another HSM, has no more says
// nothing of what one could not be opened for before. It is called under the lock.
func (p *pool) refuses(err error) { p.full, p.refused = p.clock.Now(), p.refused || !hasNoMore(err) }

func (p *pool) put(l *line) {
	if !p.hands(l) {
		p.drop(l)
	}
}

// hands hands a line to who waits for it, or to who comes next, unless the pool is closed.
func (p *pool) hands(l *line) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	for i, w := range p.waiting {
		if !w.had[l] {
			p.waiting = slices.Delete(p.waiting, i, i+1)
			w.come <- l
			return true
		}
	}
	p.free = append(p.free, l)
	return true
}

// drop closes a line for good.
func (p *pool) drop(l *line) {
	p.close(l.handle)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lost(l)
}

// lost forgets a line. It is called under the lock.
func (p *pool) lost(l *line) {
	delete(p.lines, l)
	p.left()
}

// left tells when none is left. It is called under the lock.
func (p *pool) left() {
	if !p.closed || len(p.lines)+p.opening > 0 {
		return
	}
	if !p.isEmpty() {
		close(p.empty)
	}
}

// sessions is how many were opened so far.
func (p *pool) sessions() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.opened
}

// size is how many are open.
func (p *pool) size() int { return p.others(nil) }

// others is how many are open that were not had.
func (p *pool) others(had map[*line]bool) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.lines {
		if !had[l] {
			n++
		}
	}
	return n
}

// pending is how many are being opened.
func (p *pool) pending() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.opening
}

// lacks reports whether one is being opened, or could not be, which may be with an HSM that no other is
// with.
func (p *pool) lacks() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.opening > 0 || p.refused
}

// retry has those opened that could not be, for whom nobody may wait. Who calls it waits for nothing.
func (p *pool) retry() {
	p.mu.Lock()
	again := p.refused && p.opening == 0
	p.mu.Unlock()
	if again {
		go p.fill()
	}
}

// exchange gives a line another session for one in which something may be half done, or which is away.
// The other one is opened first: with the last one that is closed the token logs this process out. A
// token that has no more is given the one back before, as long as there are others; if another one
// cannot be had then either, the line is lost.
func (p *pool) exchange(l *line) (lost bool, err error) {
	next, err := p.open()
	if err == nil {
		p.close(l.handle)
		p.is(l, next)
		return false, nil
	}
	// Two that are closed at once may be the last two; and a call of another may not return.
	if !hasNoMore(err) {
		return false, err
	}
	if !p.exchanging.TryLock() {
		return false, errLast
	}
	defer p.exchanging.Unlock()
	if p.size() < 2 {
		return false, errLast
	}
	p.close(l.handle)
	if next, err = p.open(); err != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.refuses(err)
		p.lost(l)
		return true, err
	}
	p.is(l, next)
	return false, nil
}

// is gives a line a session in the place of the one before.
func (p *pool) is(l *line, h cryptoki.SessionHandle) {
	l.forget()
	l.handle = h
	p.mu.Lock()
	defer p.mu.Unlock()
	p.opened++
}

// giveUp closes those that are free now, and others when they are. No others are opened. It reports
// whether it closed any.
func (p *pool) giveUp() bool {
	p.mu.Lock()
	p.closed = true
	free, waiting := p.free, p.waiting
	p.free, p.waiting = nil, nil
	p.left()
	p.mu.Unlock()
	for _, w := range waiting {
		w.come <- nil
	}
	for _, l := range free {
		p.drop(l)
	}
	return len(free) > 0
}

// isEmpty reports whether it is closed and none is left.
func (p *pool) isEmpty() bool {
	select {
	case <-p.empty:
		return true
	default:
		return false
	}
}

// end closes all, and waits for those that are in use.
func (p *pool) end(ctx context.Context) error {
	p.giveUp()
	select {
	case <-p.empty:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
