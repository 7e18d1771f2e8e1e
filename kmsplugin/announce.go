package kmsplugin

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// announcing decides which version apiservers are told to be wrapped under. It is
// read-only.
type announcing struct {
	// version is announced, if some is.
	version *Version
	// candidate is another one that the back end wraps with, seen so often in a row, and
	// first at that time.
	candidate string
	polls     int
	since     time.Time
	// seen is when each version was seen first, by its key_id: zero of those that were there
	// at the first look.
	seen map[string]time.Time
	// newer are versions behind the announced one, by key_id, as they were seen last: one that
	// is not among them may be older.
	newer map[string]bool
	// left are those that were announced before, by key_id: none of them is newer.
	left map[string]bool
}

// next is what is announced once a poll found these versions, or why none can be. A new
// version is announced when it was seen [Config.Steady] times in a row, so that a standby
// that lags does not have it go back and forth, and when it is as old as
// [Config.HoldDown], so that every node reads it by then. While it runs it never goes back,
// whatever the clocks say and whatever the back end loses.
func (a announcing) next(found Versions, c Config, now time.Time) (announcing, error) {
	if len(found.All) == 0 || found.Oldest < 0 || found.Writes < found.Oldest || found.Writes >= len(found.All) {
		return a, fmt.Errorf("%w: the back end has %d versions and wraps with number %d: make a key first", ErrKeyDisabled, len(found.All), found.Writes)
	}
	if c.Pin != "" {
		return a.pinned(found, c.Pin)
	}
	wanted := found.All[found.Writes]
	if found.Partial && a.version != nil && !found.unwraps(*a.version) {
		return a, fmt.Errorf("%w: version %.64q, which is wrapped under, was not seen, and not all that may have it could be asked; if it is gone, restart to go on with %.64q", ErrUnavailable, a.version.Label, wanted.Label)
	}
	_, former := a.seen[wanted.KeyID()]
	if former && a.version != nil && !found.unwraps(*a.version) && !a.newer[wanted.KeyID()] {
		return a, fmt.Errorf("%w: version %.64q, which is wrapped under, is gone, as when an older backup is restored: restore one that has it; to go on with %.64q, and leave what needs it unreadable, restart", ErrKeyDisabled, a.version.Label, wanted.Label)
	}
	after := a.decided(found, c, now)
	after.left = a.leftFor(*after.version)
	after.newer = a.newerThan(*after.version, found)
	maps.DeleteFunc(after.newer, func(keyID string, _ bool) bool { return after.left[keyID] })
	return after, nil
}

// leftFor are those that were announced before one that is from now on.
func (a announcing) leftFor(announced Version) map[string]bool {
	if a.version == nil || a.version.KeyID() == announced.KeyID() {
		return a.left
	}
	left := map[string]bool{a.version.KeyID(): true}
	maps.Copy(left, a.left)
	return left
}

// pinned announces the version of a label, and no other.
func (a announcing) pinned(found Versions, pin string) (announcing, error) {
	at := slices.IndexFunc(found.All, func(v Version) bool { return v.Label == pin })
	switch {
	case at < 0 && found.Withheld != nil:
		return a, fmt.Errorf("version %.64q is pinned, and is none of the %d that unwrap, and there are others: %w", pin, len(found.All), found.Withheld)
	case at < 0 && found.Partial:
		return a, fmt.Errorf("%w: version %.64q is pinned, and was not seen, and not all that may have it could be asked", ErrUnavailable, pin)
	case at < 0:
		return a, fmt.Errorf("%w: version %.64q is pinned, and the back end has none of that label", ErrKeyDisabled, pin)
	case at < found.Oldest:
		return a, fmt.Errorf("%w: version %.64q is pinned, and only unwraps: the oldest that wraps is %.64q", ErrKeyDisabled, pin, found.All[found.Oldest].Label)
	}
	return announcing{version: &found.All[at]}, nil
}

// newerThan are the versions behind the one that is announced from now on. Those that are not
// there now are still, if it was announced before.
func (a announcing) newerThan(announced Version, found Versions) map[string]bool {
	newer := map[string]bool{}
	if a.version != nil && a.version.KeyID() == announced.KeyID() {
		maps.Copy(newer, a.newer)
	}
	behind := false
	for _, v := range found.All {
		newer[v.KeyID()] = behind
		behind = behind || v.KeyID() == announced.KeyID()
	}
	return newer
}

// decided is what is announced of versions that can be.
func (a announcing) decided(found Versions, c Config, now time.Time) announcing {
	wanted := found.All[found.Writes]
	a.seen = a.seeing(found, now)
	switch {
	case a.version == nil:
		first := oldEnough(found, c.HoldDown, now)
		return announcing{version: &first, seen: a.seen}
	case a.version.KeyID() == wanted.KeyID():
		return announcing{version: a.version, seen: a.seen}
	case !found.wrapsWith(*a.version):
		// What was announced may be used no more: there is nothing to go on with.
		return announcing{version: &wanted, seen: a.seen}
	}
	if a.candidate != wanted.KeyID() {
		a.candidate, a.polls, a.since = wanted.KeyID(), 0, now
	}
	a.polls++
	if a.polls >= c.Steady && a.age(wanted, c.HoldDown, now) >= c.HoldDown {
		return announcing{version: &wanted, seen: a.seen}
	}
	return a
}

// seeing is when each version was seen first, once these were found.
func (a announcing) seeing(found Versions, now time.Time) map[string]time.Time {
	seen := make(map[string]time.Time, len(found.All))
	maps.Copy(seen, a.seen)
	for _, v := range found.All {
		keyID := v.KeyID()
		if _, known := seen[keyID]; known {
			continue
		}
		if seen[keyID] = now; a.seen == nil {
			seen[keyID] = time.Time{}
		}
	}
	return seen
}

// age is how old a version is for certain: by the clock of its maker or, if that is behind or
// does not tell, by the time for which it was seen.
func (a announcing) age(v Version, holdDown time.Duration, now time.Time) time.Duration {
	age, told := toldAge(v, holdDown, now)
	first := a.seen[v.KeyID()]
	switch {
	case !told && first.IsZero():
		return now.Sub(a.since)
	case !told:
		return now.Sub(first)
	case first.IsZero():
		return age
	}
	return min(age, now.Sub(first))
}

// toldAge is how old a version is by its maker's clock and this one, unless they cannot both be
// right. Who made it may be ahead of this clock by as much as the hold-down: then a version
// waits for longer, before a restart and after.
func toldAge(v Version, holdDown time.Duration, now time.Time) (age time.Duration, told bool) {
	age = now.Sub(v.Created)
	return age, !v.Created.IsZero() && age >= -holdDown
}

// oldEnough is the version to wrap with at the start: the one of the back end or, while that is
// younger than it has to be, the youngest before it that is not. One whose age is not told may
// have wrapped before this start, and is not gone back from.
func oldEnough(found Versions, holdDown time.Duration, now time.Time) Version {
	for _, v := range slices.Backward(found.All[found.Oldest : found.Writes+1]) {
		if age, told := toldAge(v, holdDown, now); !told || age >= holdDown {
			return v
		}
	}
	return found.All[found.Writes]
}

func (vs Versions) wrapsWith(v Version) bool {
	keyID := v.KeyID()
	return slices.ContainsFunc(vs.All[vs.Oldest:], func(other Version) bool { return other.KeyID() == keyID })
}

// unwraps reports whether a version is there, under whatever key_id.
func (vs Versions) unwraps(v Version) bool {
	keyID := v.KeyID()
	return slices.ContainsFunc(vs.All, func(other Version) bool {
		return other.KeyID() == keyID || slices.Contains(other.Formerly, keyID)
	})
}

// byKeyID has the versions by all key_ids that they are unwrapped under. Two KEKs under
// one key_id are an error: what was wrapped under it could not be told apart.
func (vs Versions) byKeyID() (map[string]Version, error) {
	all := map[string]Version{}
	for _, v := range vs.All {
		own := v.KeyID()
		for _, keyID := range append([]string{own}, v.Formerly...) {
			if other, taken := all[keyID]; taken {
				return nil, fmt.Errorf("%w: key_id %.64q names %s and %s: this is a mistake of the back end", ErrUnavailable, keyID, other, v)
			}
			all[keyID] = v
		}
	}
	return all, nil
}
