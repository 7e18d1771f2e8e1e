package conformance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	kmsapi "k8s.io/kms/apis/v2"
)

func rotationChecks() []Check {
	return []Check{{
		ID:      "rotation-shows",
		Says:    "After a rotation Status names a key_id that it never named before, within the interval, and does not go back.",
		Source:  "KEP-3299; Azure/AKS#4648, #4926: a rotation that nobody can see; a standby that lags",
		Suffers: "it goes on under the old key for ever, and the rotation is one by name alone; or each way back is a rotation to it.",
		Needs:   []Need{NeedRotate},
		run:     rotationShows,
	}, {
		ID:      "labels-agree-in-rotation",
		Says:    "While the key is rotated, each ciphertext is under the key_id of the key that made it, and Encrypt and Status agree.",
		Source:  "the label race of plugins that ask for the key's version in a second call",
		Suffers: "it keeps a data key under the wrong key_id: that no value has the old key_id any more does not prove that the old key may go, and data is lost when it does.",
		Needs:   []Need{NeedRotate},
		run:     labelsAgreeInRotation,
	}, {
		ID:      "old-keys-open",
		Says:    "What was encrypted under each former key_id is still decrypted after the rotations.",
		Source:  "KEP-3299",
		Suffers: "a rotation makes what is stored unreadable.",
		Needs:   []Need{NeedRotate},
		run:     oldKeysOpen,
	}, {
		ID:      "key-id-after-restart",
		Says:    "A restart changes no key_id, and what was encrypted before it is decrypted, under each key_id that there was.",
		Source:  "KEP-3299",
		Suffers: "each restart is a rotation to it, or makes what is stored unreadable.",
		Needs:   []Need{NeedRestart},
		run:     keyIDAfterRestart,
	}}
}

// A rotation is one that was made while others called.
type rotation struct {
	before, after string    // the key_ids; the same if none showed
	old, fresh    []*sealed // made in quiet before and after it
	race          *race
}

// rotations are made once, for all checks.
type rotations struct {
	made []*rotation
	err  error  // why there are not more
	last string // the key_id a while after all of them
	tell bool   // the heads of ciphertexts tell the keys apart, in each rotation
}

func (s *session) rotations(ctx context.Context) *rotations {
	if s.rotated == nil {
		s.rotated = &rotations{}
		s.rotated.err = s.rotated.collect(ctx, s)
	}
	return s.rotated
}

func (rs *rotations) collect(ctx context.Context, s *session) error {
	start := time.Now()
	for n := range s.Rotations {
		r, err := s.rotateOnce(ctx, n)
		if r != nil {
			rs.made = append(rs.made, r)
		}
		if err != nil || r.before == r.after {
			return err
		}
	}
	calls := 0
	for _, r := range rs.made {
		calls += len(r.old) + r.race.calls + len(r.fresh)
	}
	gaps := max(1, len(rs.made)-1)
	steady, err := s.steady(ctx, max(calls/gaps, 300), time.Since(start)/time.Duration(gaps))
	rs.tell = err == nil
	for _, r := range rs.made {
		rs.tell = rs.tell && tell(head(r.old), head(r.fresh), steady)
	}
	if err == nil {
		rs.last, err = s.keyID(ctx)
	}
	return err
}

// later is the key_id that Status named a while after a rotation, or "" if it was not asked.
func (rs *rotations) later(n int) string {
	if n+1 < len(rs.made) {
		return rs.made[n+1].before
	}
	return rs.last
}

// rotateOnce rotates while racers call, each time at another moment of a call, and waits
// for it to show. The first time nobody asks for Status meanwhile.
func (s *session) rotateOnce(ctx context.Context, n int) (*rotation, error) {
	before, err := s.keyID(ctx)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	old, err := s.wraps(ctx, 16)
	if err != nil {
		return nil, err
	}
	usual := time.Since(start) / 16
	race := s.startRace(ctx, before, n == 0)
	r := &rotation{before: before, after: before, old: old, race: race}
	if err = race.midway(ctx, usual*time.Duration(2*n+1)/time.Duration(2*s.Rotations)); err == nil {
		err = s.Rotate(ctx)
	}
	race.rotated.Store(true)
	if err != nil {
		err = fmt.Errorf("rotate: %w", err)
	} else {
		err = r.waitUntilItShows(ctx, s)
	}
	race.over.Store(true)
	race.ended.Wait()
	if err == nil {
		r.fresh, err = s.wraps(ctx, 16)
	}
	return r, err
}

func (r *rotation) waitUntilItShows(ctx context.Context, s *session) error {
	if r.race.quiet {
		r.race.encrypted.Wait()
	}
	var failed error
	_, err := s.within(ctx, func() bool {
		r.after, failed = s.keyID(ctx)
		return failed != nil || r.after != r.before
	})
	if failed != nil {
		return failed
	}
	return err
}

// steady is how many bytes all ciphertexts of one key begin with, while as many calls are made and as
// much time passes as lie between two rotations, and more than a second: some formats begin with the
// time or with a counter. A digit of either that has changed in each rotation changes in that, too,
// however slow it is.
func (s *session) steady(ctx context.Context, calls int, lasts time.Duration) (int, error) {
	start := time.Now()
	race := s.startRace(ctx, "", false)
	err := s.wait(ctx, 1100*time.Millisecond)
	if err == nil {
		err = eventually(ctx, math.MaxInt64, func() bool { return race.hasMade(calls) && time.Since(start) >= lasts })
	}
	race.over.Store(true)
	race.ended.Wait()
	var all []*sealed
	for _, kept := range race.kept {
		all = append(append(all, kept.first...), kept.last...)
	}
	return len(head(all)), cmp.Or(err, race.err)
}

func rotationShows(ctx context.Context, s *session) error {
	rs := s.rotations(ctx)
	seen := map[string]bool{}
	for n, r := range rs.made {
		seen[r.before] = true
		switch {
		case r.after == r.before && rs.err == nil:
			return failed("rotation %d: Status names key_id %s as before, %s later", n+1, short(r.before), s.Interval)
		case r.after != r.before && seen[r.after]:
			return failed("rotation %d: Status names key_id %s, which named an older key", n+1, short(r.after))
		case r.race.back:
			return failed("rotation %d: Status named another key_id than %s, and then that again", n+1, short(r.before))
		case seen[rs.later(n)] && r.after != r.before:
			return failed("rotation %d: Status named key_id %s, and a while later %s again", n+1, short(r.after), short(rs.later(n)))
		}
	}
	return rs.err
}

func labelsAgreeInRotation(ctx context.Context, s *session) error {
	rs := s.rotations(ctx)
	for n, r := range rs.made {
		if err := rs.mislabelled(ctx, s, r); err != nil {
			return fmt.Errorf("rotation %d: %w", n+1, err)
		}
	}
	for _, r := range rs.made {
		switch {
		case r.race.err != nil:
			return fmt.Errorf("a call failed while the key was rotated: %w", r.race.err)
		case r.race.later == 0:
			return errors.New("nobody called Encrypt after the rotation")
		}
	}
	if err := cmp.Or(rs.err, rs.unseen()); err != nil {
		return err
	}
	return rs.blind(ctx, s)
}

// blind is why a wrong label could not have been seen, or nil: neither what a ciphertext begins
// with tells the key that made it, nor does Decrypt mind another key_id beside it.
func (rs *rotations) blind(ctx context.Context, s *session) error {
	if rs.tell {
		return nil
	}
	for n, r := range rs.made {
		for _, pair := range []struct {
			quiet *sealed
			label string
		}{{r.old[0], r.after}, {r.fresh[0], r.before}} {
			if err := s.opens(ctx, pair.quiet); err != nil {
				return fmt.Errorf("rotation %d: whether a label is wrong cannot be seen: %w", n+1, err)
			}
			moved := &sealed{pair.quiet.plaintext, &kmsapi.EncryptResponse{Ciphertext: pair.quiet.Ciphertext, KeyId: pair.label, Annotations: pair.quiet.Annotations}}
			switch err := s.opens(ctx, moved); {
			case err == nil:
				return fmt.Errorf("rotation %d: a wrong label could not be seen: nothing in front of a ciphertext tells the key that made it, and one that was made under key_id %s opens under %s too", n+1, short(pair.quiet.KeyId), short(pair.label))
			case isOfTheMoment(err):
				return fmt.Errorf("rotation %d: whether a wrong label could be seen is not known: %w", n+1, err)
			}
		}
	}
	return nil
}

// mislabelled says what of a race is not under the key_id of the key that made it.
func (rs *rotations) mislabelled(ctx context.Context, s *session, r *rotation) error {
	if r.race.wrong != nil {
		return r.race.wrong
	}
	if r.before == r.after {
		return nil
	}
	old, made := head(r.old), head(r.fresh)
	for label, kept := range r.race.kept {
		if label != r.before && label != r.after {
			return failed("Encrypt answers under key_id %s, and Status named %s and then %s", describeKeyID(label), short(r.before), short(r.after))
		}
		own, other, quiet := old, made, r.old[0]
		if label == r.after {
			own, other, quiet = made, old, r.fresh[0]
		}
		readable := s.opens(ctx, quiet) == nil
		for _, w := range append(kept.first, kept.last...) {
			if rs.tell && madeBy(w, other, own) {
				return failed("a ciphertext under key_id %s begins with %q, as those under the other key_id do: it was made by the other key", short(label), other[:sameLength(own, other)+1])
			}
			if !readable {
				continue // that is for old-keys-open
			}
			switch err := s.opens(ctx, w); {
			case isOfTheMoment(err):
				return fmt.Errorf("whether a label is wrong is not known: %w", err)
			case err != nil:
				return failed("of the ciphertexts under key_id %s, one made during the rotation does not open, and one made in quiet does: %v", short(label), err)
			}
		}
	}
	return nil
}

func oldKeysOpen(ctx context.Context, s *session) error {
	rs := s.rotations(ctx)
	for n, r := range rs.made {
		for _, w := range append(r.old[:1:1], r.fresh...) {
			switch err := s.opens(ctx, w); {
			case isOfTheMoment(err):
				return fmt.Errorf("whether it opens %d rotations later is not known: %w", len(rs.made)-n, err)
			case err != nil:
				return failed("%d rotations later: %v", len(rs.made)-n, err)
			}
		}
	}
	return cmp.Or(rs.err, rs.unseen())
}

// unseen is that a rotation did not show: nobody knows then whether there was one.
func (rs *rotations) unseen() error {
	for _, r := range rs.made {
		if r.before == r.after {
			return errors.New("no rotation showed: see rotation-shows")
		}
	}
	return nil
}

func keyIDAfterRestart(ctx context.Context, s *session) error {
	older, err := s.former(ctx)
	if err != nil {
		return err
	}
	before, err := s.keyID(ctx)
	if err != nil {
		return err
	}
	w, err := s.wrap(ctx)
	if err != nil {
		return err
	}
	if err := s.endsAndStarts(ctx); err != nil {
		return err
	}
	if err := s.stillNames(ctx, before, "a restart"); err != nil {
		return err
	}
	for _, w := range append(older, w) {
		switch err := s.opens(ctx, w); {
		case isOfTheMoment(err):
			return fmt.Errorf("whether it opens after a restart is not known: %w", err)
		case err != nil:
			return failed("after a restart: %v", err)
		}
	}
	return s.agrees(ctx)
}

// former are values under key_ids that were rotated away, of those that open. The key is
// rotated for them, if it can be.
func (s *session) former(ctx context.Context) ([]*sealed, error) {
	if s.Rotate == nil {
		return nil, nil
	}
	if err := s.rotations(ctx).err; err != nil {
		return nil, fmt.Errorf("there is nothing under a former key_id to be opened after a restart: %w", err)
	}
	return s.formerThatOpen(ctx), nil
}

// formerThatOpen are those of the rotations that were made until now.
func (s *session) formerThatOpen(ctx context.Context) (all []*sealed) {
	if s.rotated == nil {
		return nil
	}
	for _, r := range s.rotated.made {
		if s.opens(ctx, r.old[0]) == nil { // if not, that is for old-keys-open
			all = append(all, r.old[0])
		}
	}
	return all
}

// endsAndStarts restarts the plugin, and sees that it did end.
func (s *session) endsAndStarts(ctx context.Context) error {
	wire, err := s.openWire(ctx)
	if err != nil {
		return err
	}
	defer wire.close()
	if err := s.restart(ctx); err != nil {
		return fmt.Errorf("restart: %w", err)
	}
	if err := eventually(ctx, s.patience(), wire.isClosed); err != nil {
		return fmt.Errorf("restart did not end the plugin, as a connection outlived it: %w", err)
	}
	return s.becomesWell(ctx)
}
