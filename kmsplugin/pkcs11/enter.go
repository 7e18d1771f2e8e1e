//go:build cgo

package pkcs11

import (
	"context"
	"errors"
	"fmt"
	"strings"

	cryptoki "github.com/miekg/pkcs11"

	"github.com/kube-atrest/atrest/kmsplugin"
)

// enter opens n sessions with the token and logs in. It is tried once more with the module
// initialised again if the token is away: many modules see a token that came back only then.
func (t *Token) enter(ctx context.Context, flags uint, n int) (*session, error) {
	m, err := t.load(t.config.Module)
	if err != nil {
		return nil, err
	}
	pin, err := readPIN(t.config.PINFile)
	if err != nil {
		return nil, err
	}
	leave, err := m.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	if err := m.start(); err != nil {
		return nil, err
	}
	s, err := t.tryToEnter(m, pin, flags, n)
	if err == nil || !errors.Is(err, errAway) && !saysNothing(err) {
		return s, err
	}
	switch again := m.restart(); {
	case errors.Is(again, errInUse):
		return nil, err
	case again != nil:
		return nil, again
	}
	return t.tryToEnter(m, pin, flags, n)
}

func (t *Token) tryToEnter(m *module, pin string, flags uint, n int) (*session, error) {
	slot, info, err := t.find(m.driver)
	if err != nil {
		return nil, err
	}
	if err := t.hasGCM(m, slot); err != nil {
		return nil, err
	}
	var handles []cryptoki.SessionHandle
	for range n {
		h, err := m.driver.OpenSession(slot, cryptoki.CKF_SERIAL_SESSION|flags)
		switch {
		case err == nil:
			handles = append(handles, h)
		case isCode(err, cryptoki.CKR_SESSION_COUNT) && len(handles) > 0:
			return newSession(t, m, slot, info.SerialNumber, handles), nil // as many as it has
		default:
			err = fmt.Errorf("%s: C_OpenSession: %w", t, explain(err))
		}
		if err == nil && len(handles) == 1 {
			err = t.login(m.driver, h, slot, pin)
		}
		if err != nil {
			for _, h := range handles {
				_ = m.driver.CloseSession(h)
			}
			return nil, err
		}
	}
	return newSession(t, m, slot, info.SerialNumber, handles), nil
}

// hasGCM is an error if the token says that it has no AES-GCM. It is asked by the first session of
// a process alone: SoftHSM forgets for a moment what it has while it answers that.
func (t *Token) hasGCM(m *module, slot uint) error {
	if m.isInUse() {
		return nil
	}
	gcm, err := m.driver.GetMechanismInfo(slot, []*cryptoki.Mechanism{cryptoki.NewMechanism(cryptoki.CKM_AES_GCM, nil)})
	if isCode(err, cryptoki.CKR_MECHANISM_INVALID) || err == nil && gcm.Flags&cryptoki.CKF_ENCRYPT == 0 {
		return fmt.Errorf("%w: %w: %s has no AES-GCM: take one that has", kmsplugin.ErrKeyDisabled, ErrMistake, t)
	}
	return nil
}

// find is the slot that the token is in.
func (t *Token) find(d driver) (slot uint, info cryptoki.TokenInfo, err error) {
	slots, err := d.GetSlotList(true)
	if err != nil {
		return 0, info, fmt.Errorf("%s: C_GetSlotList: %w", t, explain(err))
	}
	var others, serials []string
	for _, s := range slots {
		one, err := d.GetTokenInfo(s)
		if err != nil || one.Flags&cryptoki.CKF_TOKEN_INITIALIZED == 0 {
			continue
		}
		if t.config.Token != "" && one.Label != t.config.Token || t.config.Serial != "" && one.SerialNumber != t.config.Serial {
			others = append(others, fmt.Sprintf("%q with the serial number %q", one.Label, one.SerialNumber))
			continue
		}
		slot, info, serials = s, one, append(serials, one.SerialNumber)
	}
	switch {
	case len(serials) > 1:
		return 0, info, fmt.Errorf("%w: %w: there are %d tokens %q, with the serial numbers %s: name one of these, too", kmsplugin.ErrUnavailable, ErrMistake, len(serials), t.config.Token, strings.Join(serials, ", "))
	case len(serials) == 1:
		return slot, info, nil
	case len(others) > 0:
		return 0, info, fmt.Errorf("%w: %w: %s is not there, but %s is: connect it, or name another", errAway, ErrMistake, t, strings.Join(others, ", "))
	}
	return 0, info, fmt.Errorf("%w: %s is not there, and no other is: connect it, and see that the module's configuration is that of this user", errAway, t)
}

// login logs in unless the process is. It tries no PIN that the token has refused before, and
// leaves the last try that the token has to somebody who knows the PIN.
func (t *Token) login(d driver, h cryptoki.SessionHandle, slot uint, pin string) error {
	if state, err := d.GetSessionInfo(h); err == nil && isUsers(state.State) {
		return nil
	}
	denied := func(what string) error {
		return fmt.Errorf("%w: %s: PIN file %s: %s", kmsplugin.ErrDenied, t, t.config.PINFile, what)
	}
	before, err := d.GetTokenInfo(slot)
	switch {
	case err != nil:
		return fmt.Errorf("%s: C_GetTokenInfo: %w", t, explain(err))
	case before.Flags&cryptoki.CKF_USER_PIN_LOCKED != 0:
		return denied("the PIN is locked: have the security officer unlock it")
	case before.Flags&cryptoki.CKF_USER_PIN_FINAL_TRY != 0:
		return denied("one more wrong PIN locks the token, and so none is tried: log in once with the right one, as \"pkcs11-tool --login --list-objects\" does")
	case t.pin.isRefused(pin):
		return denied("the token has refused this PIN, and it is not tried again, as tokens lock after some wrong ones: write the right one into the file, or restart this if it is right by now")
	}
	err = d.Login(h, cryptoki.CKU_USER, pin)
	if err == nil || isCode(err, cryptoki.CKR_USER_ALREADY_LOGGED_IN) {
		return nil
	}
	if isCode(err, cryptoki.CKR_PIN_INCORRECT, cryptoki.CKR_PIN_INVALID, cryptoki.CKR_PIN_LEN_RANGE, cryptoki.CKR_PIN_EXPIRED) || t.counted(d, slot, before) {
		t.pin.refuse(pin)
	}
	if saysNothing(err) { // and so it is not tried again at once, as what is away is
		return fmt.Errorf("%w: %s: C_Login: %v", kmsplugin.ErrUnavailable, t, err)
	}
	return fmt.Errorf("%s: PIN file %s: C_Login: %w", t, t.config.PINFile, explain(err))
}

// counted reports whether the token has counted a wrong PIN, whatever it answered.
func (t *Token) counted(d driver, slot uint, before cryptoki.TokenInfo) bool {
	const low = cryptoki.CKF_USER_PIN_COUNT_LOW | cryptoki.CKF_USER_PIN_FINAL_TRY | cryptoki.CKF_USER_PIN_LOCKED
	after, err := d.GetTokenInfo(slot)
	return err == nil && after.Flags&low&^before.Flags != 0
}

// isUsers reports whether a session of this state sees what is the user's. A private key is to
// any other as if it were not there.
func isUsers(state uint) bool {
	return state == cryptoki.CKS_RO_USER_FUNCTIONS || state == cryptoki.CKS_RW_USER_FUNCTIONS
}
