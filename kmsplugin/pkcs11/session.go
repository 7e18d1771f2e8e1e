//go:build cgo

package pkcs11

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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
	looks      atomic.Int32 // in a row that were not read whole
	wraps      atomic.Int32 // in a row that failed, since it last unwrapped
	looking    *gate
	known      readings      // of who is looking
	over       chan struct{} // closed when another one is to be opened
	ending     sync.Once
}

func newSession(t *Token, m *module, slot uint, serial string, flags uint, most int, handles []cryptoki.SessionHandle) *session {
	s := &session{token: t, module: m, generation: m.joined(), slot: slot, serial: serial, known: readings{}, looking: newGate(),
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

// Renew returns when the session is over, so that the kit opens another one.
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
	found, err := s.lookAnew(ctx, ctx)
	s.looked(found, err)
	if err != nil {
		return s.keys.Load().versions(), s.token.trust.tell(err)
	}
	return found.versions(), s.token.trust.tell(found.problem)
}

// lookAnew is what is on the token now. The next look waits for the end of this one as long as until
// lasts.
func (s *session) lookAnew(ctx, until context.Context) (found *ring, err error) {
	if s.isOver() {
		return nil, fmt.Errorf("%s: %w", s.token, errOver)
	}
	leave, err := s.looking.enter(ctx, until)
	if err != nil {
		return nil, fmt.Errorf("%s: the last look at it has not ended: %w", s.token, err)
	}
	defer leave()
	var others error
	err = s.call(ctx, "look for its keys", func(d driver, h cryptoki.SessionHandle) (err error) {
		var objects []cryptoki.ObjectHandle
		var all bool
		if objects, all, others = s.listed(ctx, h); others != nil {
			return nil
		}
		if found, err = s.look(ctx, d, h, objects); err != nil {
			return err
		}
		if !all {
			found = found.beside(s.keys.Load())
		}
		s.keys.Store(found)
		return nil
	})
	return found, cmp.Or(err, others)
}

// call has f use one of the sessions.
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
	return s.on(ctx, h, what, f)
}

// on has f use this session. What f could not do may be left half done there, and it is exchanged
// for another one then.
func (s *session) on(ctx context.Context, h cryptoki.SessionHandle, what string, f func(driver, cryptoki.SessionHandle) error) error {
	if err := s.module.begin(s.generation); err != nil {
		s.pool.put(h)
		return fmt.Errorf("%s: %w", s.token, err)
	}
	defer s.module.end()
	inTime := context.AfterFunc(ctx, s.overdue)
	defer func() {
		if !inTime() {
			s.late.Add(-1)
		}
	}()
	err := f(s.module.driver, h)
	if err == nil {
		s.pool.put(h)
		return nil
	}
	return fmt.Errorf("%s cannot %s: %w", s.token, what, explain(s.failed(ctx, h, err)))
}

// failed puts back a session with which something failed, or another one, and finds out whether the
// token is away.
func (s *session) failed(ctx context.Context, h cryptoki.SessionHandle, err error) error {
	if !isAway(err) && (saysNothing(err) || isCode(err, cryptoki.CKR_OBJECT_HANDLE_INVALID, cryptoki.CKR_KEY_HANDLE_INVALID)) {
		if gone := s.isGone(ctx, s.module.driver, h); gone != nil {
			err = fmt.Errorf("%w: %w", gone, err)
		}
	}
	if !isAway(err) {
		next, failed := s.pool.exchange(h)
		h = next
		away := failed != nil && (!hasNoMore(failed) || s.pool.size() == 0)
		if errors.Is(failed, errLast) { // it is all that there is
			away = isCode(err, cryptoki.CKR_OPERATION_ACTIVE)
		}
		if away {
			err = fmt.Errorf("%w: it has no other session: %w", errAway, err)
		}
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
