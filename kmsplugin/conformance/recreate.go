package conformance

import (
	"context"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func recreateChecks() []Check {
	return []Check{{
		ID:      "key-id-not-reused",
		Says:    "A key that is deleted and made again under the same name has another key_id.",
		Source:  "KEP-3299: a key_id names one key for ever; plugins that name a key by its version begin again with 1",
		Suffers: "it takes data under the lost key for current, and what it writes and what nobody can read have one key_id.",
		Needs:   []Need{NeedRecreate},
		run:     keyIDNotReused,
	}}
}

func keyIDNotReused(ctx context.Context, s *session) error {
	before, err := s.keyID(ctx)
	if err != nil {
		return err
	}
	w, err := s.wrap(ctx)
	if err != nil {
		return err
	}
	if err := s.Recreate(ctx); err != nil {
		return fmt.Errorf("recreate: %w", err)
	}
	if err := s.becomesWell(ctx); err != nil {
		return err
	}
	after, failing := before, error(nil)
	// It may have seen that the key was gone, and be well again only when it looks once more.
	changed, err := s.within(ctx, func() bool {
		after, failing = s.keyID(ctx)
		return failing == nil && after != before
	})
	switch {
	case err != nil:
		return err
	case failing != nil:
		return failing
	case changed:
		return s.namesNothingOld(after)
	}
	switch _, err := s.decrypt(ctx, w.EncryptResponse); status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		return fmt.Errorf("whether the key is another one is not known: %w", err)
	case codes.OK:
		return fmt.Errorf("what was encrypted before the key was made again still opens: recreate did not delete the key")
	}
	return failed("the key is another one, since what it encrypted before does not open, and Status names key_id %s as before", short(before))
}

// namesNothingOld fails for the key_id of a key that was rotated away.
func (s *session) namesNothingOld(keyID string) error {
	if s.rotated == nil {
		return nil
	}
	for _, r := range s.rotated.made {
		if keyID == r.before || keyID == r.after {
			return failed("Status names key_id %s, which named another key before", short(keyID))
		}
	}
	return nil
}
