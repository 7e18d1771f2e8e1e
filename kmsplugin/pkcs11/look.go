//go:build cgo

package pkcs11

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/kube-atrest/atrest/kmsplugin"
)

// busy is how long a look waits for lines that are in use, and for what they tell.
const busy = 800 * time.Millisecond

// lookAnew is what is on the token now. The next look waits for the end of this one as long as until
// lasts.
func (s *session) lookAnew(ctx, until context.Context) (*ring, error) {
	leave, err := s.looking.enter(ctx, until)
	if err != nil {
		return nil, fmt.Errorf("%s: the last look at it has not ended: %w", s.token, err)
	}
	defer leave()
	return s.look(ctx)
}

// view is what the one line told that was read whole.
type view struct {
	finding
	slow   error // there was no time for all of it
	unread bool  // there are some that no look over this line has read
}

// look reads all keys over one line, the next one each time, and asks all others what they find. What
// these answer, if they do, only adds to it: one may be with an HSM of a cluster that is away.
func (s *session) look(ctx context.Context) (*ring, error) {
	before, opened, began := s.keys.Load(), s.pool.sessions(), s.token.config.Clock.Now()
	a := deed[view]{session: s, what: "look for its keys", ahead: true, do: s.view,
		likes: func(l *line) bool { return l == s.unread || s.unread == nil && !l.slow }}.done(ctx)
	if a.err != nil {
		return nil, a.err
	}
	s.unread = nil
	all, whole := a.value.finding, false
	if a.value.slow == nil {
		all, whole = s.othersFind(ctx, a.line, all, s.token.config.Clock.Since(began) <= busy)
	}
	found := s.token.ring(all)
	if a.value.slow != nil {
		found.problem = a.value.slow
		if a.value.unread { // the next look goes on
			s.unread = a.line
		}
	}
	if !whole || s.pool.sessions() != opened || s.pool.lacks() {
		found = found.beside(before)
	}
	s.pool.retry()
	found.partial = found.partial || all.stale
	s.keys.Store(found)
	return found, nil
}

// view reads all keys. To who is not logged in, and where the token is away, it is as if there were
// none.
func (s *session) view(ctx context.Context, l *line) (found view, err error) {
	before, last := s.keys.Load(), ""
	l.age()
	defer func() { l.slow, found.unread = found.slow != nil || ctx.Err() != nil, l.hasUnread() }()
	for n := range atMost {
		if err := l.isLoggedIn(); err != nil {
			return found, err
		}
		found.finding, found.slow, err = l.readAll(ctx, s.token)
		if isAway(err) || ctx.Err() != nil && err != nil || found.slow != nil {
			return found, err
		}
		if err == nil && !found.hasAll(before) {
			if err := s.isThere(ctx); err != nil {
				return found, err
			}
		}
		is := fmt.Sprint(found.finding, err)
		if is == l.last || is == last {
			break
		}
		if !s.token.rests(ctx, pause<<n) {
			return found, fmt.Errorf("%w: %s: there was no time to look twice at what has changed: %w", kmsplugin.ErrUnavailable, s.token, context.Cause(ctx))
		}
		last = is
	}
	if err == nil {
		l.last = fmt.Sprint(found.finding, err)
	}
	return found, err
}

// othersFind adds what all other lines find, and tells whether there are others and all of them
// answered. One that is in use for long, hangs, or is slow is not waited for. All keys are read anew
// only if the first line was quick: of a slow token that would hold up everybody.
func (s *session) othersFind(ctx context.Context, looked *line, seen finding, anew bool) (all finding, whole bool) {
	ctx, cancel := s.token.within(ctx, busy)
	defer cancel()
	asks := deed[finding]{session: s, what: "find its keys", do: func(ctx context.Context, l *line) (finding, error) {
		found, err := l.readNew(ctx, s.token, seen, anew)
		if err != nil {
			err = fmt.Errorf("%w: %w", errAlone, err)
		}
		return found, err
	}}
	had, answers := map[*line]bool{looked: true}, make(chan answer[finding], s.pool.most)
	for s.pool.others(had) > int(s.late.Load()) {
		l, err := s.pool.wait(ctx, want{had: had, ahead: true})
		if err != nil {
			break
		}
		had[l] = true
		go func() { answers <- asks.on(ctx, l) }()
	}
	all = finding{keys: maps.Clone(seen.keys), wrong: maps.Clone(seen.wrong)}
	whole = len(had) > 1 && s.pool.others(had) == 0
	blind := len(seen.keys) == 0
	for range len(had) - 1 {
		a, ok := got(ctx, answers)
		whole = whole && ok && a.err == nil && !a.value.partial
		blind = blind || len(a.value.keys) == 0
		all.add(a.value)
	}
	// Who sees none at all where others do may not be logged in, whatever the module says.
	return all, whole && !(blind && len(all.keys) > 0)
}

// got is an answer, unless ctx ends before.
func got[T any](ctx context.Context, answers <-chan answer[T]) (a answer[T], ok bool) {
	select {
	case a = <-answers:
		return a, true
	case <-ctx.Done():
	}
	select {
	case a = <-answers:
		return a, true
	default:
		return a, false
	}
}
