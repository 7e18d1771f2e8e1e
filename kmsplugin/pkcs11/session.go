//go:build cgo

package pkcs11

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	cryptoki "github.com/miekg/pkcs11"

	"github.com/kube-atrest/atrest/kmsplugin"
)

// session is some sessions with the token, in the sense of PKCS#11, under one login. Each has
// one owner at a time, who takes it from free and puts it back: a session does one thing at
// once.
type session struct {
	token      *Token
	module     *module
	generation int
	slot       uint
	serial     string
	free       chan cryptoki.SessionHandle
	keys       atomic.Pointer[ring]
	looking    sync.Mutex
	over       chan struct{} // closed when the token is away
	ending     sync.Once
}

func newSession(t *Token, m *module, slot uint, serial string, handles []cryptoki.SessionHandle) *session {
	s := &session{token: t, module: m, generation: m.joined(), slot: slot, serial: serial,
		free: make(chan cryptoki.SessionHandle, len(handles)), over: make(chan struct{})}
	s.keys.Store(&ring{})
	for _, h := range handles {
		s.free <- h
	}
	return s
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
	if !s.looking.TryLock() {
		return s.keys.Load().versions(), fmt.Errorf("%w: %s: the last look at it has not ended: does it answer others?", kmsplugin.ErrUnavailable, s.token)
	}
	defer s.looking.Unlock()
	err := s.call(ctx, "look for its keys", func(d driver, h cryptoki.SessionHandle) error {
		found, err := s.look(ctx, d, h)
		if err == nil {
			s.keys.Store(found)
		}
		return err
	})
	if err != nil {
		return s.keys.Load().versions(), err
	}
	found := s.keys.Load()
	return found.versions(), found.problem
}

// What has changed is looked at again after a pause, and believed once it is the same twice: while
// another process logs in or makes a key, SoftHSM may not find a token or a key that is there, or
// find half of it.
const (
	pause  = 20 * time.Millisecond
	atMost = 5
)

// look reads the keys.
func (s *session) look(ctx context.Context, d driver, h cryptoki.SessionHandle) (found *ring, err error) {
	last, known := "", s.keys.Load().String()
	for range atMost {
		if err = s.isWell(d, h); err == nil {
			found, err = s.token.lookUp(d, h)
		}
		is := fmt.Sprint(found, err)
		if err == nil && is == known+" <nil>" || is == last || !s.rests(ctx) {
			break
		}
		last = is
	}
	return found, err
}

// rests waits for a moment, unless ctx ends.
func (s *session) rests(ctx context.Context) bool {
	timer := s.token.config.Clock.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C():
		return true
	case <-ctx.Done():
		return false
	}
}

// isGone is why the token is away, after something failed that says nothing of that.
func (s *session) isGone(ctx context.Context, d driver, h cryptoki.SessionHandle) (err error) {
	for range 2 {
		if err = s.isWell(d, h); err == nil || !s.rests(ctx) {
			return err
		}
	}
	return s.isWell(d, h)
}

// isWell is an error unless the very token is there and this process logged in. To who is not,
// a token that is away is one without keys, and so are private keys.
func (s *session) isWell(d driver, h cryptoki.SessionHandle) error {
	info, err := d.GetTokenInfo(s.slot)
	if err != nil {
		return fmt.Errorf("%w: C_GetTokenInfo: %w", errAway, err)
	}
	if info.SerialNumber != s.serial {
		return fmt.Errorf("%w: another one is in its slot", errAway)
	}
	state, err := d.GetSessionInfo(h)
	if err != nil {
		return fmt.Errorf("%w: C_GetSessionInfo: %w", errAway, err)
	}
	if !isUsers(state.State) {
		return fmt.Errorf("%w: nobody is logged in", errAway)
	}
	return nil
}

// call has f use one of the sessions, and ends all of them if the token is away. What f could
// not do may be left half done in its session, which is replaced then.
func (s *session) call(ctx context.Context, what string, f func(driver, cryptoki.SessionHandle) error) error {
	var h cryptoki.SessionHandle
	select {
	case <-s.over:
		return fmt.Errorf("%s: %w", s.token, errOver)
	case h = <-s.free:
	case <-ctx.Done():
		return fmt.Errorf("%w: %s: all of its %d sessions are in use: %w", kmsplugin.ErrThrottled, s.token, cap(s.free), context.Cause(ctx))
	}
	defer func() { s.free <- h }()
	err := s.module.begin(s.generation)
	if err != nil {
		s.end()
		return fmt.Errorf("%s: %w", s.token, err)
	}
	defer s.module.end()
	d := s.module.driver
	if err = f(d, h); err == nil {
		return nil
	}
	away := isAway(err)
	if !away && (saysNothing(err) || isCode(err, cryptoki.CKR_OBJECT_HANDLE_INVALID, cryptoki.CKR_KEY_HANDLE_INVALID)) {
		if gone := s.isGone(ctx, d, h); gone != nil {
			err, away = fmt.Errorf("%w: %w", gone, err), true
		}
	}
	if !away {
		_ = d.CloseSession(h)
		next, failed := d.OpenSession(s.slot, cryptoki.CKF_SERIAL_SESSION)
		if failed == nil {
			h = next
		}
		away = failed != nil
	}
	if away {
		s.end()
	}
	return fmt.Errorf("%s cannot %s: %w", s.token, what, explain(err))
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
	defer s.end()
	if err := s.module.begin(s.generation); err != nil {
		return nil // they ended with the module
	}
	defer s.module.end()
	for range cap(s.free) {
		select {
		case h := <-s.free:
			_ = s.module.driver.CloseSession(h) // one that is over cannot be closed
		case <-ctx.Done():
			return fmt.Errorf("%w: %s: a call of it does not return: %w", kmsplugin.ErrUnavailable, s.token, context.Cause(ctx))
		}
	}
	return nil
}
