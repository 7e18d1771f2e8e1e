package plugin

import (
	"sync/atomic"
	"time"
)

// Role is what a plugin is used for, by the configuration in effect.
type Role int32

// The roles of a plugin.
const (
	Idle   Role = iota // by nothing yet, or no longer: it is held open and not asked
	Reads              // to read with
	Writes             // to read and to write with
)

// Grace is how long a plugin that was well may be out of reach before that
// counts: a restart is no outage. It does not prolong the write window.
const Grace = 2 * time.Second

// Record is what is known of a plugin by one of its calls.
type Record struct {
	// Trouble is what the last call came to, nil if that was well or there was
	// none. Since is since when it is so, zero if there was none.
	*Trouble
	Since time.Time
	// Ill is since when the calls failed, with whatever; zero while they do not.
	Ill time.Time
	// WellAt is when a call that was well was last made, and FailedAt when one
	// last failed; zero if never.
	WellAt, FailedAt time.Time
}

// After is the record after a call that was made at asked and came to t at now.
func (r Record) After(t *Trouble, asked, now time.Time) Record {
	if r.Since.IsZero() || t.class() != r.class() || t.refusesStatus() != r.refusesStatus() {
		r.Since = now
	}
	r.Trouble = t
	if t == nil {
		r.WellAt, r.Ill = asked, time.Time{}
		return r
	}
	r.FailedAt = now
	if r.Ill.IsZero() {
		r.Ill = now
	}
	return r
}

// Moot is the record when the last call's trouble no longer matters at now.
func (r Record) Moot(now time.Time) Record {
	if r.Trouble != nil {
		r.Trouble, r.Since, r.Ill = nil, now, time.Time{}
	}
	return r
}

// Well is the record when a call is known to have been well at a time, before or
// after the last one.
func (r Record) Well(at time.Time) Record {
	r.WellAt = later(r.WellAt, at)
	if r.Since.IsZero() {
		r.Since = at
	}
	return r
}

// Known is what is known of a plugin at one moment. It is immutable: what is
// learned makes another.
type Known struct {
	// Began is when the plugin was made.
	Began time.Time
	// Version is that of the KMS v2 API, pinned to the first that Status named.
	Version string
	// KeyID is the one that Status last named, at NamedAt; empty if none yet.
	KeyID   string
	NamedAt time.Time

	// Status, Encrypt and Decrypt are what came of asking the plugin how it is.
	// Of what becomes of values they have that a DEK was unwrapped, and nothing
	// else: one value that fails says nothing of the plugin.
	Status, Encrypt, Decrypt Record

	// Doubt is what a value's DEK was last refused with, at DoubtAt, since the
	// plugin was tried; nil for nothing. TriedAt is when it last was: whether it
	// unwraps what it should. WokenAt is when its connection broke or came back.
	Doubt                     *Trouble
	DoubtAt, TriedAt, WokenAt time.Time

	// HungUntil is until when a Decrypt that did not answer speaks for those
	// that would follow it: for as long again as it took, if nothing was answered
	// meanwhile. An answer to Encrypt or Decrypt ends it; AnsweredAt is the last.
	HungUntil, AnsweredAt time.Time
}

// AfterUnwrap is what is known after a value's DEK was asked for at asked, which
// came to t at now.
func (k Known) AfterUnwrap(t *Trouble, asked, now time.Time) Known {
	if t == nil {
		k.Decrypt = k.Decrypt.Well(asked)
		return k.Answered(nil, now)
	}
	k.Doubt, k.DoubtAt = t, now
	if t.class() == TimedOut && !k.AnsweredAt.After(asked) {
		k.HungUntil = now.Add(now.Sub(asked))
	}
	return k.Answered(t, now)
}

// AfterTrial is what is known after the plugin was tried at asked, which came to
// t at now.
func (k Known) AfterTrial(t *Trouble, asked, now time.Time) Known {
	k.Decrypt = k.Decrypt.After(t, asked, now)
	return k.tried(asked).Answered(t, now)
}

// AfterSample is what is known after the plugin was tried at asked by a stored
// value's DEK, which came to t at now. Unless telling, that says nothing of the
// plugin: there was nothing to try it by, or the answer was the matter of one value.
func (k Known) AfterSample(t *Trouble, telling bool, asked, now time.Time) Known {
	if telling {
		return k.AfterTrial(t, asked, now)
	}
	k.Decrypt = k.Decrypt.Moot(now)
	return k.tried(asked)
}

// tried ends a doubt that is older than a trial at asked.
func (k Known) tried(asked time.Time) Known {
	if !k.DoubtAt.After(asked) {
		k.Doubt = nil
	}
	k.TriedAt = asked
	return k
}

// Answered is what is known after a call of Encrypt or Decrypt that came to t.
func (k Known) Answered(t *Trouble, now time.Time) Known {
	if !t.LostContact() {
		k.HungUntil, k.AnsweredAt = time.Time{}, later(k.AnsweredAt, now)
	}
	return k
}

// hangs is what a Decrypt came to that was not answered a moment before now; nil if
// there is none.
func (k *Known) hangs(now time.Time) error {
	switch {
	case !k.HungUntil.After(now):
		return nil
	case k.Doubt != nil:
		return k.Doubt.Err
	}
	return k.Decrypt.Cause()
}

// trialsAtLeast is how many healthy polls may pass before a plugin that is written
// with is tried again, whatever else is known of it.
const trialsAtLeast = 10

// TrialIsDue reports whether the plugin is to be tried: it is in reach, and it
// is not known that it still unwraps what it should. healthy is the time between
// two polls.
func (k *Known) TrialIsDue(role Role, healthy time.Duration, now time.Time) bool {
	switch {
	case k.Status.LostContact():
		return false
	case k.Doubt != nil || k.Decrypt.Trouble != nil:
		return true
	case role == Writes:
		return k.TriedAt.Before(k.WokenAt) || now.Sub(k.TriedAt) >= trialsAtLeast*healthy
	}
	return k.Status.refusesStatus() && !k.mayRefuseStatus()
}

// Condition is a trouble, or none, and since when it is so.
type Condition struct {
	*Trouble
	Since time.Time
}

// Condition is how a plugin is at now for what it is used for. It is the one
// rule of health: what is not known is not taken for well. window is the write
// window, 0 where there is none, as in KMS v1.
func (k *Known) Condition(role Role, window time.Duration, now time.Time) Condition {
	well := Condition{Since: k.Began}
	for _, r := range k.neededFor(role) {
		if r.Trouble != nil && !r.isNew(now) {
			return Condition{r.Trouble, r.Since}
		}
		if r.Since.After(well.Since) {
			well.Since = r.Since
		}
	}
	if !k.hasAnswered(role, window > 0) {
		return Condition{Troublef(Unreachable, "the plugin has not answered yet"), k.Began}
	}
	if role != Writes {
		return well
	}
	if until := k.Status.WellAt.Add(window); window > 0 && now.After(until) {
		return Condition{Troublef(TimedOut, "status: the plugin has not answered for the whole write window"), until}
	}
	return well
}

// hasAnswered reports whether the plugin was seen to do what a role needs. One
// that has no Status, and is only read with, is not asked before there is a need.
func (k *Known) hasAnswered(role Role, hasStatus bool) bool {
	switch {
	case role == Writes:
		return !k.Encrypt.WellAt.IsZero() && !k.Decrypt.WellAt.IsZero()
	case role == Reads && hasStatus:
		return !k.Status.Since.IsZero() || !k.Decrypt.WellAt.IsZero()
	}
	return true
}

// Ailing is what is wrong with a plugin for whoever is about to write with it, and
// cannot wait and see: also what is new. Of one that is not written with yet,
// Status alone counts: that it wraps and unwraps is about to be seen.
func (k *Known) Ailing(role Role) *Trouble {
	if role != Writes {
		return k.Status.Trouble
	}
	for _, r := range k.neededFor(Writes) {
		if r.Trouble != nil {
			return r.Trouble
		}
	}
	return nil
}

// isNew reports whether a plugin that was well until then is out of reach for
// less than [Grace].
func (r *Record) isNew(now time.Time) bool {
	return r.Problem == Unreachable && !r.WellAt.IsZero() && r.Since.Equal(r.Ill) && now.Sub(r.Ill) < Grace
}

// neededFor are the records that count for a role. Of a plugin that is only read
// with Encrypt does not.
func (k *Known) neededFor(role Role) []*Record {
	var needed []*Record
	if role == Writes || !k.mayRefuseStatus() {
		needed = append(needed, &k.Status)
	}
	if role == Writes {
		needed = append(needed, &k.Encrypt)
	}
	return append(needed, &k.Decrypt)
}

// mayRefuseStatus reports whether a Status that is refused can be ignored on a
// plugin that is only read with. After a rotation such a plugin may refuse
// Status; so may one with lost credentials. A Decrypt that succeeds after the
// first refusal tells them apart.
func (k *Known) mayRefuseStatus() bool {
	return k.Status.refusesStatus() && !k.Decrypt.WellAt.Before(k.Status.Since)
}

// isOther reports whether two key_ids are known and differ.
func isOther(a, b string) bool { return a != "" && b != "" && a != b }

// isNewsAfter reports whether asking told something else than before, also if
// that does not count yet.
func (k *Known) isNewsAfter(before *Known) bool {
	return k.KeyID != before.KeyID || k.Status.class() != before.Status.class() || k.Decrypt.class() != before.Decrypt.class()
}

// Knowledge is what is known of a plugin now. Safe for concurrent use.
type Knowledge struct{ now atomic.Pointer[Known] }

// Load is what is known now.
func (k *Knowledge) Load() *Known { return k.now.Load() }

// Learn replaces what is known. learned may be called more than once.
func (k *Knowledge) Learn(learned func(Known) Known) {
	for {
		before := k.now.Load()
		after := learned(*before)
		if k.now.CompareAndSwap(before, &after) {
			return
		}
	}
}
