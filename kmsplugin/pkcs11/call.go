//go:build cgo

package pkcs11

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	cryptoki "github.com/miekg/pkcs11"

	"github.com/kube-atrest/atrest/kmsplugin"
)

// hangFor is for how long no call of a line has returned before another line is tried beside it, and
// nobody has waited for any of the calls that run before they are said to hang. A call that is given
// up may well return soon.
const hangFor = time.Second

// still is the same once one line hangs: there may be others to the same HSM, and who calls has to
// have an answer.
const still = 300 * time.Millisecond

// A deed is done over one line after another until one has an answer: what one HSM of several does
// not do another may.
type deed[T any] struct {
	*session
	what  string
	likes func(*line) bool // the line to try first, or nil
	ahead bool             // of who waits for a line
	do    func(context.Context, *line) (T, error)
	over  func() // called when nothing of it runs any more, or nil
}

// answer is what came of it over a line.
type answer[T any] struct {
	value T
	err   error
	line  *line
}

// done is the first answer, or what the failures come to. Each line is tried at most once, and where
// one does not answer the next is tried beside it. Who calls has an answer when ctx ends: what hangs
// has its line for as long as it does.
func (d deed[T]) done(ctx context.Context) answer[T] {
	if d.isOver() {
		return answer[T]{err: fmt.Errorf("%s: %w", d.token, errOver)}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var running sync.WaitGroup
	defer func() {
		if d.over != nil {
			go func() { running.Wait(); d.over() }()
		}
	}()
	had, answers := map[*line]bool{}, make(chan answer[T], d.pool.most)
	var failed []error
	var newest *line
	for another := true; ; {
		if another && len(had) < d.pool.most {
			l, err := d.next(ctx, had, len(had) > len(failed))
			if err != nil && len(had) == 0 {
				return answer[T]{err: err}
			}
			if l != nil {
				had[l], newest = true, l
				running.Go(func() { answers <- d.on(ctx, l) })
			}
		}
		if len(had) == len(failed) {
			return answer[T]{err: d.verdict(ctx, had, failed)}
		}
		long := hangFor
		if len(had)-len(failed) > 1 {
			long = still
		}
		a, stands, err := d.wait(ctx, answers, newest, long)
		switch another = stands || a.line != nil; {
		case err != nil || a.line != nil && !isOfOneLine(a.err):
			a.err = errors.Join(err, a.err)
			return a
		case a.line != nil:
			failed = append(failed, a.err)
		}
	}
}

// wait waits for an answer, or until no call of a line has returned for some time.
func (d deed[T]) wait(ctx context.Context, answers <-chan answer[T], l *line, long time.Duration) (a answer[T], stands bool, err error) {
	steps := l.steps.Load()
	timer := d.token.config.Clock.NewTimer(long)
	defer timer.Stop()
	select {
	case a = <-answers:
	case <-timer.C():
		stands = l.steps.Load() == steps
	case <-ctx.Done():
		err = fmt.Errorf("%w: %s did not %s in time: %w", kmsplugin.ErrUnavailable, d.token, d.what, context.Cause(ctx))
	}
	return a, stands, err
}

// next is another line than those that were had, which are waited for as long as a look waits. While one
// of these is tried, or if all others hang, none is waited for.
func (d deed[T]) next(ctx context.Context, had map[*line]bool, running bool) (*line, error) {
	w := want{had: had, likes: d.likes, ahead: d.ahead}
	if l := d.pool.now(w); l != nil {
		return l, nil
	}
	first := len(had) == 0
	grows := first && (!d.ahead || d.pool.size() == 0) && d.pool.grow()
	if running || !first && d.pool.others(had) <= int(d.late.Load()) {
		return nil, nil
	}
	hangs := fmt.Errorf("%s cannot %s: %w", d.token, d.what, errHang)
	if first && !grows && d.hangs() {
		return nil, hangs
	}
	if !first { // the others may hang, and what is known by now is an answer
		var cancel context.CancelFunc
		ctx, cancel = d.token.within(ctx, busy)
		defer cancel()
	}
	l, err := d.pool.wait(ctx, w)
	switch {
	case err == nil:
		return l, nil
	case d.hangs():
		return nil, hangs
	case errors.Is(err, errOver):
		return nil, fmt.Errorf("%s: %w", d.token, err)
	}
	return nil, fmt.Errorf("%w: %s: all of its %d sessions are in use: %w", kmsplugin.ErrThrottled, d.token, d.pool.size(), err)
}

// isOfOneLine reports whether a failure need not be one over another line.
func isOfOneLine(err error) bool {
	return (hasCode(err) || isAway(err) || errors.Is(err, errHasNot)) && !errors.Is(err, errNotThere)
}

// verdict is what the failures over all lines that answered come to. The token is away if all say so;
// those that are not free for who goes ahead do not answer.
func (d deed[T]) verdict(ctx context.Context, had map[*line]bool, failed []error) error {
	all := d.pool.others(had) <= int(d.late.Load()) || d.ahead && ctx.Err() == nil
	var away, hasNot, sick error
	for _, err := range failed {
		switch {
		case isAway(err):
			away = err
		case errors.Is(err, errHasNot):
			hasNot = err
		default:
			sick = err
		}
	}
	switch {
	case sick != nil && hasNot == nil && all:
		if gone := d.askSlot(ctx); gone != nil {
			return fmt.Errorf("%w: %w", gone, sick)
		}
		return sick
	case sick != nil:
		return sick
	case hasNot != nil:
		return hasNot
	case all:
		return away
	}
	return fmt.Errorf("%w: not all of its sessions could be asked: %v", kmsplugin.ErrUnavailable, away)
}

// on does it over a line, and puts that back. What could not be done may be left half done there, and
// the session is exchanged for another one then.
func (d deed[T]) on(ctx context.Context, l *line) answer[T] {
	a := answer[T]{line: l}
	if err := d.module.begin(d.generation); err != nil {
		d.pool.put(l)
		a.err = fmt.Errorf("%s: %w", d.token, err)
		return a
	}
	defer d.module.end()
	inTime := context.AfterFunc(ctx, d.overdue)
	defer func() {
		if !inTime() {
			d.late.Add(-1)
		}
	}()
	a.value, a.err = d.do(ctx, l)
	lost := false
	if a.err != nil && !errors.Is(a.err, errHasNot) {
		lost, a.err = d.failed(l, a.err)
	}
	if !lost {
		d.pool.put(l)
	}
	if a.err != nil {
		a.err = fmt.Errorf("%s cannot %s: %w", d.token, d.what, explain(a.err))
	}
	return a
}

// errAlone is of a line that is away while another is not.
var errAlone = errors.New("while other sessions are well")

// failed gives a line over which something failed another session, unless this one is well or all may
// be away, and finds out whether it is away. Another one may take long to open, and is not asked for
// because somebody gave up, or a ciphertext is damaged.
func (s *session) failed(l *line, err error) (lost bool, is error) {
	if !isAway(err) && saysNothing(err) {
		if out := l.isLoggedIn(); out != nil {
			err = fmt.Errorf("%w: %w", out, err)
		}
	}
	if isAway(err) && !errors.Is(err, errAlone) {
		l.forget()
		return false, err
	}
	if !isAway(err) && !saysNothing(err) { // nothing is half done: it was done, or not begun
		return false, err
	}
	lost, failed := s.pool.exchange(l)
	away := failed != nil && (!hasNoMore(failed) || s.pool.size() == 0)
	if errors.Is(failed, errLast) { // it is all that there is
		away = isCode(err, cryptoki.CKR_OPERATION_ACTIVE)
	}
	if away {
		err = fmt.Errorf("%w: it has no other session: %w", errAway, err)
	}
	return lost, err
}

// overdue tells that nobody waits any more for a call of the module that runs.
func (s *session) overdue() {
	s.late.Add(1)
	now := s.token.config.Clock.Now()
	s.lateSince.Store(&now)
}

// hangs reports whether each line does something that does not return.
func (s *session) hangs() bool {
	since, size := s.lateSince.Load(), s.pool.size()
	return size > 0 && int(s.late.Load()) >= size && since != nil && s.token.config.Clock.Since(*since) >= hangFor
}
