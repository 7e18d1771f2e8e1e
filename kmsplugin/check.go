package kmsplugin

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation"
)

// check holds a wrapped key against the limits, the same ones whether it came
// from the Service or over the socket.
func (s Sealed) check() error {
	if err := checkLength("ciphertext", len(s.Ciphertext), MaxCiphertext); err != nil {
		return err
	}
	if err := checkKeyID(s.KeyID); err != nil {
		return err
	}
	return checkAnnotations(s.Annotations)
}

func checkKeyID(keyID string) error {
	if err := checkLength("key_id", len(keyID), MaxKeyID); err != nil {
		return err
	}
	if !utf8.ValidString(keyID) {
		return errors.New("key_id is not valid UTF-8")
	}
	return nil
}

func checkPlaintext(plaintext []byte) error {
	return checkLength("plaintext", len(plaintext), MaxPlaintext)
}

func checkUID(uid string) error {
	if len(uid) > MaxUID {
		return fmt.Errorf("uid is %d bytes, more than %d", len(uid), MaxUID)
	}
	return nil
}

func checkLength(what string, length, limit int) error {
	if length == 0 {
		return fmt.Errorf("%s is empty", what)
	}
	if length > limit {
		return fmt.Errorf("%s is %d bytes, more than %d", what, length, limit)
	}
	return nil
}

func checkAnnotations(annotations map[string][]byte) error {
	total := 0
	for name, value := range annotations {
		total += len(name) + len(value)
	}
	if total > MaxAnnotations {
		return fmt.Errorf("annotations are %d bytes, more than %d", total, MaxAnnotations)
	}
	for _, name := range slices.Sorted(maps.Keys(annotations)) {
		// The apiserver's own rule: any other would let names through that it
		// then refuses to store.
		if len(validation.IsFullyQualifiedDomainName(nil, name)) > 0 {
			return fmt.Errorf("annotation name %.64q is not a fully qualified domain name such as key.example.com", name)
		}
	}
	return nil
}
