package conformance

import "context"

func labelChecks() []Check {
	return []Check{{
		ID:      "labels-agree",
		Says:    "Encrypt answers under the key_id that Status names.",
		Source:  "KEP-3299",
		Suffers: "it throws each new data key away, and goes on with the old one until that ends; then nothing is written.",
		run:     labelsAgree,
	}}
}

func labelsAgree(ctx context.Context, s *session) error {
	for range 32 {
		if err := s.agrees(ctx); err != nil {
			return err
		}
	}
	return nil
}

// agrees fails if Encrypt answers under another key_id than Status names both before and
// after it.
func (s *session) agrees(ctx context.Context) error {
	before, err := s.keyID(ctx)
	if err != nil {
		return err
	}
	w, err := s.wrap(ctx)
	if err != nil {
		return err
	}
	after, err := s.keyID(ctx)
	if err != nil {
		return err
	}
	return disagreement(before, w.KeyId, after)
}

func disagreement(before, label, after string) error {
	if before == after && label != before {
		return failed("Status names key_id %s before and after a call of Encrypt, which answers under %s", short(before), describeKeyID(label))
	}
	return nil
}
