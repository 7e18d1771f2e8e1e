//go:build cgo

package pkcs11

import (
	"context"
	"fmt"
	"strings"
	"time"

	cryptoki "github.com/miekg/pkcs11"

	"github.com/kube-atrest/atrest/kmsplugin"
)

// enter opens n sessions with the token and logs in. If that fails it is tried once more with the
// module initialised again: many modules see a token that came back only then.
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
	if t.sessions.late() > t.config.Sessions { // [Token.Keeping] has room for as many again
		return nil, fmt.Errorf("%s: %w", t, errHang)
	}
	if _, err = t.begin(m); err != nil {
		return nil, t.trust.tell(err)
	}
	for {
		s, err := t.tryToEnter(m, pin, flags, n)
		if err == nil {
			return s, nil
		}
		t.trust.doubt(blind)
		again, failed := t.begin(m)
		if failed != nil {
			return nil, t.trust.tell(failed)
		}
		if !again || ctx.Err() != nil {
			return nil, t.trust.tell(err)
		}
	}
}

// begin initialises the module unless it is, or again if it is doubted.
func (t *Token) begin(m *module) (again bool, err error) {
	now := t.config.Clock.Now()
	if !t.trust.again(now) {
		return false, m.start()
	}
	if err = m.restart(func() { t.sessions.giveUp() }); t.trust.initialised(err, now) {
		return false, nil
	}
	return true, err
}

func (t *Token) tryToEnter(m *module, pin string, flags uint, n int) (*session, error) {
	slot, info, err := t.find(m.driver)
	if err != nil {
		return nil, err
	}
	if err := t.hasGCM(m, slot); err != nil {
		return nil, err
	}
	h, err := t.openSession(m.driver, slot, flags)
	if err != nil {
		return nil, fmt.Errorf("%s: C_OpenSession: %w", t, explain(err))
	}
	if err := t.login(m.driver, h, slot, pin); err != nil {
		_ = m.driver.CloseSession(h)
		return nil, err
	}
	s := newSession(t, m, slot, info.SerialNumber, flags, n, []cryptoki.SessionHandle{h})
	t.fill(s.pool)
	return s, nil
}

// fillFor is how long other sessions than the first are waited for.
const fillFor = 2 * time.Second

// fill has the others opened, as many as the token has now, or as are with HSMs that are there. What
// takes long there is not waited for, and others are opened when they are needed.
func (t *Token) fill(p *pool) {
	filled := make(chan struct{})
	go func() {
		defer close(filled)
		p.fill()
	}()
	timer := t.config.Clock.NewTimer(fillFor)
	defer timer.Stop()
	select {
	case <-filled:
	case <-timer.C():
	}
}

// openSession opens a session. A token that has no more, whatever it says then, has those back first
// that are over.
func (t *Token) openSession(d driver, slot, flags uint) (cryptoki.SessionHandle, error) {
	h, err := d.OpenSession(slot, cryptoki.CKF_SERIAL_SESSION|flags)
	if err != nil && t.sessions.giveUp() {
		h, err = d.OpenSession(slot, cryptoki.CKF_SERIAL_SESSION|flags)
	}
	return h, err
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
