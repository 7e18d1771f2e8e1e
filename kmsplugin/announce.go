package kmsplugin

import (
	"fmt"
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
}

// next is what is announced once a poll found these versions, or why none can be. A new
// version is announced when it was seen [Config.Steady] times in a row, so that a standby
// that lags does not have it go back and forth, and when it is as old as
// [Config.HoldDown], so that every node reads it by then.
func (a announcing) next(found Versions, c Config, now time.Time) (announcing, error) {
	if len(found.All) == 0 || found.Oldest < 0 || found.Writes < found.Oldest || found.Writes >= len(found.All) {
		return a, fmt.Errorf("%w: the back end has %d versions and wraps with number %d: make a key first", ErrKeyDisabled, len(found.All), found.Writes)
	}
	if c.Pin != "" {
		at := slices.IndexFunc(found.All, func(v Version) bool { return v.Label == c.Pin })
		if at < 0 {
			return a, fmt.Errorf("%w: version %.64q is pinned, and the back end has none of that label", ErrKeyDisabled, c.Pin)
		}
		if at < found.Oldest {
			return a, fmt.Errorf("%w: version %.64q is pinned, and only unwraps: the oldest that wraps is %.64q", ErrKeyDisabled, c.Pin, found.All[found.Oldest].Label)
		}
		return announcing{version: &found.All[at]}, nil
	}
	wanted := found.All[found.Writes]
	switch {
	case a.version == nil:
		first := oldEnough(found, c.HoldDown, now)
		return announcing{version: &first}, nil
	case a.version.KeyID() == wanted.KeyID():
		return announcing{version: a.version}, nil
	case !found.wrapsWith(*a.version):
		// What was announced may be used no more: there is nothing to go on with.
		return announcing{version: &wanted}, nil
	}
	if a.candidate != wanted.KeyID() {
		a.candidate, a.polls, a.since = wanted.KeyID(), 0, now
	}
	a.polls++
	age := now.Sub(a.since) // by this clock, where that of its maker is ahead
	if !wanted.Created.IsZero() {
		age = max(age, now.Sub(wanted.Created))
	}
	if a.polls >= c.Steady && age >= c.HoldDown {
		return announcing{version: &wanted}, nil
	}
	return a, nil
}

// oldEnough is the version to wrap with at the start: the one of the back end or, while that is
// younger than it has to be, the youngest before it that is not.
func oldEnough(found Versions, age time.Duration, now time.Time) Version {
	for _, v := range slices.Backward(found.All[found.Oldest : found.Writes+1]) {
		if age == 0 || v.Created.IsZero() || now.Sub(v.Created) >= age {
			return v
		}
	}
	return found.All[found.Writes]
}

func (vs Versions) wrapsWith(v Version) bool {
	keyID := v.KeyID()
	return slices.ContainsFunc(vs.All[vs.Oldest:], func(other Version) bool { return other.KeyID() == keyID })
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
