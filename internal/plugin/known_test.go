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
	foreign := func(p Problem) Record { r := trouble(p, 5); r.KeyID = "2"; return r }
	own := func(p Problem) Record { r := trouble(p, 5); r.KeyID = "1"; return r }
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
		"Decrypt refused":                     {change(func(k *Known) { k.Decrypt = own(Denied) }), 10, Denied, Denied},
		"Decrypt refused, key_id not known":   {change(func(k *Known) { k.Decrypt, k.KeyID = own(Denied), "" }), 10, Denied, Denied},
		"Decrypt refuses another KEK":         {change(func(k *Known) { k.Decrypt = foreign(Denied) }), 10, "", ""},
		"Decrypt of another KEK timed out":    {change(func(k *Known) { k.Decrypt = foreign(TimedOut) }), 10, TimedOut, TimedOut},
		"Decrypt timed out, Status before":    {change(func(k *Known) { k.Decrypt, k.Status.WellAt = own(TimedOut), at(4) }), 10, TimedOut, TimedOut},
		"Decrypt timed out, Status well since": {change(func(k *Known) {
			k.Decrypt, k.Status.WellAt = own(TimedOut), at(5)
		}), 10, "", ""},
		"Decrypt refused, Status well since": {change(func(k *Known) { k.Decrypt, k.Status.WellAt = own(Denied), at(6) }), 10, Denied, Denied},
		"Status is under way for the window": {all, 181, TimedOut, ""},
		"and not longer":                     {all, 180, "", ""},
		"Status before Decrypt":              {change(func(k *Known) { k.Status, k.Decrypt = trouble(Unhealthy, 5), own(Denied) }), 10, Unhealthy, Unhealthy},
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
	hung := Known{}.AfterDecrypt("1", Troublef(TimedOut, "x"), at(0), at(3))
	require.Equal(t, at(6), hung.HungUntil, "for as long again as it took")
	require.Zero(t, hung.AfterDecrypt("1", nil, at(4), at(4)).HungUntil)
	require.Zero(t, hung.AfterDecrypt("1", Troublef(Denied, "x"), at(4), at(4)).HungUntil)
	require.Zero(t, hung.Alive(nil).HungUntil)
	require.Zero(t, hung.Alive(Troublef(Unhealthy, "x")).HungUntil)
	require.Equal(t, at(6), hung.Alive(Troublef(Unreachable, "x")).HungUntil)
	require.Equal(t, at(6), hung.Alive(Troublef(TimedOut, "x")).HungUntil)
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
