//go:build cgo

package pkcs11

import (
	"context"
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

// isThere is an error if the very token is not in its slot, as far as one can tell while ctx lasts.
func (s *session) isThere(ctx context.Context) (err error) {
	for n := range atMost {
		var info cryptoki.TokenInfo
		info, err = s.module.driver.GetTokenInfo(s.slot)
		switch {
		case err == nil && info.SerialNumber == s.serial:
			return nil
		case err == nil && info.SerialNumber != "":
			return fmt.Errorf("%w: the one with the serial number %q is in its slot", errNotThere, info.SerialNumber)
		case err == nil:
			err = fmt.Errorf("%w: its slot is empty", errNotThere)
		default:
			err = fmt.Errorf("%w: C_GetTokenInfo: %w", errNotThere, err)
		}
		if !s.token.rests(ctx, pause<<n) {
			break
		}
	}
	return err
}

// askSlot is isThere for who has no line. One asks at a time, and nobody waits for what hangs.
func (s *session) askSlot(ctx context.Context) error {
	leave, err := s.asking.enter(ctx, ctx)
	if err != nil {
		return err
	}
	if s.isOver() { // as who asked before has found
		leave()
		return errOver
	}
	answer := make(chan error, 1)
	go func() {
		defer leave()
		answer <- s.within(func() error { return s.isThere(ctx) })
	}()
	select {
	case err = <-answer:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%w: its slot has not told in time whether it is there: %w", kmsplugin.ErrUnavailable, context.Cause(ctx))
	}
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

// within is ctx for at most some time.
func (t *Token) within(ctx context.Context, most time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	timer := t.config.Clock.NewTimer(most)
	go func() {
		defer timer.Stop()
		select {
		case <-timer.C():
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}
