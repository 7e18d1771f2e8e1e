package main

import (
	"bytes"
	"fmt"

	"github.com/kube-atrest/atrest/internal/stored"
)

// shownBytes is how much of a ciphertext is printed: enough to see that there is nothing
// to read.
const shownBytes = 16

// sealed is what etcd holds for one object, as far as it can be told without a key.
type sealed struct {
	prefix  string
	payload []byte
	keyID   string
}

// look describes a value as it lies in etcd. It fails for a value that is not KMS v2, or
// that contains the plaintext all the same.
func look(value, plaintext []byte) (sealed, error) {
	if bytes.Contains(value, plaintext) {
		return sealed{}, fmt.Errorf("etcd holds the value in the clear")
	}
	format, name, ok := stored.Identify(value)
	if !ok || format != stored.KMSv2 {
		return sealed{}, fmt.Errorf("etcd does not hold a value that begins with %s", stored.KMSv2.Prefix)
	}
	prefix := format.PrefixFor(name)
	payload := bytes.TrimPrefix(value, []byte(prefix))
	object, err := stored.Parse(payload)
	if err != nil {
		return sealed{}, fmt.Errorf("read the stored object: %w", err)
	}
	return sealed{prefix: prefix, payload: payload, keyID: object.Source.KeyID}, nil
}

// String is the readable prefix, the first bytes of what follows it, and the size of the
// whole.
func (s sealed) String() string {
	shown := s.payload[:min(shownBytes, len(s.payload))]
	return fmt.Sprintf("%s % x ... (%d bytes)", s.prefix, shown, len(s.prefix)+len(s.payload))
}
