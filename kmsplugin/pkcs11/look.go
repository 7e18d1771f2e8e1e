//go:build cgo

package pkcs11

import (
	"context"
	"errors"
	"fmt"
	"time"

	cryptoki "github.com/miekg/pkcs11"

	"github.com/kube-atrest/atrest/kmsplugin"
)

// While another process logs in or makes a key SoftHSM may find half of a key, and say of a token
// that is there that it is not. So what has changed is looked at again after a pause, and believed
// once it is the same twice; and whether the token is there is asked only if keys are missing.
const (
	pause  = 20 * time.Millisecond // at first, and then each time twice as long
	atMost = 6
)

// look reads the keys, and those that others told of. To who is not logged in, and where the token is away, it is as if there
// were none.
func (s *session) look(ctx context.Context, d driver, h cryptoki.SessionHandle, others []cryptoki.ObjectHandle) (found *ring, err error) {
	before := s.keys.Load()
	s.known.age()
	last, known := "", before.String()+" <nil>"
	for n := range atMost {
		if err := s.isLoggedIn(d, h); err != nil {
			return nil, err
		}
		if found, err = s.token.lookUp(ctx, d, h, s.known, others...); err != nil || !found.hasAll(before) || len(found.ids) == 0 {
			if err := s.isThere(ctx, d); err != nil {
				return nil, err
			}
		}
		if ctx.Err() != nil && err != nil {
			return nil, err
		}
		if err == nil && errors.Is(found.problem, kmsplugin.ErrUnavailable) {
			return found, nil // there was no time for all of it, and nothing that is not there is believed
		}
		is := fmt.Sprint(found, err)
		if is == known || is == last {
			break
		}
		if err == nil {
			others = found.objects(others)
		}
		if !s.token.rests(ctx, pause<<n) {
			return nil, fmt.Errorf("%w: %s: there was no time to look twice at what has changed: %w", kmsplugin.ErrUnavailable, s.token, context.Cause(ctx))
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
		if !s.token.rests(ctx, pause<<n) {
			break
		}
	}
	return err
}

// rests waits, unless ctx ends.
func (t *Token) rests(ctx context.Context, pause time.Duration) bool {
	timer := t.config.Clock.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C():
		return true
	case <-ctx.Done():
		return false
	}
}
