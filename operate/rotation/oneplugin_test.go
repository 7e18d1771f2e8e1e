package rotation_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/operate/rotation"
)

const hold = 5 * time.Minute

// counted is the etcd of all.
var counted = []rotation.Etcd{{Cluster: 1, Revision: 9}}

// driver is one who drives a rotation by hand.
type driver struct {
	t     *testing.T
	state rotation.State
	seen  rotation.Observation
	now   time.Time
	// Nothing is shown of the apiservers in unshown.
	unshown []string
}

func newOnePlugin(t *testing.T, from string) *driver {
	t.Helper()
	s, err := rotation.NewOnePlugin(rotation.Plan{
		Configs:   map[string][]string{"a": {"h"}, "b": {"h"}},
		Resources: []string{"secrets", "configmaps"},
		Hold:      rotation.Duration(hold),
	}, []string{"kms"}, from)
	require.NoError(t, err)
	return &driver{t: t, state: s, now: start, seen: rotation.Observation{Instances: map[string]rotation.Instance{}}}
}

// next lets some time pass and asks.
func (d *driver) next(after time.Duration) rotation.Decision {
	d.now = d.now.Add(after)
	for name, i := range d.seen.Instances {
		if !i.CheckedAt.IsZero() {
			i.CheckedAt = d.now
			d.seen.Instances[name] = i
		}
	}
	d.show()
	var decision rotation.Decision
	d.state, decision = rotation.Next(d.state, d.seen, d.now)
	require.NoError(d.t, d.state.Validate())
	return decision
}

// show is what all apiservers show of themselves now.
func (d *driver) show() {
	d.seen.Shown = map[string]rotation.Shown{}
	for name, i := range d.seen.Instances {
		if !slices.Contains(d.unshown, name) {
			d.seen.Shown[name] = shownOf(i, d.now, d.seen.Instances)
		}
	}
}

// shownOf is what an apiserver shows that writes with whatever it has.
func shownOf(i rotation.Instance, at time.Time, all map[string]rotation.Instance) rotation.Shown {
	s := rotation.Shown{At: at, Identities: rotation.Identities(all), KeyIDs: map[string]string{}, Resources: []string{"secrets"}, Etcds: []uint64{1}}
	for name, p := range i.Providers {
		s.KeyIDs[name] = p.KeyID
	}
	return s
}

func (d *driver) all(key string) {
	d.seen.Instances["a"], d.seen.Instances["b"] = writing(d.now, "h", key), writing(d.now, "h", key)
}

// ended reports on the migration that is under way.
func (d *driver) report(phase rotation.Phase, resources ...string) {
	for _, resource := range resources {
		d.seen.Migrations = append(d.seen.Migrations, rotation.Progress{
			Goal: d.state.Migration.Goal, Resource: resource, Phase: phase, EndedAt: d.now, Problem: "because"})
	}
}

func (d *driver) audit(counts ...rotation.Count) {
	d.now = d.now.Add(1)
	d.seen.Audit = &rotation.Audit{StartedAt: d.now, Counts: counts, Etcds: counted}
}

func reasons(d rotation.Decision) []string {
	var all []string
	for _, w := range d.Waiting {
		all = append(all, string(w.Reason))
	}
	return all
}

func stored(resource, key string, n int64) rotation.Count {
	return rotation.Count{Resource: resource, Provider: "kms", KeyID: key, Objects: n}
}

func migrate(key string, round int, resources ...string) []rotation.Action {
	return []rotation.Action{rotation.Migrate{Goal: rotation.Goal{KeyID: key, Round: round}, Providers: []string{"kms"}, Resources: resources}}
}

// migrated brings the driver to the point where everything is under key.
func (d *driver) migrated(key string) {
	d.all(key)
	d.next(0)
	require.NotEmpty(d.t, d.next(hold).Actions)
	d.report(rotation.Succeeded, "secrets", "configmaps")
	require.IsType(d.t, rotation.RunAudit{}, d.next(time.Second).Actions[0])
	d.audit(stored("secrets", key, 3))
	_, done := d.next(time.Second).Done()
	require.True(d.t, done)
}

func TestARotationFromItsBeginningToItsEnd(t *testing.T) {
	d := newOnePlugin(t, keyA)
	require.Equal(t, []string{"missing"}, reasons(d.next(0)))
	d.all(keyA)
	require.Equal(t, []string{"not_rotated"}, reasons(d.next(time.Hour)))

	d.all(keyB)
	decision := d.next(0)
	require.Equal(t, []string{"holding"}, reasons(decision))
	require.Equal(t, d.now.Add(hold), decision.Waiting[0].Until)
	require.Equal(t, []string{"holding"}, reasons(d.next(hold-1)))
	require.Equal(t, migrate(keyB, 1, "secrets", "configmaps"), d.next(1).Actions)
	require.Equal(t, migrate(keyB, 1, "secrets", "configmaps"), d.next(1).Actions, "asked for until somebody is seen doing it")

	d.report(rotation.Running, "secrets", "configmaps")
	decision = d.next(1)
	require.Empty(t, decision.Actions)
	require.Equal(t, []string{"migrating"}, reasons(decision))
	d.seen.Migrations = nil
	d.report(rotation.Succeeded, "secrets")
	require.Equal(t, migrate(keyB, 1, "configmaps"), d.next(1).Actions, "what is through is not begun again")
	d.audit(stored("secrets", keyB, 3)) // too early to count
	d.report(rotation.Succeeded, "configmaps")
	decision = d.next(1)
	require.Equal(t, []rotation.Action{rotation.RunAudit{After: d.now, Resources: []string{"secrets", "configmaps"}}}, decision.Actions)
	require.Equal(t, keyB, d.state.OnePlugin.Migrated)

	d.audit(stored("secrets", keyB, 3), rotation.Count{Resource: "others", Objects: 9}, stored("configmaps", keyA, 0))
	done := []rotation.Action{rotation.Done{KeyID: keyB, Objects: 3, Otherwise: 9, Etcds: counted, KeyIDs: []string{keyA}}}
	require.Equal(t, done, d.next(1).Actions)
	require.Equal(t, done, d.next(time.Hour).Actions)
}

func TestI11AnyBreakRestartsTheClock(t *testing.T) {
	for name, unsettle := range map[string]func(d *driver){
		"missing":   func(d *driver) { delete(d.seen.Instances, "a") },
		"divergent": func(d *driver) { d.seen.Instances["a"] = writing(d.now, "h", keyA) },
		"unproven": func(d *driver) {
			d.seen.Instances["a"] = with(d.seen.Instances["a"], func(p *rotation.Provider) { p.WroteKeyID = "" })
		},
		"another configuration": func(d *driver) { d.seen.Instances["a"] = writing(d.now, "other", keyB) },
	} {
		t.Run(name, func(t *testing.T) {
			d := newOnePlugin(t, keyA)
			d.all(keyB)
			d.next(0)
			d.next(hold - 1)
			unsettle(d)
			require.NotContains(t, reasons(d.next(0)), "holding")
			d.all(keyB)
			require.Empty(t, d.next(hold).Actions)
			require.Empty(t, d.next(hold-1).Actions)
			require.NotEmpty(t, d.next(1).Actions)
		})
	}
}

func TestI10DivergenceNeverStartsAMigration(t *testing.T) {
	d := newOnePlugin(t, keyA)
	d.all(keyB)
	d.seen.Instances["b"] = writing(d.now, "h", keyA)
	for range 100 {
		require.Empty(t, d.next(time.Hour).Actions)
	}
	d.all(keyB)
	d.next(0)
	require.NotEmpty(t, d.next(hold).Actions)
	d.seen.Instances["b"] = writing(d.now, "h", keyA)
	decision := d.next(1)
	require.Empty(t, decision.Actions, "not even one that was asked for already")
	require.Equal(t, []string{"divergent"}, reasons(decision))
}

func TestAWriteIsAskedForWhereNoneWasSeen(t *testing.T) {
	d := newOnePlugin(t, "")
	d.all(keyB)
	d.seen.Instances["b"] = with(d.seen.Instances["b"], func(p *rotation.Provider) { p.WroteKeyID = keyA })
	decision := d.next(0)
	require.Equal(t, []rotation.Action{rotation.Canary{Instance: "b", Providers: []string{"kms"}}}, decision.Actions)
	require.Equal(t, []string{"unproven"}, reasons(decision))
}

func TestI12I15AChangeDuringAMigrationWaitsAndIsNotLost(t *testing.T) {
	d := newOnePlugin(t, keyA)
	d.all(keyB)
	d.next(0)
	d.next(hold)
	d.report(rotation.Running, "secrets", "configmaps")
	d.all(keyC)
	d.next(1)
	d.next(2 * hold)
	require.Equal(t, keyB, d.state.OnePlugin.Target, "the target stays while the migration lasts")

	d.seen.Migrations = nil
	d.report(rotation.Succeeded, "secrets", "configmaps")
	require.Equal(t, migrate(keyC, 2, "secrets", "configmaps"), d.next(1).Actions, "and the change is not held a second time")
	require.Equal(t, keyB, d.state.OnePlugin.Migrated)
}

func TestI13MigratedIsWhatTheFinishedMigrationWasFor(t *testing.T) {
	d := newOnePlugin(t, keyA)
	d.all(keyB)
	d.next(0)
	d.next(hold)
	d.all(keyC)
	d.next(1)
	d.next(hold)
	for _, resource := range []string{"secrets", "configmaps"} { // of another goal: no news
		d.seen.Migrations = append(d.seen.Migrations, rotation.Progress{Goal: rotation.Goal{KeyID: keyC, Round: 2}, Resource: resource, Phase: rotation.Succeeded})
	}
	d.next(1)
	require.Empty(t, d.state.OnePlugin.Migrated)
	d.seen.Migrations = nil
	d.report(rotation.Succeeded, "secrets", "configmaps")
	d.next(1) // the last report and the promotion of C at once
	require.Equal(t, keyB, d.state.OnePlugin.Migrated)
	require.Equal(t, keyC, d.state.OnePlugin.Target)
}

func TestI15AStormOfChangesIsMigratedToItsLast(t *testing.T) {
	d := newOnePlugin(t, keyA)
	var goals []rotation.Goal
	follow := func(decision rotation.Decision) {
		for _, a := range decision.Actions {
			if m, ok := a.(rotation.Migrate); ok {
				goals = append(goals, m.Goal)
				d.seen.Migrations = nil
				d.report(rotation.Running, m.Resources...)
			}
		}
	}
	d.all(keyB)
	follow(d.next(0))
	follow(d.next(hold))
	d.all(keyA) // shorter than the clock: skipped
	follow(d.next(1))
	d.all(keyC)
	follow(d.next(hold - 1))
	follow(d.next(2 * hold))
	d.seen.Migrations = nil
	d.report(rotation.Succeeded, "secrets", "configmaps")
	follow(d.next(1))
	require.Equal(t, []rotation.Goal{{KeyID: keyB, Round: 1}, {KeyID: keyC, Round: 2}}, goals)
}

func TestI16AFailedResourceIsTriedAgainLaterAndNoOther(t *testing.T) {
	d := newOnePlugin(t, keyA)
	d.all(keyB)
	d.next(0)
	d.next(hold)
	d.report(rotation.Succeeded, "secrets")
	d.report(rotation.Failed, "configmaps")
	decision := d.next(0)
	require.Empty(t, decision.Actions)
	require.Equal(t, []rotation.Waiting{{Reason: "retrying", Details: map[string]string{"configmaps": "because"},
		Until: d.now.Add(time.Duration(rotation.DefaultRetryAfter))}}, decision.Waiting)
	require.Empty(t, d.next(time.Duration(rotation.DefaultRetryAfter)-1).Actions)
	require.Equal(t, migrate(keyB, 1, "configmaps"), d.next(1).Actions)

	d.seen.Migrations = nil
	d.report(rotation.Running, "configmaps")
	require.Empty(t, d.next(1).Actions)
	d.seen.Migrations = nil
	d.report(rotation.Failed, "configmaps")
	require.Empty(t, d.next(1).Actions, "a second failure has its own wait")
}

func TestObjectsLeftAreRewrittenAgain(t *testing.T) {
	d := newOnePlugin(t, keyA)
	d.all(keyB)
	d.next(0)
	d.next(hold)
	d.report(rotation.Succeeded, "secrets", "configmaps")
	d.next(1)
	d.audit(stored("secrets", keyA, 2), rotation.Count{Resource: "secrets", Objects: 1}, stored("configmaps", keyB, 5))
	decision := d.next(0)
	require.Equal(t, []string{"left"}, reasons(decision))
	require.EqualValues(t, 3, decision.Waiting[0].Objects)
	require.Equal(t, "[2 under provider kms, key_id "+keyA+"][1 under no KMS provider]", decision.Waiting[0].Details["secrets"])
	require.Equal(t, migrate(keyB, 2, "secrets"), d.next(time.Duration(rotation.DefaultRetryAfter)).Actions)
}

func TestWhatIsNewerThanTheTargetMustNotGo(t *testing.T) {
	d := newOnePlugin(t, "")
	d.migrated(keyA)
	d.migrated(keyB)
	done, ok := d.next(1).Done()
	require.True(t, ok)
	require.Equal(t, []string{keyA}, done.KeyIDs)
	d.seen.Instances["b"] = writing(d.now, "h", keyC)
	_, ok = d.next(1).Done()
	require.False(t, ok, "an apiserver is on its way to another key")
	d.all(keyB)
	_, ok = d.next(1).Done()
	require.False(t, ok, "something may be stored under C")
	d.next(hold)
	d.audit(stored("secrets", keyB, 3))
	done, _ = d.next(1).Done()
	require.Equal(t, []string{keyA}, done.KeyIDs, "C was met after B was the target")
}

func TestACountIsVoidOnceAnApiserverWasUnseen(t *testing.T) {
	d := newOnePlugin(t, keyA)
	d.proving(keyB)
	d.audit(stored("secrets", keyB, 3))
	b := d.seen.Instances["b"]
	b.CheckedAt = d.now.Add(-time.Hour)
	delete(d.seen.Instances, "b")
	require.Equal(t, []string{"missing"}, reasons(d.next(1)))
	d.all(keyB)
	require.Equal(t, []string{"holding"}, reasons(d.next(1)))
	require.IsType(t, rotation.RunAudit{}, d.next(hold).Actions[0])
}

func TestAKeyOfAnotherProviderMayNotGo(t *testing.T) {
	d := newOnePlugin(t, keyA)
	d.proving(keyB)
	d.audit(stored("secrets", keyB, 3), rotation.Count{Resource: "others", Provider: "theirs", KeyID: keyA, Objects: 500})
	done, ok := d.next(1).Done()
	require.True(t, ok)
	require.Equal(t, rotation.Done{KeyID: keyB, Objects: 3, Otherwise: 500, Etcds: counted, KeyIDs: []string{}}, done)
}

// Canaries are gone at the end, so they are none of the objects that it tells of; a count
// has to have them all the same.
func TestCanariesAreNoneOfTheObjectsAtTheEnd(t *testing.T) {
	d := newOnePlugin(t, keyA)
	d.proving(keyB)
	d.audit(rotation.Count{Resource: "secrets", Provider: stored("secrets", keyB, 1).Provider, KeyID: keyB, Objects: 3, Canaries: 4})
	require.Equal(t, []string{"miscounted"}, reasons(d.next(1)))
	d = newOnePlugin(t, keyA)
	d.proving(keyB)
	d.audit(rotation.Count{Resource: "secrets", Provider: stored("secrets", keyB, 1).Provider, KeyID: keyB, Objects: 3, Canaries: 2}, rotation.Count{Resource: "others", Provider: "theirs", KeyID: "sha256:theirs", Objects: 5, Canaries: 1})
	done, ok := d.next(1).Done()
	require.True(t, ok)
	require.EqualValues(t, 1, done.Objects)
	require.EqualValues(t, 4, done.Otherwise)
}

func TestNothingIsSaidForGoodBeforeAllWereShownSinceTheCount(t *testing.T) {
	d := newOnePlugin(t, keyA)
	d.proving(keyB)
	d.audit(stored("secrets", keyB, 3))
	began := d.now
	d.next(1)
	for name := range d.seen.Shown {
		s := d.seen.Shown[name]
		s.At = began
		d.seen.Shown[name] = s
	}
	state, decision := rotation.Next(d.state, d.seen, d.now)
	require.Equal(t, []string{"unshown"}, reasons(decision))
	require.Len(t, decision.Actions, 2)
	require.Zero(t, state.OnePlugin.ProvenAt)
	i := d.seen.Instances["b"]
	i.Problem = "connection refused"
	d.seen.Instances["b"] = i
	require.Equal(t, []string{"stale"}, reasons(d.next(1)))
}

func TestARotationThatWasFinishedStaysSoUntilAnotherBegins(t *testing.T) {
	d := newOnePlugin(t, keyA)
	d.proving(keyB)
	d.audit(stored("secrets", keyB, 3))
	d.next(1)
	require.True(t, d.state.OnePlugin.Finished)
	state := rotation.Resume(d.state, d.now)
	require.Zero(t, state.OnePlugin.ProvenAt)
	require.True(t, state.OnePlugin.Finished)
}
