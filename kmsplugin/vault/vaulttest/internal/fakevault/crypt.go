package fakevault

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// encrypt wraps what the body has, under the version that it asks for.
func (k *key) encrypt(b body) answer {
	plaintext, err := base64.StdEncoding.DecodeString(b.text("plaintext"))
	number, numeric := b.number("key_version")
	switch {
	case !b.has("plaintext"):
		return invalid("missing plaintext to encrypt")
	case err != nil:
		return invalid(err.Error())
	case numeric != nil:
		return invalid(numeric.Error())
	}
	aad, refused := k.associated(b)
	if refused != nil {
		return *refused
	}
	if number == 0 {
		number = k.latest
	}
	switch {
	case k.kind == "ed25519":
		return invalid("message encryption not supported for key type " + k.kind)
	case number < 0:
		return invalid("requested version for encryption is negative")
	case number > k.latest:
		return invalid("requested version for encryption is higher than the latest key version")
	case number < k.encrypts:
		return invalid("requested version for encryption is less than the minimum encryption key version")
	case number < k.decrypts:
		return invalid("no such key version")
	case k.derived && b.text("context") == "":
		return invalid("missing 'context' for key derivation; the key was created using a derived key, which means additional, per-request information must be included in order to perform operations with the key")
	}
	return ok(map[string]any{"ciphertext": k.seal(number, plaintext, aad), "key_version": number})
}

func (k *key) seal(number int, plaintext, aad []byte) string {
	sealed := k.versions[number].aead().Seal(nil, nil, plaintext, aad)
	return fmt.Sprintf("vault:v%d:%s", number, base64.StdEncoding.EncodeToString(sealed))
}

// associated is the data that is bound to the ciphertext, or why there can be none.
func (k *key) associated(b body) ([]byte, *answer) {
	text := b.text("associated_data")
	if text == "" {
		return nil, nil
	}
	if !k.authenticates() {
		refused := invalid(fmt.Sprintf("'[0].associated_data' provided for non-AEAD cipher suite %s", k.kind))
		return nil, &refused
	}
	aad, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		refused := failed(http.StatusInternalServerError, "1 error occurred:\n\t* unable to get associated_data/additional_data from factory[0]: "+err.Error()+"\n\n")
		return nil, &refused
	}
	return aad, nil
}

func (k *key) decrypt(b body) answer {
	_, plaintext, refused := k.open(b)
	if refused != nil {
		return *refused
	}
	return ok(map[string]any{"plaintext": base64.StdEncoding.EncodeToString(plaintext)})
}

// rewrap is a decrypt and an encrypt with the latest version.
func (k *key) rewrap(b body) answer {
	aad, plaintext, refused := k.open(b)
	if refused != nil {
		return *refused
	}
	return ok(map[string]any{"ciphertext": k.seal(k.latest, plaintext, aad), "key_version": k.latest})
}

func (k *key) open(b body) (aad, plaintext []byte, refused *answer) {
	number, sealed, why := k.parse(b.text("ciphertext"))
	if why != "" {
		a := invalid(why)
		return nil, nil, &a
	}
	if aad, refused = k.associated(b); refused != nil {
		return nil, nil, refused
	}
	if k.derived && b.text("context") == "" {
		a := invalid("missing 'context' for key derivation; the key was created using a derived key, which means additional, per-request information must be included in order to perform operations with the key")
		return nil, nil, &a
	}
	aead := k.versions[number].aead()
	if len(sealed) < 12 {
		a := invalid("invalid ciphertext length")
		return nil, nil, &a
	}
	plaintext, err := aead.Open(nil, nil, sealed, aad)
	if err != nil {
		a := invalid("cipher: message authentication failed")
		return nil, nil, &a
	}
	return aad, plaintext, nil
}

// parse reads "vault:v1:" and the bytes after it, or says why it cannot.
func (k *key) parse(ciphertext string) (number int, sealed []byte, why string) {
	rest, prefixed := strings.CutPrefix(ciphertext, "vault:v")
	if !prefixed {
		return 0, nil, "invalid ciphertext: no prefix"
	}
	digits, text, whole := strings.Cut(rest, ":")
	if !whole {
		return 0, nil, "invalid ciphertext: wrong number of fields"
	}
	number, err := strconv.Atoi(digits)
	if err != nil {
		return 0, nil, "invalid ciphertext: version number could not be decoded"
	}
	number = max(number, 1) // 0 was the first one, once
	switch {
	case number > k.latest:
		return 0, nil, "invalid ciphertext: version is too new"
	case number < k.decrypts:
		return 0, nil, "ciphertext or signature version is disallowed by policy (too old)"
	}
	if sealed, err = base64.StdEncoding.DecodeString(text); err != nil {
		return 0, nil, "invalid ciphertext: could not decode base64"
	}
	return number, sealed, ""
}
