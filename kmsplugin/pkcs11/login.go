//go:build cgo

package pkcs11

import (
	"fmt"
	"time"

	cryptoki "github.com/miekg/pkcs11"

	"github.com/kube-atrest/atrest/kmsplugin"
)

// login logs in unless the process is. It tries no PIN that the token has refused before, and
// leaves the last try that the token has to somebody who knows the PIN.
func (t *Token) login(d driver, h cryptoki.SessionHandle, slot uint, pin string) error {
	if state, err := d.GetSessionInfo(h); err == nil && isUsers(state.State) {
		return nil
	}
	before, err := d.GetTokenInfo(slot)
	if err != nil {
		return fmt.Errorf("%s: C_GetTokenInfo: %w", t, explain(err))
	}
	now := t.config.Clock.Now()
	if err := t.mayTry(pin, before.Flags, now); err != nil {
		return err
	}
	// A module may know slots and tokens by heart. This asks the device, and needs no PIN. Not every
	// token does it.
	if _, err := d.GenerateRandom(h, 8); err == nil {
		t.draws.Store(true)
	} else if t.draws.Load() || isCode(err, cryptoki.CKR_DEVICE_ERROR) || isCode(err, gone...) {
		return fmt.Errorf("%w: %s: C_GenerateRandom: %w", errAway, t, err)
	}
	err = d.Login(h, cryptoki.CKU_USER, pin)
	switch {
	case err == nil:
		t.pin.worked(pin)
		return nil
	case isCode(err, cryptoki.CKR_USER_ALREADY_LOGGED_IN):
		return nil
	}
	after, unknown := d.GetTokenInfo(slot)
	isThere := unknown == nil && after.SerialNumber == before.SerialNumber
	if isCode(err, gone...) || saysNothing(err) && !isThere { // it was not tried
		return fmt.Errorf("%w: %s: C_Login: %w", errAway, t, err)
	}
	counted := unknown == nil && after.Flags&(cryptoki.CKF_USER_PIN_COUNT_LOW|cryptoki.CKF_USER_PIN_FINAL_TRY|cryptoki.CKF_USER_PIN_LOCKED) != 0
	inDoubt := (saysNothing(err) || hasNoMore(err)) && !counted
	next := t.pin.failed(pin, err.Error(), inDoubt, now)
	if next.IsZero() {
		return fmt.Errorf("%w: %s: PIN file %s: C_Login: %s: this PIN is %s", classOf(err), t, t.config.PINFile, explain(err), notAgain)
	}
	return t.notYet(err.Error(), next.Sub(now)) // without the code, as what is away is tried at once
}

// mayTry is an error if a PIN is not to be tried, or not yet.
func (t *Token) mayTry(pin string, flags uint, now time.Time) error {
	denied := func(what string) error {
		return fmt.Errorf("%w: %s: PIN file %s: %s", kmsplugin.ErrDenied, t, t.config.PINFile, what)
	}
	last := t.pin.last(pin)
	switch {
	case flags&cryptoki.CKF_USER_PIN_LOCKED != 0:
		return denied("the PIN is locked: have the security officer unlock it")
	case flags&cryptoki.CKF_USER_PIN_FINAL_TRY != 0:
		return denied("one more wrong PIN locks the token, and so none is tried: log in once with the right one, as \"pkcs11-tool --login --list-objects\" does")
	case last.answer == "":
		return nil
	case last.next.IsZero():
		return denied(fmt.Sprintf("the token has answered this PIN with %s, and it is %s", last.answer, notAgain))
	case now.Before(last.next):
		return t.notYet(last.answer, last.next.Sub(now))
	}
	return nil
}

func (t *Token) notYet(answer string, left time.Duration) error {
	return fmt.Errorf("%w: %s: C_Login: %s: the PIN has worked before, and is tried again in %s", kmsplugin.ErrUnavailable, t, answer, left.Round(time.Second))
}

const notAgain = "not tried again, as tokens lock after some wrong ones: write the right one into the file or, once you know that it is right, start this again"

// gone are the answers by which no PIN was tried: there was nothing to try it at.
var gone = []uint{
	cryptoki.CKR_DEVICE_REMOVED, cryptoki.CKR_TOKEN_NOT_PRESENT, cryptoki.CKR_TOKEN_NOT_RECOGNIZED, cryptoki.CKR_SLOT_ID_INVALID,
	cryptoki.CKR_SESSION_HANDLE_INVALID, cryptoki.CKR_SESSION_CLOSED, cryptoki.CKR_CRYPTOKI_NOT_INITIALIZED,
}

// classOf is the class of an answer to a PIN. One that says nothing is taken for a refusal.
func classOf(err error) error {
	if saysNothing(err) {
		return kmsplugin.ErrDenied
	}
	return explain(err)
}

// isUsers reports whether a session of this state sees what is the user's. A private key is to
// any other as if it were not there.
func isUsers(state uint) bool {
	return state == cryptoki.CKS_RO_USER_FUNCTIONS || state == cryptoki.CKS_RW_USER_FUNCTIONS
}
