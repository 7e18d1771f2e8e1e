package conformance

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Limits of KEP-3299 for what Encrypt answers, in bytes.
const (
	maxCiphertext  = 1024
	maxAnnotations = 32 * 1024
)

// perStart is how many ciphertexts of each start of the plugin are compared.
const perStart = 16

func wrappingChecks() []Check {
	return []Check{{
		ID:      "round-trip",
		Says:    "What was encrypted is decrypted to the very same bytes, whatever they are.",
		Source:  "KEP-3299",
		Suffers: "what it writes cannot be read again.",
		run:     roundTrip,
	}, {
		ID:      "ciphertext-hides",
		Says:    "Neither the ciphertext nor the key_id nor an annotation contains the plaintext, in any way in which bytes are printed.",
		Source:  "KEP-3299: all three are stored in the clear",
		Suffers: "the data key lies in etcd and in its backups beside what it encrypts.",
		run:     ciphertextHides,
	}, {
		ID:      "ciphertext-size",
		Says:    "A ciphertext has 1 to 1024 bytes.",
		Source:  "KEP-3299",
		Suffers: "it refuses the answer, and encrypts nothing.",
		run:     ciphertextSize,
	}, {
		ID:      "ciphertext-fresh",
		Says:    "No two ciphertexts are made with the same stream of key bits.",
		Source:  "NIST SP 800-38D, section 8: a nonce is used once",
		Suffers: "who has two stored values and one data key has the other data key.",
		run:     ciphertextFresh,
	}, {
		ID:      "ciphertext-fresh-after-restart",
		Says:    "No two ciphertexts are made with the same stream of key bits before and after a restart, or after two.",
		Source:  "NIST SP 800-38D, section 8: a nonce is used once; one that is counted from each start is not",
		Suffers: "who has two stored values and one data key has the other data key.",
		Needs:   []Need{NeedRestart},
		run:     ciphertextFreshAfterRestart,
	}, {
		ID:      "annotations",
		Says:    "Names of annotations are fully qualified domain names, and all together have at most 32 KiB.",
		Source:  "KEP-3299",
		Suffers: "it refuses the answer, and encrypts nothing.",
		run:     annotations,
	}}
}

func roundTrip(ctx context.Context, s *session) error {
	for name, plaintext := range map[string][]byte{
		"of random bytes": s.told.key(), "of zeros": make([]byte, 32), "of newlines": bytes.Repeat([]byte("\n"), 32),
		"of spaces": bytes.Repeat([]byte(" "), 32), "of 0xff": bytes.Repeat([]byte{0xff}, 32), "of text": []byte("0123456789abcdef0123456789abcdef"),
	} {
		w, err := s.encrypt(ctx, plaintext)
		if err != nil {
			return err
		}
		switch err := s.opens(ctx, w); {
		case isOfTheMoment(err):
			return fmt.Errorf("whether a key %s comes back is not known: %w", name, err)
		case err != nil:
			return failed("a key %s: %v", name, err)
		}
	}
	return nil
}

func ciphertextHides(ctx context.Context, s *session) error {
	w, err := s.wrap(ctx)
	if err != nil {
		return err
	}
	places := map[string][]byte{"the ciphertext": w.Ciphertext, "the key_id": []byte(w.KeyId)}
	for name, value := range w.Annotations {
		places[fmt.Sprintf("annotation %.100q", name)] = slices.Concat([]byte(name), value)
	}
	for _, place := range slices.Sorted(maps.Keys(places)) {
		if s.told.isIn(places[place]) {
			return failed("%s contains the plaintext", place)
		}
	}
	return nil
}

func ciphertextSize(ctx context.Context, s *session) error {
	w, err := s.wrap(ctx)
	if err != nil {
		return err
	}
	if n := len(w.Ciphertext); n == 0 || n > maxCiphertext {
		return failed("a key of 32 bytes becomes a ciphertext of %d", n)
	}
	return nil
}

func ciphertextFresh(ctx context.Context, s *session) error {
	all, err := s.wraps(ctx, perStart)
	if err != nil {
		return err
	}
	return fresh(all)
}

// A nonce that is counted from each start is used again by the next, so that the first calls of
// two starts are compared.
func ciphertextFreshAfterRestart(ctx context.Context, s *session) error {
	var all []*sealed
	for range 2 {
		if err := s.endsAndStarts(ctx); err != nil {
			return err
		}
		more, err := s.wraps(ctx, perStart)
		if err != nil {
			return err
		}
		if err := fresh(more); err != nil {
			return fmt.Errorf("that is for ciphertext-fresh: %s", err.Error())
		}
		all = append(all, more...)
	}
	return fresh(all)
}

// fresh fails for a stream of key bits that is used twice. It shows in the difference of two
// ciphertexts, which is that of the plaintexts.
func fresh(all []*sealed) error {
	for i, a := range all {
		for j, b := range all[:i] {
			if bytes.Contains(differenceOf(a.Ciphertext, b.Ciphertext), differenceOf(a.plaintext, b.plaintext)) {
				return failed("two ciphertexts differ as their plaintexts do: numbers %d and %d%s", j+1, i+1, acrossStarts(j, i))
			}
		}
	}
	return nil
}

// acrossStarts tells of two ciphertexts that were made before and after a restart.
func acrossStarts(i, j int) string {
	if i/perStart == j/perStart {
		return ""
	}
	return fmt.Sprintf(", with a restart after each %d", perStart)
}

func differenceOf(a, b []byte) []byte {
	difference := make([]byte, min(len(a), len(b)))
	for i := range difference {
		difference[i] = a[i] ^ b[i]
	}
	return difference
}

func annotations(ctx context.Context, s *session) error {
	w, err := s.wrap(ctx)
	if err != nil {
		return err
	}
	total := 0
	for _, name := range slices.Sorted(maps.Keys(w.Annotations)) {
		total += len(name) + len(w.Annotations[name])
		// kube-apiserver's own rule
		if len(validation.IsFullyQualifiedDomainName(nil, name)) > 0 {
			return failed("an annotation is called %.100q, which is not a name such as key.example.com", name)
		}
	}
	if total > maxAnnotations {
		return failed("the annotations have %d bytes", total)
	}
	return nil
}
