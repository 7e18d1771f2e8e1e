package rotation_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/operate/rotation"
)

func TestAStateSurvivesItsFile(t *testing.T) {
	one, two := newOnePlugin(t, keyA), newMoveTest(t)
	one.migrated(keyB)
	one.all(keyC)
	one.next(1)
	two.swapped()
	two.report(rotation.Failed, "secrets")
	two.next(1)
	for _, s := range []rotation.State{one.state, two.state} {
		data, err := s.Encode()
		require.NoError(t, err)
		back, err := rotation.Decode(data)
		require.NoError(t, err)
		require.Equal(t, s, back)
	}
}

func TestAStateThatIsNotWholeIsRefused(t *testing.T) {
	good, err := newMoveTest(t).state.Encode()
	require.NoError(t, err)
	one, err := newOnePlugin(t, "").state.Encode()
	require.NoError(t, err)
	change := func(data []byte, old, new string) []byte {
		require.Contains(t, string(data), old)
		return []byte(strings.Replace(string(data), old, new, 1))
	}
	for want, data := range map[string][]byte{
		"not JSON":                    good[:len(good)/2],
		"version 2, this program":     change(good, `"version": 1`, `"version": 2`),
		`unknown field "more"`:        change(good, `"version": 1`, `"version": 1, "more": 1`),
		"after top-level value":       append(good[:len(good):len(good)], "{}"...),
		"exactly one of":              []byte(`{"version": 1}`),
		"no apiserver is expected":    []byte(`{"version": 1, "onePlugin": {"providers": ["x"]}}`),
		`step "stop" is not known`:    change(good, `"step": "add"`, `"step": "stop"`),
		"a migration belongs to step": change(good, `"step": "add"`, `"keyID": "x", "step": "migrate"`),
		"needs the key_id":            change(good, `"step": "add"`, `"step": "prove"`),
		"it needs a name and 4":       change(good, `"a1",`, ""),
		"that differ":                 change(good, `"a1"`, `"a0"`),
		"round -1":                    change(good, `"round": 0`, `"round": -1`),
		"the old providers are":       change(good, `"old"`+"\n", `""`+"\n"),
		"has the name of the old one": change(good, `"new"`+"\n", `"old"`+"\n"),
		"maxAge 0s":                   change(good, `"maxAge": "2m0s"`, `"maxAge": "0s"`),
		"invalid duration":            change(good, `"maxAge": "2m0s"`, `"maxAge": "soon"`),
		"the resources are":           change(good, `"secrets"`, `"secrets", "secrets"`),
		"needs both its key_id":       change(one, `"onePlugin": {`, `"onePlugin": {"candidate": {"keyID": "x", "since": "0001-01-01T00:00:00Z"},`),
		"no migration is under way":   change(one, `"onePlugin": {`, `"onePlugin": {"target": "x",`),
		"the rotation is in round 0":  change(one, `"round": 0`, `"round": 0, "migration": {"goal": {"keyID": "x", "round": 3}, "resources": []}`),
		"at most 4194304 are read":    make([]byte, rotation.MaxSize+1),
	} {
		_, err := rotation.Decode(data)
		require.ErrorContains(t, err, want)
	}
}

func TestNextOfAStateThatIsNotWholeDoesNothing(t *testing.T) {
	s, d := rotation.Next(rotation.State{}, rotation.Observation{}, start)
	require.Equal(t, rotation.State{}, s)
	require.Empty(t, d.Actions)
	require.Nil(t, rotation.State{}.Steps())
}

func TestAClockThatIsSetBackOnlyDelays(t *testing.T) {
	d := newOnePlugin(t, keyA)
	d.all(keyB)
	d.next(0)
	d.next(hold)
	d.report(rotation.Succeeded, "secrets", "configmaps")
	d.next(1)
	d.now = d.now.Add(-24 * time.Hour)
	d.all(keyB)
	require.Equal(t, []string{"holding"}, reasons(d.next(1)))
	d.next(hold)
	d.audit(stored("secrets", keyB, 1))
	_, done := d.next(1).Done()
	require.True(t, done)
	d.all(keyC)
	d.next(1)
	d.now = d.now.Add(-24 * time.Hour)
	d.all(keyC)
	require.Empty(t, d.next(1).Actions)
	require.IsType(t, rotation.Migrate{}, d.next(hold).Actions[0])
}

func TestThePlanIsShownAndFollowed(t *testing.T) {
	now := func(s rotation.State) int {
		for i, step := range s.Steps() {
			require.NotEmpty(t, step.What)
			require.NotEmpty(t, step.Gate)
			if step.Now {
				return i
			}
			require.True(t, step.Done)
		}
		return -1
	}
	d := newMoveTest(t)
	require.Len(t, d.state.Steps(), 7)
	require.Equal(t, 0, now(d.state))
	require.Contains(t, d.state.Steps()[0].Gate, "each of a, b")
	d.swapped()
	require.Equal(t, 2, now(d.state))

	d = newOnePlugin(t, keyA)
	require.Equal(t, 0, now(d.state))
	d.all(keyB)
	d.next(1)
	require.Equal(t, 1, now(d.state))
	d.next(hold)
	require.Equal(t, 2, now(d.state))
	d.report(rotation.Succeeded, "secrets", "configmaps")
	d.next(1)
	require.Equal(t, 3, now(d.state))
	d.audit(stored("secrets", keyB, 1))
	d.next(1)
	require.Equal(t, 4, now(d.state))
}

func TestADecisionIsReadByPrograms(t *testing.T) {
	data, err := json.Marshal(rotation.Decision{
		Actions: []rotation.Action{rotation.Canary{Instance: "a", Providers: []string{"kms"}}},
		Waiting: []rotation.Waiting{{Reason: "unproven", Instances: []string{"a"}}},
	})
	require.NoError(t, err)
	require.JSONEq(t, `{"actions": [{"canary": {"instance": "a", "providers": ["kms"]}}], "waiting": [{"reason": "unproven", "instances": ["a"]}]}`, string(data))
}

func TestActionsReadAsOneLine(t *testing.T) {
	for want, action := range map[string]rotation.Action{
		`write the configuration "added" for a, b`:        rotation.WriteConfig{Stage: rotation.Added, Hashes: map[string]string{"b": "1", "a": "2"}},
		"write one object through a with kms":             rotation.Canary{Instance: "a", Providers: []string{"kms"}},
		"rewrite secrets under key_id x of kms (round 2)": rotation.Migrate{Goal: rotation.Goal{KeyID: "x", Round: 2}, Providers: []string{"kms"}, Resources: []string{"secrets"}},
		"count what secrets are stored under":             rotation.RunAudit{Resources: []string{"secrets"}},
		"finished: 1 object under key_id x, 0 otherwise; the plugin of old may be stopped; key_id y, z may be disabled once no backup needs it": rotation.Done{
			KeyID: "x", Objects: 1, Providers: []string{"old"}, KeyIDs: []string{"y", "z"}},
		"finished: 2 objects under key_id x, 3 otherwise, counted in etcd cluster ab at revision 7; no key_id may be disabled, as it is not known which 3 objects stored by KMS v1 need": rotation.Done{
			KeyID: "x", Objects: 2, Otherwise: 3, Untold: 3, Etcds: []rotation.Etcd{{Cluster: 0xab, Revision: 7}}},
	} {
		require.Equal(t, want, action.String())
	}
}

// Two clusters may have the same files, and a folder may be taken for that of the other.
func TestARotationStaysInItsCluster(t *testing.T) {
	one := newOnePlugin(t, keyA)
	one.all(keyA)
	for _, d := range []*driver{one, newMoveTest(t)} {
		d.next(1)
		require.Equal(t, []uint64{1}, d.state.Etcds)
		d.state.Etcds = []uint64{2}
		before := d.state
		decision := d.next(1)
		require.Equal(t, []string{"unshown"}, reasons(decision))
		require.Empty(t, decision.Actions)
		require.Contains(t, decision.Waiting[0].Details["a"], "it stores in etcd cluster 1, and this rotation is of 2: name a new folder")
		require.Equal(t, before, d.state, "nothing that is met there is remembered")
		d.unshown = []string{"a", "b"}
		d.provider("a", "old", func(p *rotation.Provider) { p.KeyID = "met in doubt" })
		d.next(1)
		data, err := d.state.Encode()
		require.NoError(t, err)
		require.NotContains(t, string(data), "met in doubt")
	}
}
