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

// While another process logs in or makes a key SoftHSM may find half of a key, and say of a token
// that is there that it is not. So what has changed is looked at again after a pause, and believed
// once it is the same twice; and whether the token is there is asked only if keys are missing.
const (
	pause  = 20 * time.Millisecond // at first, and then each time twice as long
	atMost = 6
)

// look reads the keys. To who is not logged in, and where the token is away, it is as if there
// were none.
func (s *session) look(ctx context.Context, d driver, h cryptoki.SessionHandle) (found *ring, err error) {
	before := s.keys.Load()
	last, known := "", before.String()+" <nil>"
	for n := range atMost {
		if err := s.isLoggedIn(d, h); err != nil {
			return nil, err
		}
		if found, err = s.token.lookUp(d, h); err != nil || !found.hasAll(before) || len(found.ids) == 0 {
			if err := s.isThere(ctx, d); err != nil {
				return nil, err
			}
		}
		is := fmt.Sprint(found, err)
		if is == known || is == last || !s.rests(ctx, pause<<n) {
			break
		}
		last = is
	}
	return found, err
}

// isGone is why the token is away, after a call failed that does not say so.
func (s *session) isGone(ctx context.Context, d driver, h cryptoki.SessionHandle) error {
	if err := s.isLoggedIn(d, h); err != nil {
		return err
	}
	for _, objects := range s.keys.Load().handles {
		if _, err := attributes(d, h, objects[0], cryptoki.CKA_ID); err == nil {
			return nil
		}
		break
	}
	return s.isThere(ctx, d)
}

func (s *session) isLoggedIn(d driver, h cryptoki.SessionHandle) error {
	state, err := d.GetSessionInfo(h)
	if err != nil {
		return fmt.Errorf("%w: C_GetSessionInfo: %w", errAway, err)
	}
	if !isUsers(state.State) {
		return fmt.Errorf("%w: nobody is logged in", errAway)
	}
	return nil
}

// isThere is an error if the very token is not in its slot, as far as one can tell while ctx lasts.
func (s *session) isThere(ctx context.Context, d driver) (err error) {
	for n := range atMost {
		var info cryptoki.TokenInfo
		info, err = d.GetTokenInfo(s.slot)
		switch {
		case err == nil && info.SerialNumber == s.serial:
			return nil
		case err == nil && info.SerialNumber != "":
			return fmt.Errorf("%w: the one with the serial number %q is in its slot", errAway, info.SerialNumber)
		case err == nil:
			err = fmt.Errorf("%w: its slot is empty", errAway)
		default:
			err = fmt.Errorf("%w: C_GetTokenInfo: %w", errAway, err)
		}
		if !s.rests(ctx, pause<<n) {
			break
		}
	}
	return err
}

// rests waits, unless ctx ends.
func (s *session) rests(ctx context.Context, pause time.Duration) bool {
	timer := s.token.config.Clock.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C():
		return true
	case <-ctx.Done():
		return false
	}
}

// call has f use one of the sessions, and ends all of them if the token is away. What f could
// not do may be left half done in its session, which is replaced then.
func (s *session) call(ctx context.Context, what string, f func(driver, cryptoki.SessionHandle) error) error {
	if s.isOver() {
		return fmt.Errorf("%s: %w", s.token, errOver)
	}
	var h cryptoki.SessionHandle
	select {
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
