package plugin

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func at(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }

func TestARecordKnowsSinceWhen(t *testing.T) {
	away, mute := Troublef(Unreachable, "nobody"), Troublef(TimedOut, "no answer")
	r := Record{}.After(nil, at(1), at(2))
	require.Equal(t, Record{Since: at(2), WellAt: at(1)}, r, "well since the answer, and when it was asked")
	require.Equal(t, at(2), r.After(nil, at(3), at(4)).Since)

	r = r.After(away, at(5), at(6))
	require.Equal(t, Record{Trouble: away, Since: at(6), Ill: at(6), WellAt: at(1), FailedAt: at(6)}, r)
	r = r.After(Troublef(Unreachable, "still nobody"), at(7), at(8))
	require.Equal(t, at(6), r.Since, "the same problem in other words")
	require.Equal(t, at(8), r.FailedAt)
	require.Equal(t, "still nobody", r.text())
	require.Equal(t, at(10), r.After(mute, at(9), at(10)).Since)
	require.Equal(t, at(10), r.After(nil, at(9), at(10)).Since)

	moot := r.Moot(at(11))
	require.Nil(t, moot.Trouble)
	require.Equal(t, at(11), moot.Since)
	require.Equal(t, moot, moot.Moot(at(12)))

	refused := r.After(TroubleOf("status", status.Error(codes.Internal, "x")), at(1), at(2))
	require.Equal(t, at(4), refused.After(TroubleOf("status", status.Error(codes.Unimplemented, "x")), at(3), at(4)).Since,
		"that Status is not served is something else, though of one class")
}

// The one rule of health, by role.
func TestCondition(t *testing.T) {
	const window = 3 * time.Minute
	well := Record{Since: at(0), WellAt: at(0)}
	trouble := func(p Problem, from int) Record {
		return Record{Trouble: Troublef(p, "x"), Since: at(from), Ill: at(from), WellAt: at(0), FailedAt: at(from)}
	}
	refused := Record{Trouble: TroubleOf("status", status.Error(codes.PermissionDenied, "x")), Since: at(0), FailedAt: at(0)}
	all := Known{Began: start, KeyID: "1", NamedAt: at(0), Status: well, Encrypt: well, Decrypt: well}
	change := func(f func(*Known)) Known { k := all; f(&k); return k }
	doubt := func(p Problem) *Trouble { return Troublef(p, "x") }
	for name, c := range map[string]struct {
		known         Known
		at            int
		writes, reads Problem
	}{
		"all well":                        {all, 10, "", ""},
		"nothing known":                   {Known{Began: start}, 10, Unreachable, Unreachable},
		"Status alone is well":            {Known{Began: start, Status: well}, 10, Unreachable, ""},
		"not seen to unwrap":              {change(func(k *Known) { k.Decrypt = Record{} }), 10, Unreachable, ""},
		"not seen to wrap":                {change(func(k *Known) { k.Encrypt = Record{} }), 10, Unreachable, ""},
		"Status unhealthy":                {change(func(k *Known) { k.Status = trouble(Unhealthy, 9) }), 10, Unhealthy, Unhealthy},
		"Status has just lost the plugin": {change(func(k *Known) { k.Status = trouble(Unreachable, 9) }), 10, "", ""},
		"Status failed before, and has lost the plugin": {change(func(k *Known) {
			k.Status = trouble(Unreachable, 9)
			k.Status.Ill = at(3)
		}), 10, Unreachable, Unreachable},
		"Status has lost the plugin":          {change(func(k *Known) { k.Status = trouble(Unreachable, 8) }), 10, Unreachable, Unreachable},
		"Status never reached the plugin":     {Known{Began: start, Status: Record{Trouble: Troublef(Unreachable, "x"), Since: at(10), FailedAt: at(10)}}, 10, Unreachable, Unreachable},
		"Status has just timed out":           {change(func(k *Known) { k.Status = trouble(TimedOut, 10) }), 10, TimedOut, TimedOut},
		"Status refused, and unwrapped since": {change(func(k *Known) { k.Status = refused }), 10, Denied, ""},
		"Status refused, unwrapped before":    {change(func(k *Known) { k.Status = refused; k.Status.Since = at(1) }), 10, Denied, Denied},
		"Encrypt refused":                     {change(func(k *Known) { k.Encrypt = trouble(Denied, 5) }), 10, Denied, ""},
		"Decrypt refused":                     {change(func(k *Known) { k.Decrypt = trouble(Denied, 5) }), 10, Denied, Denied},
		"a value was refused":                 {change(func(k *Known) { k.Doubt = doubt(Denied) }), 10, "", ""},
		"a value was not answered":            {change(func(k *Known) { k.Doubt = doubt(TimedOut) }), 10, "", ""},
		"Decrypt fails as if it were away, Status well since": {change(func(k *Known) {
			k.Decrypt, k.Status.WellAt = trouble(Unreachable, 5), at(6)
		}), 10, Unreachable, Unreachable},
		"Status is under way for the window": {all, 181, TimedOut, ""},
		"and not longer":                     {all, 180, "", ""},
		"Status before Decrypt":              {change(func(k *Known) { k.Status, k.Decrypt = trouble(Unhealthy, 5), trouble(Denied, 5) }), 10, Unhealthy, Unhealthy},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.writes, c.known.Condition(Writes, window, at(c.at)).class(), "one that writes")
			require.Equal(t, c.reads, c.known.Condition(Reads, window, at(c.at)).class(), "one that only reads")
		})
	}
	late := change(func(k *Known) { k.Decrypt.Since = at(7) })
	require.Equal(t, at(7), late.Condition(Writes, window, at(9)).Since, "well since the last of its calls is")
	require.Equal(t, at(180), all.Condition(Writes, window, at(200)).Since)
	require.Empty(t, all.Condition(Writes, 0, at(9999)).class(), "without a window none passes")
}

func TestAnAnswerIsASignOfLife(t *testing.T) {
	mute, denied, away := Troublef(TimedOut, "x"), Troublef(Denied, "x"), Troublef(Unreachable, "x")
	hung := Known{}.AfterUnwrap(mute, at(0), at(3))
	require.Equal(t, at(6), hung.HungUntil, "for as long again as it took")
	require.Zero(t, hung.AfterUnwrap(nil, at(4), at(4)).HungUntil)
	require.Zero(t, hung.AfterUnwrap(denied, at(4), at(4)).HungUntil)
	require.Zero(t, hung.AfterTrial(nil, at(4), at(4)).HungUntil)
	require.Zero(t, hung.Answered(denied, at(4)).HungUntil)
	require.Equal(t, at(6), hung.Answered(away, at(4)).HungUntil)
	require.Equal(t, at(6), hung.Answered(mute, at(4)).HungUntil)
	require.Zero(t, Known{}.Answered(nil, at(1)).AfterUnwrap(mute, at(0), at(3)).HungUntil, "others were answered meanwhile")
	require.Equal(t, at(6), Known{}.Answered(nil, at(0)).AfterUnwrap(mute, at(1), at(4)).HungUntil.Add(-time.Second))
}

// A value that fails is a doubt, which a trial that began later ends.
func TestADoubtIsEndedByATrial(t *testing.T) {
	denied := Troublef(Denied, "x")
	k := Known{}.AfterTrial(nil, at(1), at(2))
	require.Equal(t, Record{Since: at(2), WellAt: at(1)}, k.Decrypt)
	k = k.AfterUnwrap(denied, at(3), at(4))
	require.Nil(t, k.Decrypt.Trouble)
	require.Same(t, denied, k.Doubt)
	require.NotNil(t, k.AfterUnwrap(nil, at(4), at(5)).Doubt, "another value says nothing of it")
	require.NotNil(t, k.AfterTrial(nil, at(3), at(5)).Doubt, "it began before")
	require.Nil(t, k.AfterTrial(nil, at(4), at(5)).Doubt)
	require.Nil(t, k.AfterSample(nil, false, at(4), at(5)).Doubt)
	tried := k.AfterTrial(denied, at(4), at(5))
	require.Nil(t, tried.Doubt)
	require.Same(t, denied, tried.Decrypt.Trouble)
	require.NotNil(t, tried.AfterUnwrap(nil, at(6), at(7)).Decrypt.Trouble, "what it should unwrap is another matter")
}

func TestWhenATrialIsDue(t *testing.T) {
	denied := Troublef(Denied, "x")
	tried := Known{TriedAt: at(0), WokenAt: at(0), Status: Record{Since: at(0), WellAt: at(0)}}
	change := func(f func(*Known)) Known { k := tried; f(&k); return k }
	for name, c := range map[string]struct {
		known         Known
		at            int
		writes, reads bool
	}{
		"tried a moment ago": {tried, 1, false, false},
		"nine polls ago":     {tried, 599, false, false},
		"ten polls ago":      {tried, 600, true, false},
		"a doubt":            {change(func(k *Known) { k.Doubt = denied }), 1, true, true},
		"it failed":          {change(func(k *Known) { k.Decrypt.Trouble = denied }), 1, true, true},
		"another connection": {change(func(k *Known) { k.WokenAt = at(1) }), 1, true, false},
		"out of reach":       {change(func(k *Known) { k.Doubt, k.Status.Trouble = denied, Troublef(TimedOut, "x") }), 999, false, false},
		"Status is refused":  {change(func(k *Known) { k.Status.Trouble = TroubleOf("status", status.Error(codes.PermissionDenied, "x")) }), 1, false, true},
		"and it has unwrapped": {change(func(k *Known) {
			k.Status.Trouble, k.Decrypt.WellAt = TroubleOf("status", status.Error(codes.PermissionDenied, "x")), at(0)
		}), 1, false, false},
		"Status says it is unwell": {change(func(k *Known) { k.Status.Trouble = Troublef(Unhealthy, "x") }), 1, false, false},
	} {
		require.Equal(t, c.writes, c.known.TrialIsDue(Writes, time.Minute, at(c.at)), name)
		require.Equal(t, c.reads, c.known.TrialIsDue(Reads, time.Minute, at(c.at)), name)
	}
}

// Whoever is about to write cannot wait and see.
func TestAiling(t *testing.T) {
	away := Troublef(Unreachable, "x")
	new := Record{Trouble: away, Since: at(9), Ill: at(9), WellAt: at(8)}
	require.Nil(t, (&Known{}).Ailing(Reads))
	require.Nil(t, (&Known{}).Ailing(Writes))
	require.Same(t, away, (&Known{Status: new}).Ailing(Reads))
	require.Same(t, away, (&Known{Status: new}).Ailing(Writes))
	require.Nil(t, (&Known{Encrypt: new, Decrypt: new}).Ailing(Reads), "that it wraps and unwraps is about to be seen")
	require.Same(t, away, (&Known{Encrypt: new}).Ailing(Writes))
	require.Same(t, away, (&Known{Decrypt: new}).Ailing(Writes))
}

func TestLearningLosesNothing(t *testing.T) {
	var k Knowledge
	k.now.Store(&Known{})
	done := make(chan struct{})
	for range 8 {
		go func() {
			for range 1000 {
				k.Learn(func(k Known) Known { k.Version += "x"; return k })
			}
			done <- struct{}{}
		}()
	}
	for range 8 {
		<-done
	}
	require.Len(t, k.Load().Version, 8000)
}
