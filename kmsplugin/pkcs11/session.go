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

// session is lines to the token, and the keys that were found there.
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
	asking     *gate         // of who asks whether the token is in its slot
	unread     *line         // that whoever looks next goes on with
	over       chan struct{} // closed when another one is to be opened
	ending     sync.Once
}

func newSession(t *Token, m *module, slot uint, serial string, flags uint, most int, handles []cryptoki.SessionHandle) *session {
	s := &session{token: t, module: m, generation: m.joined(), slot: slot, serial: serial, looking: newGate(), asking: newGate(),
		pool: newPool(m.driver, most, handles, t.config.Clock), over: make(chan struct{})}
	s.keys.Store(&ring{})
	s.pool.open = func() (h cryptoki.SessionHandle, err error) {
		err = s.within(func() (err error) {
			h, err = t.openSession(m.driver, slot, flags)
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
	defer s.token.sessions.settle()
	defer s.end()
	if err := s.pool.end(ctx); err != nil {
		return fmt.Errorf("%w: %s: a call of it does not return: %w", kmsplugin.ErrUnavailable, s.token, err)
	}
	return nil
}
