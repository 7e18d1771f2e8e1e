package conformance

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	kmsapi "k8s.io/kms/apis/v2"
)

func refusalChecks() []Check {
	return []Check{{
		ID:      "refuses-unknown-key-id",
		Says:    "Decrypt refuses a ciphertext of its own under a key_id that it never named.",
		Source:  "KEP-3299: the key_id says which key decrypts",
		Suffers: "the key_id stored beside a value proves nothing: no count of them tells whether an old key may go.",
		run:     refusesUnknownKeyID,
	}, {
		ID:      "refuses-foreign",
		Says:    "Decrypt refuses what it never encrypted.",
		Source:  "KEP-3299",
		Suffers: "who can write to etcd chooses a data key, and with it what is read.",
		run:     refusesForeign,
	}, {
		ID:      "refuses-damaged",
		Says:    "Decrypt refuses a ciphertext with any bit changed, cut off or added.",
		Source:  "KEP-3299; NIST SP 800-38D: what is not authentic has no plaintext",
		Suffers: "a damaged value is opened with a wrong key: the error is seen later, elsewhere, or never.",
		run:     refusesDamaged,
	}, {
		ID:      "refuses-empty",
		Says:    "An empty ciphertext is refused, and neither that nor an empty plaintext or key_id makes the plugin panic.",
		Source:  "aws-encryption-provider#168",
		Suffers: "one damaged value in etcd takes the plugin down, and with it every value that needs it.",
		run:     refusesEmpty,
	}, {
		ID:      "refuses-oversized",
		Says:    "A ciphertext of more than 1024 bytes is refused, and neither that nor a key_id nor annotations of up to 8 MiB make the plugin panic.",
		Source:  "KEP-3299",
		Suffers: "one damaged value in etcd takes the plugin down, and with it every value that needs it.",
		run:     refusesOversized,
	}}
}

// opening is a ciphertext that is decrypted as it is: of a plugin that decrypts nothing it
// is not known what it refuses.
func (s *session) opening(ctx context.Context) (*sealed, error) {
	w, err := s.wrap(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.opens(ctx, w); err != nil {
		return nil, fmt.Errorf("what is refused is not known: %w", err)
	}
	return w, nil
}

// refused fails unless Decrypt refuses what can never be decrypted, and the plugin is
// there afterwards.
func (s *session) refused(ctx context.Context, what string, w *kmsapi.EncryptResponse) error {
	plaintext, err := s.decrypt(ctx, w)
	if err == nil {
		return failed("Decrypt takes %s, and answers with %d bytes", what, len(plaintext))
	}
	if err := survived(what, err); err != nil {
		return err
	}
	return s.isThere(ctx, what)
}

// survived fails if an error is not a refusal, but how a plugin ends or hangs.
func survived(what string, err error) error {
	switch code := status.Code(err); {
	case code == codes.Unavailable || code == codes.DeadlineExceeded || code == codes.Canceled:
		return failed("%s is not refused: the plugin breaks down, hangs, or says to try again: %v", what, err)
	case strings.Contains(strings.ToLower(err.Error()), "panic"):
		return failed("%s makes the plugin panic: %v", what, err)
	}
	return nil
}

func (s *session) isThere(ctx context.Context, after string) error {
	if _, err := s.status(ctx); err != nil {
		return failed("after %s: %v", after, err)
	}
	return nil
}

func with(w *sealed, ciphertext []byte) *kmsapi.EncryptResponse {
	return &kmsapi.EncryptResponse{Ciphertext: ciphertext, KeyId: w.KeyId, Annotations: w.Annotations}
}

func underKeyID(w *sealed, keyID string) *kmsapi.EncryptResponse {
	return &kmsapi.EncryptResponse{Ciphertext: w.Ciphertext, KeyId: keyID, Annotations: w.Annotations}
}

func refusesUnknownKeyID(ctx context.Context, s *session) error {
	w, err := s.opening(ctx)
	if err != nil {
		return err
	}
	return s.refused(ctx, "a key_id that it never named", underKeyID(w, "of-nobody-"+uuid.NewString()))
}

func refusesForeign(ctx context.Context, s *session) error {
	w, err := s.opening(ctx)
	if err != nil {
		return err
	}
	for n := range 8 {
		what := fmt.Sprintf("random bytes (try %d)", n+1)
		if err := s.refused(ctx, what, with(w, random(len(w.Ciphertext)))); err != nil {
			return err
		}
	}
	return nil
}

func refusesDamaged(ctx context.Context, s *session) error {
	w, err := s.opening(ctx)
	if err != nil {
		return err
	}
	for i := range w.Ciphertext {
		damaged := bytes.Clone(w.Ciphertext)
		damaged[i] ^= 1
		if err := s.refusedOr(ctx, w, fmt.Sprintf("a ciphertext with byte %d of %d changed", i+1, len(damaged)), with(w, damaged)); err != nil {
			return err
		}
	}
	for _, n := range []int{1, len(w.Ciphertext) / 2, len(w.Ciphertext) - 1} {
		if err := s.refused(ctx, fmt.Sprintf("the first %d of %d bytes of a ciphertext", n, len(w.Ciphertext)), with(w, w.Ciphertext[:n])); err != nil {
			return err
		}
	}
	longer := append(bytes.Clone(w.Ciphertext), 0)
	return s.refused(ctx, "a ciphertext with a byte behind it", with(w, longer))
}

// refusedOr is for a changed byte that may mean the same: a letter's case, or bits that
// base64 does not use.
func (s *session) refusedOr(ctx context.Context, w *sealed, what string, damaged *kmsapi.EncryptResponse) error {
	plaintext, err := s.decrypt(ctx, damaged)
	if err == nil && bytes.Equal(plaintext, w.plaintext) && isText(w.Ciphertext) {
		return nil
	}
	if err == nil {
		return failed("Decrypt takes %s, and answers with %d bytes", what, len(plaintext))
	}
	if err := survived(what, err); err != nil {
		return err
	}
	return s.isThere(ctx, what)
}

// isText reports whether a ciphertext is a text, of which some bits may say nothing.
func isText(ciphertext []byte) bool {
	for _, b := range ciphertext {
		if b < ' ' || b > '~' {
			return false
		}
	}
	return true
}

func refusesEmpty(ctx context.Context, s *session) error {
	w, err := s.opening(ctx)
	if err != nil {
		return err
	}
	if err := s.refused(ctx, "an empty ciphertext", with(w, nil)); err != nil {
		return err
	}
	if err := s.refused(ctx, "an empty request", &kmsapi.EncryptResponse{}); err != nil {
		return err
	}
	if err := s.survives(ctx, "an empty key_id", underKeyID(w, "")); err != nil {
		return err
	}
	if _, err := s.encrypt(ctx, nil); err != nil { // an answer is no harm
		if err := survived("an empty plaintext", err); err != nil {
			return err
		}
	}
	return s.isThere(ctx, "an empty plaintext")
}

// survives is refused for what may also be answered: a plugin that takes any key_id is
// found by the check of that.
func (s *session) survives(ctx context.Context, what string, w *kmsapi.EncryptResponse) error {
	if _, err := s.decrypt(ctx, w); err != nil {
		if err := survived(what, err); err != nil {
			return err
		}
	}
	return s.isThere(ctx, what)
}

func refusesOversized(ctx context.Context, s *session) error {
	w, err := s.opening(ctx)
	if err != nil {
		return err
	}
	for _, n := range []int{maxCiphertext + 1, 64 << 10, 1 << 20, 8 << 20} {
		long := append(bytes.Clone(w.Ciphertext), make([]byte, max(1, n-len(w.Ciphertext)))...)
		if err := s.refused(ctx, fmt.Sprintf("a ciphertext of %d bytes", len(long)), with(w, long)); err != nil {
			return err
		}
		if err := s.survives(ctx, fmt.Sprintf("a key_id of %d bytes", n), underKeyID(w, strings.Repeat("k", n))); err != nil {
			return err
		}
		annotated := &kmsapi.EncryptResponse{Ciphertext: w.Ciphertext, KeyId: w.KeyId, Annotations: map[string][]byte{"of-nobody.example.com": long}}
		if err := s.survives(ctx, fmt.Sprintf("an annotation of %d bytes", len(long)), annotated); err != nil {
			return err
		}
	}
	return nil
}
