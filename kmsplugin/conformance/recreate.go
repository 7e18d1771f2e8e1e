package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

func recreateChecks() []Check {
	return []Check{{
		ID:      "key-id-not-reused",
		Says:    "A key that is deleted and made again under the same name has another key_id, each time.",
		Source:  "KEP-3299: a key_id names one key for ever; plugins that name a key by its version begin again with 1",
		Suffers: "it takes data under the lost key for current, and what it writes and what nobody can read have one key_id.",
		Needs:   []Need{NeedRecreate},
		run:     keyIDNotReused,
	}}
}

// keyIDNotReused makes the key anew twice. A plugin that begins again with 1 may have been
// rotated before this run, so that the first of them has another key_id; the second has not.
func keyIDNotReused(ctx context.Context, s *session) error {
	first, err := s.keyID(ctx)
	if err != nil {
		return err
	}
	named := append(s.formerKeyIDs(), first)
	for range 2 {
		made, err := s.recreated(ctx, named[len(named)-1])
		if err != nil {
			return err
		}
		if slices.Contains(named, made) {
			return failed("Status names key_id %s, which named another key before", short(made))
		}
		named = append(named, made)
	}
	return nil
}

// recreated is the key_id of a key that is made again. That of the one before is a failure.
func (s *session) recreated(ctx context.Context, before string) (after string, err error) {
	w, err := s.wrap(ctx)
	if err != nil {
		return "", err
	}
	// Some tell keys apart by the second in which they were made. No key that is used is made
	// again in that.
	if err := s.wait(ctx, 1100*time.Millisecond); err != nil {
		return "", err
	}
	if err := s.Recreate(context.WithoutCancel(ctx)); err != nil { // or the key is gone, and none made
		return "", fmt.Errorf("recreate: %w", err)
	}
	if err := s.becomesWell(ctx); err != nil {
		return "", err
	}
	var failing error
	// It may have seen that the key was gone, and be well again only when it looks once more.
	changed, err := s.within(ctx, func() bool {
		after, failing = s.keyID(ctx)
		return failing == nil && after != before
	})
	switch {
	case err != nil:
		return "", err
	case failing != nil:
		return "", failing
	}
	if err := s.isLost(ctx, w); err != nil {
		return "", err
	}
	if !changed {
		return "", failed("the key is another one, since what it encrypted before does not open, and Status names key_id %s as before", short(before))
	}
	return after, nil
}

// isLost is an error unless w does not open any more: else the key is there, and was rotated at most.
func (s *session) isLost(ctx context.Context, w *sealed) error {
	switch _, err := s.decrypt(ctx, w.EncryptResponse); {
	case isOfTheMoment(err):
		return fmt.Errorf("whether the key is another one is not known: %w", err)
	case err == nil:
		return errors.New("what was encrypted before the key was made again still opens: recreate did not delete the key")
	}
	return nil
}

// formerKeyIDs are those of keys that were rotated away in this run.
func (s *session) formerKeyIDs() (all []string) {
	if s.rotated != nil {
		for _, r := range s.rotated.made {
			all = append(all, r.before, r.after)
		}
	}
	return all
}
