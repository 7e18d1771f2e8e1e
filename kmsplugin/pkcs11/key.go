//go:build cgo

package pkcs11

import (
	"encoding/binary"
	"fmt"

	cryptoki "github.com/miekg/pkcs11"
)

const keySize = 32 // bytes

// keys is a template of what is looked for.
func (t *Token) keys() []*cryptoki.Attribute {
	return []*cryptoki.Attribute{
		cryptoki.NewAttribute(cryptoki.CKA_CLASS, cryptoki.CKO_SECRET_KEY),
		cryptoki.NewAttribute(cryptoki.CKA_TOKEN, true),
		cryptoki.NewAttribute(cryptoki.CKA_LABEL, t.config.Key),
	}
}

// A badKey is a key that nothing is wrapped under, or beside.
type badKey struct {
	what    string
	unwraps bool
}

func (b badKey) Error() string { return b.what }

// examine tells which version an object is, and what is wrong with it.
func (o object) examine(t *Token) (keyID, error) {
	which := []uint{cryptoki.CKA_ID, cryptoki.CKA_KEY_TYPE}
	what := append(which, cryptoki.CKA_VALUE_LEN, cryptoki.CKA_PRIVATE, cryptoki.CKA_SENSITIVE, cryptoki.CKA_EXTRACTABLE, cryptoki.CKA_ENCRYPT, cryptoki.CKA_DECRYPT)
	a, err := o.attributes(what...)
	if isCode(err, cryptoki.CKR_ATTRIBUTE_TYPE_INVALID, cryptoki.CKR_ATTRIBUTE_SENSITIVE) { // as a key of another type has not all of them
		if other, failed := o.attributes(which...); failed == nil && number(other[cryptoki.CKA_KEY_TYPE]) != cryptoki.CKK_AES {
			a, err = other, nil
		}
	}
	if err != nil {
		return keyID{}, err
	}
	raw := a[cryptoki.CKA_ID]
	id, ours := parseKeyID(raw)
	may := func(attribute uint) bool { return isTrue(a[attribute]) }
	switch {
	case number(a[cryptoki.CKA_KEY_TYPE]) != cryptoki.CKK_AES:
		return id, badKey{what: fmt.Sprintf("the one with CKA_ID %.64x is not of AES: give it another label", raw)}
	case !ours:
		return id, badKey{what: fmt.Sprintf("the one with CKA_ID %.64x was not made by \"atrest-kms-plugin pkcs11 create\" or \"rotate\", and a key that is made again could have the same: give it another label", raw)}
	case number(a[cryptoki.CKA_VALUE_LEN]) != keySize:
		return id, badKey{what: fmt.Sprintf("version %s has %d bytes, and not %d: give it another label", id.label(), number(a[cryptoki.CKA_VALUE_LEN]), keySize)}
	case !may(cryptoki.CKA_DECRYPT):
		return id, badKey{what: fmt.Sprintf("version %s may not decrypt: set CKA_DECRYPT, or give it another label once nothing needs it", id.label())}
	case !may(cryptoki.CKA_ENCRYPT):
		return id, badKey{unwraps: true, what: fmt.Sprintf("version %s may not encrypt: set CKA_ENCRYPT", id.label())}
	case t.config.AllowExtractable:
		return id, nil
	case !may(cryptoki.CKA_PRIVATE):
		return id, badKey{unwraps: true, what: fmt.Sprintf("version %s is used without a PIN by whoever reaches the token (CKA_PRIVATE is false): say --allow-extractable, rotate, and delete it once nothing needs it", id.label())}
	case !may(cryptoki.CKA_SENSITIVE) || may(cryptoki.CKA_EXTRACTABLE):
		return id, badKey{unwraps: true, what: fmt.Sprintf("version %s can be read from the token (CKA_SENSITIVE is %t and CKA_EXTRACTABLE %t): set them to true and false and rotate, or say --allow-extractable", id.label(), may(cryptoki.CKA_SENSITIVE), may(cryptoki.CKA_EXTRACTABLE))}
	}
	return id, nil
}

func isTrue(value []byte) bool { return len(value) == 1 && value[0] != 0 }

// number reads a CK_ULONG, or is the largest one there is.
func number(value []byte) uint64 {
	switch len(value) {
	case 4:
		return uint64(binary.NativeEndian.Uint32(value))
	case 8:
		return binary.NativeEndian.Uint64(value)
	}
	return ^uint64(0)
}
