//go:build cgo

package pkcs11

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	cryptoki "github.com/miekg/pkcs11"

	"github.com/kube-atrest/atrest/kmsplugin"
)

// session is a pool of sessions with the token, in the sense of PKCS#11, and the keys that were
// found there.
type session struct {
	token      *Token
	module     *module
	generation int
	slot       uint
	serial     string
	pool       *pool
	late       atomic.Int32 // calls of the module that nobody waits for any more
	lateSince  atomic.Pointer[time.Time]
	keys       atomic.Pointer[ring]
	looks      atomic.Int32 // in a row of which the token's answer said nothing
	wraps      atomic.Int32 // the same, since it last unwrapped
	looking    sync.Mutex
	known      readings      // of who is looking
	over       chan struct{} // closed when the token is away
	ending     sync.Once
}

func newSession(t *Token, m *module, slot uint, serial string, flags uint, most int, handles []cryptoki.SessionHandle) *session {
	s := &session{token: t, module: m, generation: m.joined(), slot: slot, serial: serial, known: readings{},
		pool: newPool(most, handles, t.config.Clock), over: make(chan struct{})}
	s.keys.Store(&ring{})
	s.pool.open = func() (h cryptoki.SessionHandle, err error) {
		err = s.within(func() error {
			h, err = m.driver.OpenSession(slot, cryptoki.CKF_SERIAL_SESSION|flags)
			return err
		})
		return h, err
	}
	s.pool.close = func(h cryptoki.SessionHandle) {
		_ = s.within(func() error { return m.driver.CloseSession(h) }) // one that is over cannot be closed
	}
	t.sessions.add(s)
	return s
}

// within has f call the module, unless that was initialised again since.
func (s *session) within(f func() error) error {
	if err := s.module.begin(s.generation); err != nil {
		return err
	}
	defer s.module.end()
	return f()
}

// Open logs in to the token. A token that is away is found again, with the module initialised
// again if no other session of this process uses it.
func (t *Token) Open(ctx context.Context) (kmsplugin.Session, error) {
	s, err := t.enter(ctx, 0, t.config.Sessions)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Renew returns when the token is away, so that the kit opens another session.
func (s *session) Renew(ctx context.Context) error {
	select {
	case <-s.over:
		return errOver
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Versions looks at the keys on the token. While one of them is not as it has to be nothing is
// wrapped, and those that can unwrap.
func (s *session) Versions(ctx context.Context) (kmsplugin.Versions, error) {
	found, err := s.lookAnew(ctx)
	if err != nil {
		return s.keys.Load().versions(), err
	}
	return found.versions(), found.problem
}

// lookAnew is what is on the token now.
func (s *session) lookAnew(ctx context.Context) (found *ring, err error) {
	if !s.looking.TryLock() {
		return nil, fmt.Errorf("%w: %s: the last look at it has not ended: restart the plugin if the token answers others", kmsplugin.ErrUnavailable, s.token)
	}
	defer s.looking.Unlock()
	objects, err := s.listed(ctx)
	if err == nil {
		err = s.call(ctx, "look for its keys", func(d driver, h cryptoki.SessionHandle) (err error) {
			if found, err = s.look(ctx, d, h, objects); err == nil {
				s.keys.Store(found)
			}
			return err
		})
	}
	if err == nil {
		s.looks.Store(0)
	} else if saysNothing(err) && s.looks.Add(1) >= silences {
		s.distrust()
	}
	return found, err
}

// listed is what two sessions tell of, before a third one looks: each may be with another HSM of a
// cluster, and what one of them has not is not gone.
func (s *session) listed(ctx context.Context) (objects []cryptoki.ObjectHandle, err error) {
	var both [2][]cryptoki.ObjectHandle
	var failed [2]error
	var all sync.WaitGroup
	for i := range both {
		all.Go(func() {
			failed[i] = s.call(ctx, "find its keys", func(d driver, h cryptoki.SessionHandle) (err error) {
				both[i], err = d.find(h, s.token.keys())
				return err
			})
		})
	}
	all.Wait()
	return slices.Concat(both[:]...), cmp.Or(failed[0], failed[1])
}

// silences is how often in a row a token may give answers that say nothing before the module is
// initialised again. One that has lost its device may know everything else by heart.
const silences = 3

// distrust ends the session, and has the module initialised again.
func (s *session) distrust() {
	s.module.suspect(s.generation)
	s.end()
}

// wrapped counts calls to wrap to which the token's answer said nothing. As it may be that it wraps
// no more and unwraps still, a session that unwraps meanwhile is not ended for them, and no other
// is soon after the module was initialised again for that, and it did not help.
func (s *session) wrapped(err error) {
	switch {
	case err == nil:
		s.wraps.Store(0)
		s.token.wrapping.forget()
	case saysNothing(err) && s.wraps.Add(1) >= silences && s.token.wrapping.allows(s.token.config.Clock.Now()):
		s.distrust()
	}
}

// call has f use one of the sessions, and ends all of them if the token is away. What f could
// not do may be left half done in its session, which is exchanged for another one then.
func (s *session) call(ctx context.Context, what string, f func(driver, cryptoki.SessionHandle) error) error {
	if s.isOver() {
		return fmt.Errorf("%s: %w", s.token, errOver)
	}
	h, err := s.pool.take(ctx, s.hangs)
	switch {
	case errors.Is(err, errHang):
		return fmt.Errorf("%s cannot %s: %w", s.token, what, err)
	case err != nil:
		return fmt.Errorf("%w: %s: all of its %d sessions are in use: %w", kmsplugin.ErrThrottled, s.token, s.pool.size(), err)
	}
	if err := s.module.begin(s.generation); err != nil {
		s.pool.put(h)
		s.end()
		return fmt.Errorf("%s: %w", s.token, err)
	}
	defer s.module.end()
	inTime := context.AfterFunc(ctx, s.overdue)
	defer func() {
		if !inTime() {
			s.late.Add(-1)
		}
	}()
	if err = f(s.module.driver, h); err == nil {
		s.pool.put(h)
		return nil
	}
	return fmt.Errorf("%s cannot %s: %w", s.token, what, explain(s.failed(ctx, h, err)))
}

// failed puts back a session with which something failed, or another one, and finds out whether the
// token is away.
func (s *session) failed(ctx context.Context, h cryptoki.SessionHandle, err error) error {
	away := isAway(err)
	if !away && (saysNothing(err) || isCode(err, cryptoki.CKR_OBJECT_HANDLE_INVALID, cryptoki.CKR_KEY_HANDLE_INVALID)) {
		if gone := s.isGone(ctx, s.module.driver, h); gone != nil {
			err, away = fmt.Errorf("%w: %w", gone, err), true
		}
	}
	if !away {
		next, failed := s.pool.exchange(h)
		h = next
		switch {
		case failed == nil:
		case errors.Is(failed, errLast): // it is all that there is
			away = isCode(err, cryptoki.CKR_OPERATION_ACTIVE)
		default:
			away = !hasNoMore(failed) || s.pool.size() == 0
		}
	}
	if away {
		s.end()
	}
	if h != 0 {
		s.pool.put(h)
	}
	return err
}

// overdue tells that nobody waits any more for a call of the module that runs.
func (s *session) overdue() {
	s.late.Add(1)
	now := s.token.config.Clock.Now()
	s.lateSince.Store(&now)
}

// hangFor is for how long nobody has waited for any of the calls that run before they are said to
// hang. A call that is given up may well return soon.
const hangFor = time.Second

// hangs reports whether each session does something that does not return.
func (s *session) hangs() bool {
	since, size := s.lateSince.Load(), s.pool.size()
	return size > 0 && int(s.late.Load()) >= size && since != nil && s.token.config.Clock.Since(*since) >= hangFor
}

func (s *session) isOver() bool {
	select {
	case <-s.over:
		return true
	default:
		return false
	}
}

// end has the kit open another session.
func (s *session) end() {
	s.ending.Do(func() {
		close(s.over)
		s.module.left()
	})
}

// Close ends the sessions; with the last one of this process the token logs it out.
func (s *session) Close(ctx context.Context) error {
	defer s.token.sessions.remove(s)
	defer s.end()
	if err := s.pool.end(ctx); err != nil {
		return fmt.Errorf("%w: %s: a call of it does not return: %w", kmsplugin.ErrUnavailable, s.token, err)
	}
	return nil
}
