package side

import (
	"bytes"
	"context"
	"fmt"
	"iter"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage/value"
)

// The sides, as results call them.
const (
	Cipher       = "cipher"        // AES-256-GCM alone, the floor of all
	CipherRandom = "cipher-random" // the same under a random nonce, the floor of aesgcm
	CipherSeed   = "cipher-seed"   // the floor of source type 1

	AtrestCounter = "atrest-counter"
	AtrestSeed    = "atrest-seed"
	AtrestAESGCM  = "atrest-aesgcm"

	Kube       = "kube"     // KMS v2 as it comes: source type 1, and the file is not followed
	KubeDEK    = "kube-dek" // source type 0, which nobody can have any more: for reference
	KubeAESGCM = "kube-aesgcm"
)

var secrets = schema.GroupResource{Resource: "secrets"}

// Side is one way of keeping values encrypted. Its Transformer is safe for
// concurrent use.
type Side struct {
	Name string
	value.Transformer

	// LookAhead is shown the stored values of a server that starts, in the
	// order in which it will read them; nil for a side that does not look ahead.
	LookAhead func(context.Context, iter.Seq[[]byte])

	stop  func()
	renew func(context.Context) error
}

// Renew sets the side up anew if it would otherwise keep more and more, which
// is not what everybody beside it should be measured with. Not while it is used.
func (s *Side) Renew(ctx context.Context) error {
	if s.renew == nil {
		return nil
	}
	s.Close()
	return s.renew(ctx)
}

// Close takes the side down. Closing twice is harmless; so is closing none.
func (s *Side) Close() {
	if stop := s.stop; stop != nil {
		s.stop = nil
		stop()
	}
}

// Key is an etcd key. Asking for its bytes costs nothing, so that a side that
// asks twice pays no more than one that asks once.
func Key(name string) value.Context {
	return value.DefaultContext("/registry/secrets/default/" + name)
}

// Stored is the value that the side writes for plaintext. It is an error if the
// side does not read its own value back.
func (s *Side) Stored(ctx context.Context, plaintext []byte, at value.Context) ([]byte, error) {
	stored, err := s.TransformToStorage(ctx, plaintext, at)
	if err != nil {
		return nil, fmt.Errorf("%s: write: %w", s.Name, err)
	}
	return stored, s.Reads(ctx, stored, plaintext, at)
}

// Reads reports whether the side reads plaintext out of a stored value.
func (s *Side) Reads(ctx context.Context, stored, plaintext []byte, at value.Context) error {
	out, _, err := s.TransformFromStorage(ctx, stored, at)
	if err != nil {
		return fmt.Errorf("%s: read: %w", s.Name, err)
	}
	if !bytes.Equal(out, plaintext) {
		return fmt.Errorf("%s reads another value than was written", s.Name)
	}
	return nil
}
