//go:build cgo

package pkcs11

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"time"

	cryptoki "github.com/miekg/pkcs11"

	"github.com/kube-atrest/atrest/internal/hashed"
	"github.com/kube-atrest/atrest/kmsplugin"
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

// Create has the token make the first key of the label. It is an error if there is one, or anything
// else of the label that is not as it has to be.
func (t *Token) Create(ctx context.Context) (KeyInfo, error) {
	return t.generate(ctx, func(found *ring) error {
		switch {
		case len(found.ids) > 0:
			return fmt.Errorf("%s has %d versions of the key %q: rotate to make another", t, len(found.ids), t.config.Key)
		case !errors.Is(found.problem, ErrNoKey): // nothing would be wrapped under it
			return found.problem
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
	return administer(ctx, t, "look for its keys", 0, func(l *line) ([]KeyInfo, error) {
		found, err := l.lookTwice(ctx, t)
		if err != nil {
			return nil, err
		}
		var infos []KeyInfo
		for i, id := range found.ids {
			infos = append(infos, infoOf(id, i == len(found.ids)-1))
		}
		return infos, found.problem
	})
}

func (t *Token) generate(ctx context.Context, may func(*ring) error) (KeyInfo, error) {
	return administer(ctx, t, "make a key", cryptoki.CKF_RW_SESSION, func(l *line) (KeyInfo, error) {
		found, err := l.lookTwice(ctx, t)
		if err == nil {
			err = may(found)
		}
		if err != nil {
			return KeyInfo{}, err
		}
		var last uint32
		if n := len(found.ids); n > 0 {
			last = found.ids[n-1].counter()
		}
		if last == math.MaxUint32 {
			return KeyInfo{}, fmt.Errorf("%w: %s: version %s has the highest number there is, so that none comes after it: make a key of another label, serve that beside this one, and go over to it as to another plugin", ErrMistake, t, found.ids[len(found.ids)-1].label())
		}
		id := newKeyID(last+1, t.config.Clock.Now())
		if err := l.make(t, id); err != nil {
			return KeyInfo{}, err
		}
		return infoOf(id, true), nil
	})
}

// make has the token make a key.
func (l *line) make(t *Token, id keyID) error {
	mechanism := []*cryptoki.Mechanism{cryptoki.NewMechanism(cryptoki.CKM_AES_KEY_GEN, nil)}
	fixed := cryptoki.NewAttribute(cryptoki.CKA_MODIFIABLE, false) // a CKA_ID that is changed is a key_id that is lost
	made, err := l.driver.GenerateKey(l.handle, mechanism, append(t.template(id), fixed))
	if isCode(err, cryptoki.CKR_TEMPLATE_INCONSISTENT, cryptoki.CKR_ATTRIBUTE_TYPE_INVALID, cryptoki.CKR_ATTRIBUTE_VALUE_INVALID) {
		made, err = l.driver.GenerateKey(l.handle, mechanism, t.template(id)) // not every token has that
	}
	what, mayBe := "may have made", isAway(err) || saysNothing(err)
	if err == nil {
		err = object{l, made}.isAsItShould(t, id)
		what, mayBe = "made", hasCode(err)
	}
	if mayBe { // the plugins wrap under a key that is there, whatever is said here
		return fmt.Errorf("%s %s version %s, and then failed: look with \"list\": if it is there it wraps from now on, and the token is to be backed up: %w", t, what, id.label(), explain(err))
	}
	return err
}

// isAsItShould is an error if a key that was made is another one than was asked for.
func (o object) isAsItShould(t *Token, id keyID) error {
	is, err := o.examine(t)
	if err == nil && is != id {
		err = badKey{what: fmt.Sprintf("its CKA_ID is not the %x that was asked for", id[:])}
	}
	var bad badKey
	if errors.As(err, &bad) {
		return fmt.Errorf("%w: %w: %s made a key that cannot be used, which \"list\" shows: delete it: %w", kmsplugin.ErrKeyDisabled, ErrMistake, t, bad)
	}
	return err
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

// patience is how long a command waits for the token.
const patience = time.Minute

// administer has f use a session of its own. Who calls it has an answer when ctx ends, and after a
// minute; what the module does then goes on.
func administer[T any](ctx context.Context, t *Token, what string, flags uint, f func(*line) (T, error)) (T, error) {
	timer := t.config.Clock.NewTimer(patience) // before what it is for begins
	defer timer.Stop()
	done := make(chan answer[T], 1)
	go func() {
		value, err := inSession(ctx, t, what, flags, f)
		done <- answer[T]{value: value, err: err}
	}()
	why := fmt.Errorf("it has not answered for %s", patience)
	select {
	case a := <-done:
		return a.value, a.err
	case <-timer.C():
	case <-ctx.Done():
		why = context.Cause(ctx)
	}
	var none T
	return none, fmt.Errorf("%w: %s did not %s in time, and may do so still: %w", kmsplugin.ErrUnavailable, t, what, why)
}

func inSession[T any](ctx context.Context, t *Token, what string, flags uint, f func(*line) (T, error)) (value T, err error) {
	s, err := t.enter(ctx, flags, 1)
	if err != nil {
		return value, err
	}
	l := s.pool.now(want{})
	value, err = f(l)
	if hasCode(err) && !hasClass(err) {
		err = fmt.Errorf("%s cannot %s: %w", t, what, explain(err))
	}
	s.pool.put(l)
	return value, errors.Join(err, s.Close(context.WithoutCancel(ctx)))
}
