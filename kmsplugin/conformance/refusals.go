package conformance

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

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
		run:     refusing(refusesUnknownKeyID),
	}, {
		ID:      "refuses-foreign",
		Says:    "Decrypt refuses what it never encrypted.",
		Source:  "KEP-3299",
		Suffers: "who can write to etcd chooses a data key, and with it what is read.",
		run:     refusing(refusesForeign),
	}, {
		ID:      "refuses-damaged",
		Says:    "Decrypt refuses a ciphertext with any byte changed, cut off or added, but for a text that it opens to the same, and opens none to something else for an annotation that is.",
		Source:  "KEP-3299; NIST SP 800-38D: what is not authentic has no plaintext",
		Suffers: "a damaged value is opened with a wrong key: the error is seen later, elsewhere, or never.",
		run:     refusing(refusesDamaged),
	}, {
		ID:      "refuses-empty",
		Says:    "An empty ciphertext is refused, and neither that nor an empty plaintext or key_id makes the plugin panic.",
		Source:  "aws-encryption-provider#168",
		Suffers: "one damaged value in etcd takes the plugin down, and with it every value that needs it.",
		run:     refusing(refusesEmpty),
	}, {
		ID:      "refuses-oversized",
		Says:    "A ciphertext of more than 1024 bytes is refused, and neither that nor a key_id nor annotations of up to 8 MiB make the plugin panic.",
		Source:  "KEP-3299",
		Suffers: "one damaged value in etcd takes the plugin down, and with it every value that needs it.",
		run:     refusing(refusesOversized),
	}}
}

// refusing is a check of what Decrypt refuses of a ciphertext that it opens as it is. Of a plugin
// that opens nothing, at the beginning or at the end, it is not known what it refuses.
func refusing(check func(context.Context, *session, *sealed) error) func(context.Context, *session) error {
	return func(ctx context.Context, s *session) error {
		w, err := s.wrap(ctx)
		if err != nil {
			return err
		}
		if err := s.opens(ctx, w); err != nil {
			return fmt.Errorf("what is refused is not known: %w", err)
		}
		if err := check(ctx, s, w); err != nil {
			return err
		}
		switch err := s.opens(ctx, w); {
		case isOfTheMoment(err):
			return fmt.Errorf("what was refused is not known: what is right was refused after it, too: %w", err)
		case err != nil:
			return failed("after what had to be refused, what is right is refused too: %v", err)
		}
		return nil
	}
}

// refused fails unless Decrypt refuses what can never be decrypted, and the plugin is
// there afterwards.
func (s *session) refused(ctx context.Context, what string, w *kmsapi.EncryptResponse) error {
	plaintext, err := s.decrypt(ctx, w)
	if err == nil {
		return failed("Decrypt takes %s, and answers with %d bytes", what, len(plaintext))
	}
	return s.refusedBy(ctx, what, w, err)
}

// refusedBy fails unless an error of Decrypt is a refusal. That there were too many calls is none,
// and so many bytes are.
func (s *session) refusedBy(ctx context.Context, what string, w *kmsapi.EncryptResponse, err error) error {
	if status.Code(err) == codes.ResourceExhausted && len(w.Ciphertext) <= maxCiphertext {
		return fmt.Errorf("whether %s is refused is not known: %w", what, err)
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

// refusesUnknownKeyID asks for all at once: a plugin may look at its KMS before it says that it does not
// know a key_id, and does so seldom.
func refusesUnknownKeyID(ctx context.Context, s *session, w *sealed) error {
	keyIDs := append(likeKeyID(w.KeyId), "of-nobody-"+uuid.NewString())
	seen := make([]error, len(keyIDs))
	var asked sync.WaitGroup
	for i, keyID := range keyIDs {
		asked.Go(func() { seen[i] = s.doesNotKnow(ctx, w, keyID) })
	}
	asked.Wait()
	for _, err := range seen {
		if err != nil {
			return err
		}
	}
	return nil
}

// doesNotKnow fails unless Decrypt opens nothing under a key_id that the plugin never named. That it
// cannot say now whether there is such a key is its answer, too, where it is one: another HSM of a
// cluster may have it.
func (s *session) doesNotKnow(ctx context.Context, w *sealed, keyID string) error {
	what := fmt.Sprintf("a key_id that it never named, of %d bytes where its own has %d", len(keyID), len(w.KeyId))
	var seen watch
	plaintext, err := s.decrypt(watching(ctx, &seen), underKeyID(w, keyID))
	switch code := status.Code(err); {
	case err == nil:
		return failed("Decrypt takes %s, and answers with %d bytes", what, len(plaintext))
	case seen.answered.Load() && (code == codes.Unavailable || code == codes.DeadlineExceeded):
		return s.isThere(ctx, what)
	}
	return s.refusedBy(ctx, what, w.EncryptResponse, err)
}

// likeKeyID are key_ids that differ from one in a letter: at the beginning, in the middle, and by
// one less and one more. A short one says too little: the next may be another key's.
func likeKeyID(keyID string) []string {
	if len(keyID) < 16 {
		return nil
	}
	return []string{changed(keyID, 0), changed(keyID, len(keyID)/2), keyID[:len(keyID)-1], keyID + "0"}
}

// changed is a text with another letter or digit at i, of the same kind.
func changed(text string, i int) string {
	other := byte('0')
	switch c := text[i]; {
	case c >= utf8.RuneSelf:
		return text[:i] // or it is no UTF-8
	case '0' <= c && c <= '9':
		other = '0' + (c-'0'+1)%10
	case 'a' <= c && c <= 'f':
		other = 'a' + (c-'a'+1)%6
	case 'A' <= c && c <= 'F':
		other = 'A' + (c-'A'+1)%6
	}
	return text[:i] + string(other) + text[i+1:]
}

func refusesForeign(ctx context.Context, s *session, w *sealed) error {
	for n := range 8 {
		what := fmt.Sprintf("random bytes (try %d)", n+1)
		if err := s.refused(ctx, what, with(w, random(len(w.Ciphertext)))); err != nil {
			return err
		}
	}
	return nil
}

func refusesDamaged(ctx context.Context, s *session, w *sealed) error {
	for i := range w.Ciphertext {
		damaged := bytes.Clone(w.Ciphertext)
		damaged[i] ^= 1
		if err := s.refusedOr(ctx, w, fmt.Sprintf("a ciphertext with byte %d of %d changed", i+1, len(damaged)), with(w, damaged)); err != nil {
			return err
		}
	}
	for _, n := range []int{1, len(w.Ciphertext) / 2, len(w.Ciphertext) - 1} {
		if err := s.refusedOr(ctx, w, fmt.Sprintf("the first %d of %d bytes of a ciphertext", n, len(w.Ciphertext)), with(w, w.Ciphertext[:n])); err != nil {
			return err
		}
	}
	longer := append(bytes.Clone(w.Ciphertext), 0)
	if err := s.refusedOr(ctx, w, "a ciphertext with a byte behind it", with(w, longer)); err != nil {
		return err
	}
	return s.misledByNoAnnotation(ctx, w)
}

// mostAnnotations is of how many each is damaged.
const mostAnnotations = 16

// misledByNoAnnotation fails if a damaged annotation has a ciphertext opened to something else.
// One that is not looked at is no harm.
func (s *session) misledByNoAnnotation(ctx context.Context, w *sealed) error {
	names := slices.Sorted(maps.Keys(w.Annotations))
	for _, name := range names[:min(len(names), mostAnnotations)] {
		value := w.Annotations[name]
		damaged := append(bytes.Clone(value), 0)
		damaged[0] ^= 1
		for what, value := range map[string][]byte{"empty": nil, "changed": damaged[:max(1, len(value))], "longer": damaged} {
			annotations := maps.Clone(w.Annotations)
			annotations[name] = value
			what := fmt.Sprintf("a ciphertext whose annotation %.100q is %s", name, what)
			plaintext, err := s.decrypt(ctx, &kmsapi.EncryptResponse{Ciphertext: w.Ciphertext, KeyId: w.KeyId, Annotations: annotations})
			switch {
			case err == nil && !bytes.Equal(plaintext, w.plaintext):
				return failed("Decrypt opens %s to something else", what)
			case err == nil:
				continue
			}
			if err := s.refusedBy(ctx, what, w.EncryptResponse, err); err != nil {
				return err
			}
		}
	}
	return nil
}

// refusedOr is for a byte of a text that may mean nothing: a letter's case, bits that base64 does not
// use, or its padding, or the end of a line.
func (s *session) refusedOr(ctx context.Context, w *sealed, what string, damaged *kmsapi.EncryptResponse) error {
	plaintext, err := s.decrypt(ctx, damaged)
	if err == nil && bytes.Equal(plaintext, w.plaintext) && isText(w.Ciphertext) {
		return nil
	}
	if err == nil {
		return failed("Decrypt takes %s, and answers with %d bytes", what, len(plaintext))
	}
	return s.refusedBy(ctx, what, damaged, err)
}

// isText reports whether a ciphertext is a text, of which some bits may say nothing.
func isText(ciphertext []byte) bool {
	for _, b := range ciphertext {
		if (b < ' ' || b > '~') && b != '\n' && b != '\r' && b != '\t' {
			return false
		}
	}
	return true
}

func refusesEmpty(ctx context.Context, s *session, w *sealed) error {
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

func refusesOversized(ctx context.Context, s *session, w *sealed) error {
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
