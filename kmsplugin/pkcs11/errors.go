//go:build cgo

package pkcs11

import (
	"errors"
	"fmt"

	cryptoki "github.com/miekg/pkcs11"

	"github.com/kube-atrest/atrest/kmsplugin"
)

// errAway is that the token, or what is logged in there, is gone: the session is over, and
// another one is opened.
var errAway = fmt.Errorf("%w: the token is away", kmsplugin.ErrUnavailable)

// errNotThere is that the token is away as its slot tells, and not one session of several.
var errNotThere = fmt.Errorf("%w, as its slot tells", errAway)

// errOver is for calls of a session that is over already.
var errOver = fmt.Errorf("%w: the session with the token is over, and another one is opened when that can be done", errAway)

// errHang is for who would have to wait for calls that do not return.
var errHang = fmt.Errorf("%w: calls into the module have not returned, and nobody can end them: restart the plugin if the device is back", kmsplugin.ErrUnavailable)

// errLast is that the token has no other session than the one there is.
var errLast = errors.New("the token has no other session")

// The library has no names for these of PKCS#11 2.40 and 3.0.
const (
	codeProhibited  = 0x1B // CKR_ACTION_PROHIBITED
	codeDoesNotOpen = 0x35 // CKR_AEAD_DECRYPT_FAILED
)

// verdict is what an answer of the module means: a class of the kit, and what to do.
type verdict struct {
	class  error
	remedy string
}

var verdicts = map[uint]verdict{
	cryptoki.CKR_DEVICE_REMOVED:           {errAway, "connect it"},
	cryptoki.CKR_TOKEN_NOT_PRESENT:        {errAway, "connect it"},
	cryptoki.CKR_TOKEN_NOT_RECOGNIZED:     {errAway, "connect it, or look at what its maker's tools say"},
	cryptoki.CKR_SLOT_ID_INVALID:          {errAway, "connect it"},
	cryptoki.CKR_SESSION_HANDLE_INVALID:   {errAway, "another session is opened"},
	cryptoki.CKR_SESSION_CLOSED:           {errAway, "another session is opened"},
	cryptoki.CKR_USER_NOT_LOGGED_IN:       {errAway, "another session logs in"},
	cryptoki.CKR_CRYPTOKI_NOT_INITIALIZED: {errAway, "the module is initialised again"},

	cryptoki.CKR_PIN_INCORRECT:            {kmsplugin.ErrDenied, "write the right PIN into the file; this one is not tried again, as tokens lock after some wrong ones"},
	cryptoki.CKR_PIN_INVALID:              {kmsplugin.ErrDenied, "write the right PIN into the file"},
	cryptoki.CKR_PIN_LEN_RANGE:            {kmsplugin.ErrDenied, "write the right PIN into the file"},
	cryptoki.CKR_PIN_EXPIRED:              {kmsplugin.ErrDenied, "set a new PIN, and write it into the file"},
	cryptoki.CKR_PIN_LOCKED:               {kmsplugin.ErrDenied, "have the security officer unlock the PIN"},
	cryptoki.CKR_USER_PIN_NOT_INITIALIZED: {kmsplugin.ErrDenied, "have the security officer set the user's PIN"},
	cryptoki.CKR_FUNCTION_REJECTED:        {kmsplugin.ErrDenied, "look at the token's policy"},
	codeProhibited:                        {kmsplugin.ErrDenied, "look at the token's policy"},

	cryptoki.CKR_SESSION_COUNT: {kmsplugin.ErrThrottled, "the token has no more sessions: use fewer, or end those of others"},
	cryptoki.CKR_DEVICE_MEMORY: {kmsplugin.ErrThrottled, "the token has no more memory: end sessions, or delete what is not needed"},
	cryptoki.CKR_HOST_MEMORY:   {kmsplugin.ErrThrottled, "the machine has no more memory"},

	cryptoki.CKR_KEY_FUNCTION_NOT_PERMITTED: {kmsplugin.ErrKeyDisabled, "the token does not let the key do this: look at its attributes"},
	cryptoki.CKR_KEY_TYPE_INCONSISTENT:      {kmsplugin.ErrKeyDisabled, "the key is not of AES: rotate to make one that is"},
	cryptoki.CKR_KEY_SIZE_RANGE:             {kmsplugin.ErrKeyDisabled, "the key has not 256 bits: rotate to make one that has"},
	cryptoki.CKR_MECHANISM_INVALID:          {kmsplugin.ErrKeyDisabled, "the token has no AES-GCM: take one that has"},
}

// explain gives an answer of the module its class. One that says nothing, as
// CKR_GENERAL_ERROR does, is an outage.
func explain(err error) error {
	var code cryptoki.Error
	if !errors.As(err, &code) || hasClass(err) {
		return err
	}
	v, known := verdicts[uint(code)]
	if !known {
		return fmt.Errorf("%w: %w", kmsplugin.ErrUnavailable, err)
	}
	return fmt.Errorf("%w: %w: %s", v.class, err, v.remedy)
}

func hasClass(err error) bool {
	for _, class := range []error{kmsplugin.ErrUnavailable, kmsplugin.ErrDenied, kmsplugin.ErrThrottled, kmsplugin.ErrKeyDisabled, kmsplugin.ErrUnknownKey, kmsplugin.ErrInvalid} {
		if errors.Is(err, class) {
			return true
		}
	}
	return false
}

// saysNothing reports whether a module may mean anything by an answer, as SoftHSM means by
// CKR_GENERAL_ERROR that a token is away, and that a ciphertext does not open. That one does not
// open is no proof that it is damaged, either: the handle may be another key's by now.
func saysNothing(err error) bool {
	var code cryptoki.Error
	if !errors.As(err, &code) {
		return false
	}
	_, known := verdicts[uint(code)]
	return !known
}

// isOfCiphertext reports whether an answer can be about the ciphertext: three that are, and what
// tokens say that have no better one.
func isOfCiphertext(err error) bool {
	return isCode(err, cryptoki.CKR_ENCRYPTED_DATA_INVALID, cryptoki.CKR_ENCRYPTED_DATA_LEN_RANGE, codeDoesNotOpen, cryptoki.CKR_GENERAL_ERROR, cryptoki.CKR_FUNCTION_FAILED)
}

// isOfKey reports whether the token does not do something with what a handle is: it may be anything by
// now.
func isOfKey(err error) bool {
	return isCode(err, cryptoki.CKR_KEY_FUNCTION_NOT_PERMITTED, cryptoki.CKR_KEY_TYPE_INCONSISTENT, cryptoki.CKR_KEY_SIZE_RANGE)
}

// hasCode reports whether the module answered.
func hasCode(err error) bool {
	var code cryptoki.Error
	return errors.As(err, &code)
}

func isAway(err error) bool { return errors.Is(explain(err), errAway) }

// hasNoMore reports whether C_OpenSession failed as there are no more sessions, for which tokens
// have several answers.
func hasNoMore(err error) bool {
	return isCode(err, cryptoki.CKR_SESSION_COUNT, cryptoki.CKR_DEVICE_MEMORY, cryptoki.CKR_HOST_MEMORY)
}

func isCode(err error, codes ...uint) bool {
	var code cryptoki.Error
	if !errors.As(err, &code) {
		return false
	}
	for _, one := range codes {
		if uint(code) == one {
			return true
		}
	}
	return false
}
