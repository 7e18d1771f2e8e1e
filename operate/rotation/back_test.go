package rotation_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/operate/rotation"
)

func TestThereIsAWayBackUntilTheOldOneIsRemoved(t *testing.T) {
	hashes := []string{"a0", "a1", "a2", "a3"}
	s := moving(t, hashes, "old", "aescbc:k")
	for _, step := range []rotation.Step{"remove", "confirm", "done"} {
		over := s
		over.Move = &rotation.Move{Old: s.Move.Old, New: s.Move.New, Keyless: true, Step: step, KeyID: "aescbc:k"}
		_, err := over.Abort([]string{"old"}, false)
		require.ErrorIs(t, err, rotation.ErrNoWayBack)
		require.ErrorContains(t, err, "atrest rotate --to kms:old")
	}
	fell := s
	fell.Move = &rotation.Move{Old: []string{"secretbox:a", "secretbox:b", rotation.Plain}, New: s.Move.New, Keyless: true, Step: "swap", Removing: true}
	_, err := fell.Abort(fell.Move.Old, true)
	require.ErrorIs(t, err, rotation.ErrNoWayBack, "it may have been stopped since")
	require.ErrorContains(t, err, "atrest rotate --to secretbox,identity")

	one, err := rotation.NewOnePlugin(rotation.Plan{Configs: map[string][]string{"a": {"a0"}}, Resources: []string{"secrets"}}, []string{"kms"}, "")
	require.NoError(t, err)
	_, err = one.Abort(nil, false)
	require.ErrorIs(t, err, rotation.ErrNoWayBack)
	require.ErrorContains(t, err, "at the KMS")

	_, err = s.Abort([]string{"another"}, false)
	require.ErrorContains(t, err, "not what it began with")
}

// What it was to come to stays in the state, for who carries it out; what it says is of
// the way back.
func TestTheWayBackIsTheSameAgain(t *testing.T) {
	s := moving(t, []string{"a0", "a1", "a2", "a3"}, "old", "aescbc:k")
	s.Move.Step = "swap"
	back, err := s.Abort([]string{"old"}, false)
	require.NoError(t, err)
	require.Equal(t, s.Plan, back.Plan)
	require.True(t, back.Move.Begun(), "objects may be stored with it")
	again, err := back.Abort([]string{"old"}, false)
	require.NoError(t, err)
	require.Equal(t, back, again)

	steps := back.Steps()
	require.Equal(t, "go back: put old in the place of aescbc:k: from now on it writes", steps[1].What)
	require.Contains(t, steps[6].What, "destroy the backups of etcd that were made while aescbc:k was written with")

	seen := map[string]rotation.Instance{"a": {CheckedAt: start, ConfigHash: "a2", FileHash: "a2", Providers: map[string]rotation.Provider{"old": {Healthy: true, KeyID: keyA}}}}
	next, d := rotation.Next(rotation.Resume(back, start), rotation.Observation{Instances: seen}, start)
	require.Equal(t, []rotation.Action{rotation.WriteConfig{Stage: rotation.Added, Hashes: map[string]string{"a": "a1"}}}, d.Actions, "and what it goes back from need not be shown")
	require.Equal(t, back.Move.Old, next.Move.Old)
	data, err := next.Encode()
	require.NoError(t, err)
	decoded, err := rotation.Decode(data)
	require.NoError(t, err)
	require.Equal(t, next, decoded)
}

// Where nothing was written with what is gone back from, what writes does so all the time:
// that its plugin is not well is no reason to keep the other. But one that has to be
// started anew would write no more.
func TestWhatGoesOnAsItIsNeedNotBeWell(t *testing.T) {
	back, err := moving(t, []string{"a0", "a1", "a2", "a3"}, "old", "new").Abort([]string{"old"}, false)
	require.NoError(t, err)
	old := rotation.Provider{Problem: "denied", KeyID: keyA, WroteKeyID: keyA, WroteAt: start}
	seen := rotation.Instance{CheckedAt: start, ConfigHash: "a1", FileHash: "a1", Providers: map[string]rotation.Provider{"old": old, "new": {Problem: "unreachable"}}}
	for _, fixed := range []bool{false, true} {
		seen.Fixed = fixed
		o := showing(map[string]rotation.Instance{"a": seen})
		next, d := rotation.Next(rotation.Resume(back, start.Add(-1)), o, start)
		if fixed {
			require.Empty(t, d.Actions)
			require.Equal(t, "unhealthy: a; a: provider old: denied", d.Waiting[0].String())
			continue
		}
		require.NotEmpty(t, d.Actions)
		require.IsType(t, rotation.RunAudit{}, d.Actions[0])
		now := start.Add(time.Second)
		seen.CheckedAt = now
		o = rotation.Observation{Instances: map[string]rotation.Instance{"a": seen}, Shown: map[string]rotation.Shown{"a": shownOf(seen, now, map[string]rotation.Instance{"a": seen})},
			Audit: &rotation.Audit{StartedAt: now.Add(-1), Etcds: []rotation.Etcd{{Cluster: 1}}, Counts: []rotation.Count{{Resource: "secrets", Provider: "old", KeyID: keyA, Objects: 1}}}}
		_, d = rotation.Next(next, o, now)
		require.Equal(t, []rotation.Action{rotation.WriteConfig{Stage: rotation.Before, Hashes: map[string]string{"a": "a0"}}}, d.Actions)
	}
}
