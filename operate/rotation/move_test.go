package rotation_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/operate/rotation"
)

// hashes are those of the configurations of apiservers a and b, which have
// files of their own.
var hashes = map[string][]string{"a": {"a0", "a1", "a2", "a3"}, "b": {"b0", "b1", "b2", "b3"}}

func newMoveTest(t *testing.T) *driver {
	t.Helper()
	s, err := rotation.NewMove(rotation.Plan{
		Configs: hashes, Resources: []string{"secrets"}, Hold: rotation.Duration(hold),
	}, []string{"old"}, []string{"new"})
	require.NoError(t, err)
	d := &driver{t: t, state: s, now: start, seen: rotation.Observation{Instances: map[string]rotation.Instance{}}}
	d.has("a", 0)
	d.has("b", 0)
	return d
}

// has lets an apiserver have the configuration of a stage, and write with it.
func (d *driver) has(name string, stage int) {
	i := rotation.Instance{CheckedAt: d.now, ConfigHash: hashes[name][stage], FileHash: hashes[name][stage], Providers: map[string]rotation.Provider{}}
	if stage < 3 {
		i.Providers["old"] = rotation.Provider{Healthy: true, KeyID: keyA}
	}
	if stage > 0 {
		i.Providers["new"] = rotation.Provider{Healthy: true, KeyID: keyB}
	}
	if stage > 1 {
		i.Providers["new"] = rotation.Provider{Healthy: true, KeyID: keyB, WroteKeyID: keyB, WroteAt: d.now}
	}
	d.seen.Instances[name] = i
}

func (d *driver) provider(name, provider string, change func(*rotation.Provider)) {
	p := d.seen.Instances[name].Providers[provider]
	change(&p)
	d.seen.Instances[name].Providers[provider] = p
}

func write(stage rotation.Stage, hashes map[string]string) []rotation.Action {
	return []rotation.Action{rotation.WriteConfig{Stage: stage, Hashes: hashes}}
}

// swapped brings the driver to where all write with the new provider, long
// enough.
func (d *driver) swapped() rotation.Decision {
	d.has("a", 1)
	d.has("b", 1)
	require.Equal(d.t, write(rotation.Swapped, map[string]string{"a": "a2"}), d.next(1).Actions)
	d.has("a", 2)
	require.Equal(d.t, write(rotation.Swapped, map[string]string{"b": "b2"}), d.next(1).Actions)
	d.has("b", 2)
	require.Equal(d.t, []string{"holding"}, reasons(d.next(1)))
	return d.next(hold)
}

func TestTheOneThatIsNamedComesFirst(t *testing.T) {
	d := newMoveTest(t)
	d.state.Plan.First = "b"
	require.Equal(t, write(rotation.Added, map[string]string{"b": "b1"}), d.next(1).Actions)
	d.has("b", 1)
	require.Equal(t, write(rotation.Added, map[string]string{"a": "a1"}), d.next(1).Actions)
	d.has("a", 1)
	require.Equal(t, write(rotation.Swapped, map[string]string{"b": "b2"}), d.next(1).Actions)
	d.state.Plan.First = "gone"
	require.Equal(t, write(rotation.Swapped, map[string]string{"a": "a2"}), d.next(1).Actions, "it was replaced meanwhile")
}

func TestTwoPluginsFromTheBeginningToTheEnd(t *testing.T) {
	d := newMoveTest(t)
	require.Equal(t, write(rotation.Added, map[string]string{"a": "a1"}), d.next(1).Actions)
	d.has("a", 1)
	decision := d.next(1)
	require.Equal(t, write(rotation.Added, map[string]string{"b": "b1"}), decision.Actions)
	require.Equal(t, []rotation.Waiting{{Reason: "other_config", Instances: []string{"b"}, Details: map[string]string{"b": "has the one of stage before"}}}, decision.Waiting)
	decision = d.swapped()
	require.Equal(t, []rotation.Action{rotation.Migrate{Goal: rotation.Goal{KeyID: keyB, Round: 1}, Providers: []string{"new"}, Resources: []string{"secrets"}}}, decision.Actions)
	d.report(rotation.Succeeded, "secrets")
	require.Equal(t, []rotation.Action{rotation.RunAudit{After: d.now.Add(1), Resources: []string{"secrets"}}}, d.next(1).Actions)
	d.audit(rotation.Count{Resource: "secrets", Provider: "new", KeyID: keyB, Objects: 9}, rotation.Count{Resource: "secrets", Objects: 2})
	require.Equal(t, write(rotation.Removed, map[string]string{"a": "a3", "b": "b3"}), d.next(1).Actions)
	d.has("b", 3)
	require.Equal(t, write(rotation.Removed, map[string]string{"a": "a3"}), d.next(1).Actions)
	d.has("a", 3)
	require.Equal(t, []string{"holding"}, reasons(d.next(1)))
	require.Equal(t, []rotation.Action{rotation.RunAudit{After: d.now.Add(hold), Resources: []string{"secrets"}}}, d.next(hold).Actions, "it is counted once more")
	d.audit(newSecrets(8), rotation.Count{Resource: "secrets", Objects: 2})
	want := rotation.Decision{Actions: []rotation.Action{rotation.Done{KeyID: keyB, Objects: 8, Otherwise: 2, Etcds: counted, Providers: []string{"old"}, KeyIDs: []string{keyA}}}}
	require.Equal(t, want, d.next(1))
	require.Equal(t, want, d.next(time.Hour), "it stays finished")
	delete(d.seen.Instances, "a")
	require.Equal(t, []string{"missing"}, reasons(d.next(1)), "while it is seen to be")
}

// newSecrets are so many that are stored with the new provider.
func newSecrets(n int64) rotation.Count {
	return rotation.Count{Resource: "secrets", Provider: "new", KeyID: keyB, Objects: n}
}

func TestI1NobodyWritesWhatAnotherCannotRead(t *testing.T) {
	for name, unsettle := range map[string]func(d *driver){
		"one has the file before":       func(d *driver) { d.has("b", 0) },
		"one is missing":                func(d *driver) { delete(d.seen.Instances, "b") },
		"one is unknown":                func(d *driver) { d.seen.Instances["b"] = rotation.Instance{Problem: "refused"} },
		"one has a file of its own":     func(d *driver) { d.seen.Instances["b"] = writing(d.now, "x", keyA) },
		"one has no healthy new plugin": func(d *driver) { d.provider("b", "new", func(p *rotation.Provider) { p.Healthy = false }) },
		"one has another version of it": func(d *driver) { d.provider("b", "new", func(p *rotation.Provider) { p.KeyID = keyC }) },
		"one tells nothing of it":       func(d *driver) { delete(d.seen.Instances["b"].Providers, "new") },
		"one tells nothing of the file": func(d *driver) { i := d.seen.Instances["b"]; i.ConfigHash = ""; d.seen.Instances["b"] = i },
	} {
		t.Run(name, func(t *testing.T) {
			d := newMoveTest(t)
			d.has("a", 1)
			d.has("b", 1)
			unsettle(d)
			for range 3 {
				for _, a := range d.next(time.Hour).Actions {
					require.NotEqual(t, rotation.Swapped, a.(rotation.WriteConfig).Stage)
				}
			}
		})
	}
}

func TestI2NothingIsWrittenOverAFileOfSomebodyElse(t *testing.T) {
	d := newMoveTest(t)
	d.seen.Instances["b"] = writing(d.now, "x", keyA)
	decision := d.next(1)
	require.Empty(t, decision.Actions)
	require.Contains(t, reasons(decision), "foreign_config")
}

func TestASwapIsHeldFromTheFirstWriteThatWasSeen(t *testing.T) {
	d := newMoveTest(t)
	d.has("a", 1)
	d.has("b", 1)
	d.next(1)
	before := d.now.Add(-1)
	d.has("a", 2)
	d.has("b", 2)
	d.provider("b", "new", func(p *rotation.Provider) { p.WroteAt = before }) // of a rotation long ago
	decision := d.next(time.Hour)
	require.Equal(t, []string{"unproven"}, reasons(decision))
	require.Equal(t, []rotation.Action{rotation.Canary{Instance: "b", Providers: []string{"new"}}}, decision.Actions)
	d.has("b", 2)
	require.Equal(t, []string{"holding"}, reasons(d.next(1)))
	delete(d.seen.Instances, "a")
	require.Equal(t, []string{"missing"}, reasons(d.next(1)))
	d.has("a", 2)
	require.Empty(t, d.next(hold).Actions)
	require.IsType(t, rotation.Migrate{}, d.next(hold).Actions[0])
}

func TestI3I14TheOldProviderStaysUntilNothingNeedsIt(t *testing.T) {
	d := newMoveTest(t)
	d.swapped()
	d.audit() // before the migration ended
	require.IsType(t, rotation.Migrate{}, d.next(1).Actions[0])
	d.report(rotation.Succeeded, "secrets")
	d.now = d.now.Add(1)
	require.IsType(t, rotation.RunAudit{}, d.next(1).Actions[0])
	d.audit(rotation.Count{Resource: "secrets", Provider: "old", KeyID: keyA, Objects: 1})
	require.Equal(t, []string{"left"}, reasons(d.next(1)))
	require.Equal(t, rotation.Goal{KeyID: keyB, Round: 2}, d.next(hold).Actions[0].(rotation.Migrate).Goal)
	d.report(rotation.Succeeded, "secrets")
	d.next(1)
	d.audit(newSecrets(1))
	i := d.seen.Instances["b"]
	delete(d.seen.Instances, "b")
	require.Equal(t, []string{"missing"}, reasons(d.next(1)), "b may write with the old one, for all that is known")
	d.seen.Instances["b"] = i
	require.Equal(t, []string{"holding"}, reasons(d.next(1)))
	require.IsType(t, rotation.RunAudit{}, d.next(hold).Actions[0], "which is not counted")
	d.audit(newSecrets(1))
	require.Equal(t, rotation.Removed, d.next(1).Actions[0].(rotation.WriteConfig).Stage)
}

func TestAnApiserverThatGoesBackTakesTheRotationBack(t *testing.T) {
	for name, to := range map[string]int{"to the one added": 1, "to the one before": 0} {
		t.Run(name, func(t *testing.T) {
			d := newMoveTest(t)
			d.swapped()
			d.report(rotation.Succeeded, "secrets")
			d.next(1)
			d.audit(newSecrets(1))
			require.Equal(t, rotation.Removed, d.next(1).Actions[0].(rotation.WriteConfig).Stage)
			d.has("b", to)
			require.Equal(t, write(rotation.Stages[to+1], map[string]string{"b": hashes["b"][to+1]}), d.next(1).Actions)
			d.has("b", 1)
			require.Equal(t, write(rotation.Swapped, map[string]string{"b": "b2"}), d.next(1).Actions)
			d.has("a", 2) // has written since
			d.has("b", 2)
			require.Equal(t, []string{"holding"}, reasons(d.next(1)))
			require.Equal(t, rotation.Goal{KeyID: keyB, Round: 2}, d.next(hold).Actions[0].(rotation.Migrate).Goal, "what it wrote is looked for again")
		})
	}
}

func TestANewRotationFindsOutHowFarTheLastOneGot(t *testing.T) {
	d := newMoveTest(t)
	d.has("a", 2)
	d.has("b", 2)
	require.Equal(t, []string{"unshown"}, reasons(d.next(0)), "nobody knows since when")
	d.now = d.now.Add(1)
	d.has("a", 2)
	d.has("b", 2)
	require.Equal(t, []string{"holding"}, reasons(d.next(0)))
}

// removed brings the driver to where the old provider is gone, and is counted again.
func (d *driver) removed() {
	d.swapped()
	d.report(rotation.Succeeded, "secrets")
	d.next(1)
	d.audit(newSecrets(3))
	require.IsType(d.t, rotation.WriteConfig{}, d.next(1).Actions[0])
	d.has("a", 3)
	d.has("b", 3)
	d.next(1)
	require.IsType(d.t, rotation.RunAudit{}, d.next(hold).Actions[0])
}

func TestWhatNeedsAProviderThatIsGoneHasItComeBack(t *testing.T) {
	d := newMoveTest(t)
	d.removed()
	d.audit(newSecrets(3), rotation.Count{Resource: "secrets", Provider: "old", KeyID: keyA, Objects: 1})
	require.Equal(t, write(rotation.Swapped, map[string]string{"a": "a2", "b": "b2"}), d.next(1).Actions)
	d.has("a", 2)
	d.has("b", 2)
	require.Equal(t, []string{"holding"}, reasons(d.next(1)))
	require.IsType(t, rotation.Migrate{}, d.next(hold).Actions[0])
}

func TestARotationThatIsFinishedProvesItselfAndChangesNothing(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(d *driver)
		want   []string
	}{
		"another configuration":   {func(d *driver) { d.has("b", 2) }, []string{"other_config"}},
		"the first configuration": {func(d *driver) { d.has("b", 0) }, []string{"missing", "other_config"}},
		"one of somebody else":    {func(d *driver) { i := d.seen.Instances["b"]; i.ConfigHash = "x"; d.seen.Instances["b"] = i }, []string{"foreign_config"}},
		"an object that needs it": {func(d *driver) {
			d.audit(newSecrets(3), rotation.Count{Resource: "secrets", Provider: "old", Objects: 2})
		}, []string{"lost"}},
		"one that nobody named":    {func(d *driver) { d.seen.Instances["c"] = rotation.Instance{} }, []string{"unnamed"}},
		"one that writes no more":  {func(d *driver) { d.unshown = []string{"b"} }, []string{"unshown"}},
		"a count of nothing":       {func(d *driver) { d.audit() }, []string{"miscounted"}},
		"a count of less":          {func(d *driver) { d.audit(newSecrets(3), newSecrets(-1)) }, []string{"miscounted"}},
		"a count of another etcd":  {func(d *driver) { d.audit(newSecrets(3)); d.seen.Audit.Etcds = nil }, []string{"miscounted"}},
		"a count without a canary": {func(d *driver) { d.audit(rotation.Count{Resource: "others", Objects: 3}) }, []string{"miscounted"}},
	} {
		t.Run(name, func(t *testing.T) {
			d := newMoveTest(t)
			d.removed()
			d.audit(newSecrets(3))
			_, done := d.next(1).Done()
			require.True(t, done)
			d.state = rotation.Resume(d.state, d.now)
			require.Equal(t, []string{"holding"}, reasons(d.next(1)))
			d.next(hold)
			d.audit(newSecrets(3))
			tc.change(d)
			decision := d.next(1)
			require.Subset(t, reasons(decision), tc.want)
			for _, a := range decision.Actions {
				require.IsType(t, rotation.Canary{}, a)
			}
			if tc.want[0] == "lost" {
				require.Contains(t, decision.Waiting[0].String(), "lost 2 objects; secrets: [2 under provider old, which does not tell its key]; put old back")
			}
		})
	}
}

func TestOnlyWhatNothingIsStoredUnderAnywhereMayGo(t *testing.T) {
	for name, tc := range map[string]struct {
		more rotation.Count
		tell string
		want []string
	}{
		"nothing has it":                          {want: []string{keyA}},
		"another provider has it":                 {more: rotation.Count{Resource: "configmaps", Provider: "theirs", KeyID: keyA, Objects: 500}},
		"another provider had it":                 {more: rotation.Count{Resource: "configmaps", Provider: "theirs", KeyID: keyA}, want: []string{keyA}},
		"another provider does not tell":          {more: rotation.Count{Resource: "configmaps", Provider: "theirs", Objects: 1}},
		"another provider of an apiserver has it": {tell: keyA},
	} {
		d := newMoveTest(t)
		d.removed()
		if tc.tell != "" {
			d.provider("b", "theirs", func(p *rotation.Provider) { p.KeyID = tc.tell })
		}
		d.audit(newSecrets(3), rotation.Count{Resource: "plain", Objects: 1}, tc.more)
		done, ok := d.next(1).Done()
		require.True(t, ok, name)
		require.Equal(t, tc.want, append([]string(nil), done.KeyIDs...), name)
		require.Equal(t, []string{"old"}, done.Providers)
	}
}

func TestAPluginWithTheKeyOfTheOldOneDoesNotFollowIt(t *testing.T) {
	d := newMoveTest(t)
	for _, name := range []string{"a", "b"} {
		d.has(name, 1)
		d.provider(name, "new", func(p *rotation.Provider) { p.KeyID = keyA })
	}
	decision := d.next(1)
	require.Empty(t, decision.Actions)
	require.Equal(t, []string{"same_key"}, reasons(decision))
	require.Contains(t, decision.Waiting[0].String(), "give the new plugin a key of its own")
}

func TestNoFileChangesBeforeItIsShownWhoseEtcdItIs(t *testing.T) {
	d := newMoveTest(t)
	d.unshown = []string{"b"}
	for range 3 {
		decision := d.next(time.Minute)
		require.Equal(t, []rotation.Action{rotation.Canary{Instance: "b", Providers: []string{"old"}}}, decision.Actions)
		require.Equal(t, []string{"unshown"}, reasons(decision))
	}
	d.unshown = nil
	require.IsType(t, rotation.WriteConfig{}, d.next(1).Actions[0])
}
