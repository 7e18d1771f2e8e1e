package rotation_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/internal/explore"
	"github.com/kube-atrest/atrest/operate/rotation"
)

// untold is Next in a world like that of two plugins, in which no apiserver tells anything
// of the new one: it is a key in the file, say. What is shown is all there is to go by.
func untold(key string) machine {
	return func(s rotation.State, o rotation.Observation, now time.Time) (rotation.State, rotation.Decision) {
		named := func(s rotation.State, new, keyID string, keyless bool) rotation.State {
			m := *s.Move
			m.New, m.Keyless = []string{new}, keyless
			if m.KeyID != "" {
				m.KeyID = keyID
			}
			s.Move = &m
			if s.Migration != nil {
				migration := *s.Migration
				migration.Goal.KeyID, migration.Goal.Keyless = keyID, keyless
				s.Migration = &migration
			}
			return s
		}
		s, d := rotation.Next(named(s, key, strings.TrimSuffix(key, ":"), true), keylessly(o, key), now)
		return named(s, "new", keyB, false), d
	}
}

// keylessly is an observation of the same world where the plugin new is this key.
func keylessly(o rotation.Observation, key string) rotation.Observation {
	for name, i := range o.Instances {
		delete(i.Providers, "new")
		if shown, ok := o.Shown[name]; ok && shown.KeyIDs["new"] != "" {
			shown.KeyIDs = map[string]string{key: ""}
			o.Shown[name] = shown
		}
	}
	for i, p := range o.Migrations {
		p.Goal.KeyID, p.Goal.Keyless = strings.TrimSuffix(key, ":"), true
		o.Migrations[i] = p
	}
	if o.Audit != nil {
		for i, c := range o.Audit.Counts {
			if c.Provider == "new" {
				o.Audit.Counts[i] = rotation.Count{Resource: c.Resource, Provider: key, Objects: c.Objects}
			}
		}
	}
	return o
}

func TestAMoveToWhatHasNoKeyIDIsSearchedCompletely(t *testing.T) {
	explore.Long(t)
	for _, key := range []string{"secretbox:key-1", rotation.Plain} {
		found := explore.All(twoStart(), func(w two) []explore.Move[two] { return w.moves(untold(key)) })
		found.RequireSound(t, func(w two) bool {
			return twoSteps[w.rotation.step] == "done" || w.rotation.finished && w.meddled // who did that has to undo it
		})
	}
}

// What is shown is what holds it up, as no apiserver tells what it writes under.
func TestTheModelOfAMoveWithoutKeyIDsCatchesABrokenMachine(t *testing.T) {
	explore.Long(t)
	believed := untold("aescbc:key-1")
	found := explore.All(twoStart(), func(w two) []explore.Move[two] {
		return w.moves(func(s rotation.State, o rotation.Observation, now time.Time) (rotation.State, rotation.Decision) {
			plan := s.Plan
			s.Plan.Hold = 0
			s, d := believed(s, o, now)
			s.Plan = plan
			return s, d
		})
	})
	require.Contains(t, found.Wrong, "I3")
}

// moving is a move of one apiserver from old to new, at its beginning.
func moving(t *testing.T, hashes []string, old, new string) rotation.State {
	t.Helper()
	s, err := rotation.NewMove(rotation.Plan{Configs: map[string][]string{"a": hashes}, Resources: []string{"secrets"}, Hold: rotation.Duration(hold)}, []string{old}, []string{new})
	require.NoError(t, err)
	require.Equal(t, slices.Contains([]string{"aescbc:k", rotation.Plain}, new), s.Move.Keyless)
	return s
}

// Identity may be read with from the beginning: then the first step is no change of a file.
func TestWhatIsReadWithAlreadyNeedNotBeAdded(t *testing.T) {
	hashes := []string{"a0", "a0", "a2", "a3"}
	s := moving(t, hashes, "old", rotation.Plain)
	seen := map[string]rotation.Instance{"a": {CheckedAt: start, ConfigHash: "a0", FileHash: "a0", Providers: map[string]rotation.Provider{"old": {Healthy: true, KeyID: keyA}}}}
	s, d := rotation.Next(s, rotation.Observation{Instances: seen}, start)
	require.Equal(t, []rotation.Action{rotation.Canary{Instance: "a", Providers: []string{"old"}}}, d.Actions, "what it writes with is shown first")
	shown := map[string]rotation.Shown{"a": {At: start, Identities: rotation.Identities(seen), KeyIDs: map[string]string{"old": keyA}, Resources: []string{"secrets"}, Etcds: []uint64{1}}}
	_, d = rotation.Next(s, rotation.Observation{Instances: seen, Shown: shown}, start.Add(time.Second))
	require.Equal(t, []rotation.Action{rotation.WriteConfig{Stage: rotation.Swapped, Hashes: map[string]string{"a": "a2"}}}, d.Actions)

	_, err := rotation.NewMove(rotation.Plan{Configs: map[string][]string{"a": hashes}, Resources: []string{"secrets"}}, []string{"old"}, []string{"new"})
	require.ErrorContains(t, err, "4 that differ", "a plugin cannot be there already")
}

func TestTheEndOfAMoveSaysWhatMayGo(t *testing.T) {
	done := rotation.Done{With: []string{"aescbc:k"}, Objects: 3, Keys: []string{"secretbox:old"}}
	require.Equal(t, "finished: 3 objects with aescbc:k, 0 otherwise; key secretbox:old may be destroyed once no backup needs it", done.String())
	done = rotation.Done{With: []string{rotation.Plain}, Objects: 1, Providers: []string{"old"}}
	require.Equal(t, "finished: 1 object as plain text, 0 otherwise; the plugin of old may be stopped", done.String())
}

func TestAProviderIsLocalByItsName(t *testing.T) {
	for name, want := range map[string][2]string{"aescbc:k:1": {"aescbc", "k:1"}, rotation.Plain: {"identity", ""}, "secretbox:": {"secretbox", ""}} {
		kind, key, ok := rotation.Local(name)
		require.True(t, ok, name)
		require.Equal(t, want, [2]string{kind, key})
	}
	for _, name := range []string{"kms", "identity", "v1:with:colons", ""} {
		_, _, ok := rotation.Local(name)
		require.False(t, ok, name)
	}
}

// No apiserver tells a key_id of KMS v1; what one tells of its plugin counts all the same.
func TestAPluginWithoutKeyIDsHasToBeHealthyWhereItIsToldOf(t *testing.T) {
	seen := func(healthy bool) map[string]rotation.Instance {
		return map[string]rotation.Instance{"a": {CheckedAt: start, ConfigHash: "a1", FileHash: "a1", Providers: map[string]rotation.Provider{
			"v1": {Healthy: healthy, Problem: map[bool]string{false: "unreachable"}[healthy]}}}}
	}
	next := func(seen map[string]rotation.Instance) rotation.Decision {
		s := moving(t, []string{"a0", "a1", "a2", "a3"}, "aescbc:k", "v1")
		s.Move.Keyless = true
		shown := map[string]rotation.Shown{"a": {At: start, Identities: rotation.Identities(seen), KeyIDs: map[string]string{"aescbc:k": ""}, Resources: []string{"secrets"}, Etcds: []uint64{1}}}
		_, d := rotation.Next(s, rotation.Observation{Instances: seen, Shown: shown}, start.Add(time.Second))
		return d
	}
	d := next(seen(false))
	require.Empty(t, d.Actions)
	require.Equal(t, []rotation.Waiting{{Reason: "unhealthy", Instances: []string{"a"}, Details: map[string]string{"a": "provider v1: unreachable"}}}, d.Waiting)
	d = next(seen(true))
	require.Equal(t, []rotation.Action{rotation.WriteConfig{Stage: rotation.Swapped, Hashes: map[string]string{"a": "a2"}}}, d.Actions)
	d = next(map[string]rotation.Instance{"a": {CheckedAt: start, ConfigHash: "a1", FileHash: "a1"}})
	require.NotEmpty(t, d.Actions, "a kube-apiserver tells nothing of it")
}
