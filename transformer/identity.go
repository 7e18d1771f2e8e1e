package transformer

import (
	"context"
	"errors"

	"k8s.io/apiserver/pkg/storage/value"

	"github.com/kube-atrest/atrest/internal/stored"
)

var errEncrypted = errors.New("identity: the value is encrypted")

type identity struct{}

var _ Provider = identity{}

// Identity stores values as they are. It refuses to read what begins with
// "k8s:enc:", so that ciphertext never passes for an object.
func Identity() Provider { return identity{} }

// Seal returns plaintext itself when there is no prefix to put before it, as
// there never is in a chain that kube-apiserver can read.
func (identity) Seal(_ context.Context, prefix string, plaintext []byte, _ value.Context) ([]byte, error) {
	if prefix == "" {
		return plaintext, nil
	}
	return append([]byte(prefix), plaintext...), nil
}

// Open returns payload itself.
func (identity) Open(_ context.Context, payload []byte, _ value.Context) ([]byte, bool, error) {
	if stored.IsEncrypted(payload) {
		return nil, false, errEncrypted
	}
	return payload, false, nil
}

func (identity) String() string { return "identity" }
