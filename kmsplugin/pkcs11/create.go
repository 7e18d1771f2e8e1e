//go:build cgo

package pkcs11

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	cryptoki "github.com/miekg/pkcs11"

	"github.com/kube-atrest/atrest/internal/hashed"
)

// KeyInfo is one key on the token, without the key.
type KeyInfo struct {
	// ID is the label of the version, as in "7-0badcafe".
	ID      string    `json:"id"`
	KeyID   string    `json:"keyID"`
	Hash    string    `json:"hash"` // of the key_id, as apiservers show it
	Created time.Time `json:"created"`
	Writes  bool      `json:"writes"` // is the one to wrap with
	// CKAID is the CKA_ID in hexadecimal, by which the tools of the token know it.
	CKAID string `json:"ckaID"`
}

func infoOf(id keyID, writes bool) KeyInfo {
	v := id.version()
	return KeyInfo{ID: v.Label, KeyID: v.KeyID(), Hash: hashed.ID(v.KeyID()), Created: v.Created, Writes: writes, CKAID: hex.EncodeToString(id[:])}
}

// Create has the token make the first key of the label. It is an error if there is one.
func (t *Token) Create(ctx context.Context) (KeyInfo, error) {
	return t.generate(ctx, func(found *ring) error {
		if len(found.ids) > 0 {
			return fmt.Errorf("%s has %d versions of the key %q: rotate to make another", t, len(found.ids), t.config.Key)
		}
		return nil
	})
}

// Rotate has the token make another key of the label, which wraps from then on. It is an error if
// there is none yet, or if one is not as it has to be.
func (t *Token) Rotate(ctx context.Context) (KeyInfo, error) {
	return t.generate(ctx, func(found *ring) error { return found.problem })
}

// List tells of all keys of the label, the oldest first, also beside an error that says what is
// wrong with them.
func (t *Token) List(ctx context.Context) ([]KeyInfo, error) {
	var infos []KeyInfo
	err := t.administer(ctx, "look for its keys", 0, func(d driver, h cryptoki.SessionHandle) error {
		found, err := t.lookUp(d, h)
		if err != nil {
			return err
		}
		for i, id := range found.ids {
			infos = append(infos, infoOf(id, i == len(found.ids)-1))
		}
		return found.problem
	})
	return infos, err
}

func (t *Token) generate(ctx context.Context, may func(*ring) error) (info KeyInfo, err error) {
	err = t.administer(ctx, "make a key", cryptoki.CKF_RW_SESSION, func(d driver, h cryptoki.SessionHandle) error {
		found, err := t.lookUp(d, h)
		if err != nil {
			return err
		}
		if err := may(found); err != nil {
			return err
		}
		var last uint32
		if n := len(found.ids); n > 0 {
			last = found.ids[n-1].counter()
		}
		id := newKeyID(last+1, t.config.Clock.Now())
		mechanism := []*cryptoki.Mechanism{cryptoki.NewMechanism(cryptoki.CKM_AES_KEY_GEN, nil)}
		fixed := cryptoki.NewAttribute(cryptoki.CKA_MODIFIABLE, false) // a CKA_ID that is changed is a key_id that is lost
		_, err = d.GenerateKey(h, mechanism, append(t.template(id), fixed))
		if isCode(err, cryptoki.CKR_TEMPLATE_INCONSISTENT, cryptoki.CKR_ATTRIBUTE_TYPE_INVALID, cryptoki.CKR_ATTRIBUTE_VALUE_INVALID) {
			_, err = d.GenerateKey(h, mechanism, t.template(id)) // not every token has that
		}
		info = infoOf(id, true)
		return err
	})
	if err != nil {
		return KeyInfo{}, err
	}
	return info, nil
}

// template is of a key that encrypts and decrypts, and that nobody reads.
func (t *Token) template(id keyID) []*cryptoki.Attribute {
	var template []*cryptoki.Attribute
	for _, a := range []struct {
		name  uint
		value any
	}{
		{cryptoki.CKA_CLASS, cryptoki.CKO_SECRET_KEY}, {cryptoki.CKA_KEY_TYPE, cryptoki.CKK_AES}, {cryptoki.CKA_VALUE_LEN, keySize},
		{cryptoki.CKA_TOKEN, true}, {cryptoki.CKA_PRIVATE, true}, {cryptoki.CKA_SENSITIVE, true}, {cryptoki.CKA_EXTRACTABLE, false},
		{cryptoki.CKA_ENCRYPT, true}, {cryptoki.CKA_DECRYPT, true},
		{cryptoki.CKA_WRAP, false}, {cryptoki.CKA_UNWRAP, false}, {cryptoki.CKA_DERIVE, false}, {cryptoki.CKA_SIGN, false}, {cryptoki.CKA_VERIFY, false},
		{cryptoki.CKA_LABEL, t.config.Key}, {cryptoki.CKA_ID, id[:]},
	} {
		template = append(template, cryptoki.NewAttribute(a.name, a.value))
	}
	return template
}

// administer has f use a session of its own.
func (t *Token) administer(ctx context.Context, what string, flags uint, f func(driver, cryptoki.SessionHandle) error) error {
	s, err := t.enter(ctx, flags, 1)
	if err != nil {
		return err
	}
	h := <-s.free
	err = f(s.module.driver, h)
	if code := cryptoki.Error(0); errors.As(err, &code) {
		err = fmt.Errorf("%s cannot %s: %w", t, what, explain(err))
	}
	s.free <- h
	return errors.Join(err, s.Close(context.WithoutCancel(ctx)))
}
