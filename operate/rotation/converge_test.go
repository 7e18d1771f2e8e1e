package rotation_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/internal/hashed"
	"github.com/kube-atrest/atrest/operate/rotation"
)

var (
	start = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	keyA  = hashed.ID("A")
	keyB  = hashed.ID("B")
	keyC  = hashed.ID("C")
)

// writing is an apiserver that writes with key under the configuration.
func writing(at time.Time, config, key string) rotation.Instance {
	return rotation.Instance{CheckedAt: at, ConfigHash: config, Providers: map[string]rotation.Provider{
		"kms": {Healthy: true, KeyID: key, WroteKeyID: key, WroteAt: at}}}
}

func with(i rotation.Instance, change func(*rotation.Provider)) rotation.Instance {
	p := i.Providers["kms"]
	change(&p)
	i.Providers = map[string]rotation.Provider{"kms": p}
	return i
}

func converge(instances map[string]rotation.Instance) rotation.Convergence {
	return rotation.Converge(rotation.Expected{Instances: []string{"c", "b", "a"}, Providers: []string{"kms"}, MaxAge: 2 * time.Minute},
		showing(instances), start)
}

// showing is an observation in which all was shown of the instances.
func showing(instances map[string]rotation.Instance) rotation.Observation {
	o := rotation.Observation{Instances: instances, Shown: map[string]rotation.Shown{}}
	for name, i := range instances {
		o.Shown[name] = shownOf(i, start, instances)
	}
	return o
}

func three(change func(map[string]rotation.Instance)) map[string]rotation.Instance {
	all := map[string]rotation.Instance{"a": writing(start, "", keyB), "b": writing(start, "", keyB), "c": writing(start, "", keyB)}
	change(all)
	return all
}

func TestConvergedIsOneHealthyKeyThatAllWriteUnder(t *testing.T) {
	c := converge(three(func(map[string]rotation.Instance) {}))
	require.Equal(t, rotation.Convergence{KeyID: keyB}, c)
}

func TestI10WhatIsInTheWayIsNamed(t *testing.T) {
	old := writing(start.Add(-2*time.Minute-1), "", keyB)
	for name, tc := range map[string]struct {
		change func(map[string]rotation.Instance)
		want   []rotation.Waiting
	}{
		"never seen": {func(all map[string]rotation.Instance) { delete(all, "b") },
			[]rotation.Waiting{{Reason: "missing", Instances: []string{"b"}}}},
		"never answered": {func(all map[string]rotation.Instance) { all["b"] = rotation.Instance{Problem: "refused"} },
			[]rotation.Waiting{{Reason: "missing", Instances: []string{"b"}, Details: map[string]string{"b": "refused"}}}},
		"without the provider": {func(all map[string]rotation.Instance) { all["b"] = rotation.Instance{CheckedAt: start} },
			[]rotation.Waiting{{Reason: "missing", Instances: []string{"b"}, Details: map[string]string{"b": "tells nothing of provider kms"}}}},
		"old": {func(all map[string]rotation.Instance) { all["c"] = old },
			[]rotation.Waiting{{Reason: "stale", Instances: []string{"c"}}}},
		"from the future": {func(all map[string]rotation.Instance) { all["c"] = writing(start.Add(time.Hour), "", keyB) },
			[]rotation.Waiting{{Reason: "stale", Instances: []string{"c"}}}},
		"unhealthy": {func(all map[string]rotation.Instance) {
			all["a"] = with(all["a"], func(p *rotation.Provider) { p.Healthy, p.Problem = false, "status_error" })
		}, []rotation.Waiting{{Reason: "unhealthy", Instances: []string{"a"}, Details: map[string]string{"a": "provider kms: status_error"}}}},
		"no key_id": {func(all map[string]rotation.Instance) {
			all["a"] = with(all["a"], func(p *rotation.Provider) { p.KeyID = "" })
		}, []rotation.Waiting{{Reason: "unhealthy", Instances: []string{"a"}, Details: map[string]string{"a": "knows no key_id of provider kms"}}}},
		"divergent": {func(all map[string]rotation.Instance) { all["b"] = writing(start, "", keyA) },
			[]rotation.Waiting{{Reason: "divergent", Instances: []string{"a", "b", "c"}, KeyIDs: map[string][]string{keyA: {"b"}, keyB: {"a", "c"}}}}},
		"still writing under the old one": {func(all map[string]rotation.Instance) {
			all["b"] = with(all["b"], func(p *rotation.Provider) { p.WroteKeyID = keyA })
		}, []rotation.Waiting{{Reason: "unproven", Instances: []string{"b"}}}},
		"wrote nothing": {func(all map[string]rotation.Instance) {
			all["b"] = with(all["b"], func(p *rotation.Provider) { p.WroteKeyID, p.WroteAt = "", time.Time{} })
		}, []rotation.Waiting{{Reason: "unproven", Instances: []string{"b"}}}},
		"several at once": {func(all map[string]rotation.Instance) {
			delete(all, "a")
			all["b"] = old
			all["c"] = with(all["c"], func(p *rotation.Provider) { p.Healthy = false })
		}, []rotation.Waiting{{Reason: "missing", Instances: []string{"a"}}, {Reason: "stale", Instances: []string{"b"}},
			{Reason: "unhealthy", Instances: []string{"c"}, Details: map[string]string{"c": "provider kms"}}}},
	} {
		t.Run(name, func(t *testing.T) {
			c := converge(three(tc.change))
			require.Empty(t, c.KeyID)
			require.Equal(t, tc.want, c.Waiting)
		})
	}
}

// What one writes that nobody named, nobody knows.
func TestAnInstanceThatNobodyNamedIsInTheWay(t *testing.T) {
	c := converge(three(func(all map[string]rotation.Instance) { all["d"] = rotation.Instance{Problem: "has a Lease"} }))
	require.Equal(t, rotation.Convergence{Waiting: []rotation.Waiting{{Reason: "unnamed", Instances: []string{"d"}, Details: map[string]string{"d": "has a Lease"}}}}, c)
}

func TestAProviderThatIsOnlyReadHasNoVote(t *testing.T) {
	c := converge(three(func(all map[string]rotation.Instance) {
		all["a"].Providers["older"] = rotation.Provider{KeyID: keyA}
	}))
	require.Equal(t, keyB, c.KeyID)
}

func TestWritesBeforeTheMomentThatCountsProveNothing(t *testing.T) {
	all := three(func(map[string]rotation.Instance) {})
	expected := rotation.Expected{Instances: []string{"a", "b", "c"}, Providers: []string{"kms"}, MaxAge: time.Minute, WroteSince: start.Add(-1)}
	require.Equal(t, keyB, rotation.Converge(expected, showing(all), start).KeyID)
	expected.WroteSince = start.Add(1)
	c := rotation.Converge(expected, showing(all), start)
	once := "what it wrote has to be found in etcd once more"
	require.Equal(t, []rotation.Waiting{{Reason: "unproven", Instances: []string{"a", "b", "c"}},
		{Reason: "unshown", Instances: []string{"a", "b", "c"}, Details: map[string]string{"a": once, "b": once, "c": once}}}, c.Waiting)
}

func TestWhatWasNotShownIsSaid(t *testing.T) {
	for why, change := range map[string]func(*rotation.Shown){
		"nothing that it wrote was found in etcd yet":                                                func(s *rotation.Shown) { *s = rotation.Shown{} },
		"b was started or configured anew since something was found in etcd that it wrote":           func(s *rotation.Shown) { s.Identities = map[string]string{"a": " ", "b": "another ", "c": " "} },
		"c was started or configured anew since something was found in etcd that it wrote":           func(s *rotation.Shown) { s.Identities = map[string]string{"a": " ", "b": " ", "c": " another"} },
		"what it wrote has to be found in etcd once more":                                            func(s *rotation.Shown) { s.At = start.Add(1) },
		"it is not said of which resource and in which etcd something was found that it wrote":       func(s *rotation.Shown) { s.Etcds = nil },
		"it is not said of which resource and in which etcd something was found that it wrote ":      func(s *rotation.Shown) { s.Resources = nil },
		"nothing that it wrote with provider kms was found in etcd":                                  func(s *rotation.Shown) { s.KeyIDs = map[string]string{"other": keyB} },
		`what it wrote with provider kms was found under key_id "A", and it tells of "` + keyB + `"`: func(s *rotation.Shown) { s.KeyIDs["kms"] = "A" },
	} {
		o := showing(three(func(map[string]rotation.Instance) {}))
		s := o.Shown["b"]
		change(&s)
		o.Shown["b"] = s
		c := rotation.Converge(rotation.Expected{Instances: []string{"a", "b", "c"}, Providers: []string{"kms"}, MaxAge: time.Minute}, o, start)
		require.Equal(t, rotation.Convergence{Waiting: []rotation.Waiting{{Reason: "unshown", Instances: []string{"b"},
			Details: map[string]string{"b": strings.TrimSpace(why)}}}}, c)
	}
}

// What is stored so already, an apiserver does not write again: that it leaves it is
// enough, unless it wrote something else since.
func TestWhatIsStoredSoAlreadyNeedsNoWrite(t *testing.T) {
	all := three(func(map[string]rotation.Instance) {})
	expected := rotation.Expected{Instances: []string{"a", "b", "c"}, Providers: []string{"kms"}, MaxAge: time.Minute}
	for wrote, keyID := range map[string]string{"": keyB, keyA: keyB} {
		all["b"] = with(all["b"], func(p *rotation.Provider) { p.WroteKeyID, p.WroteAt = wrote, start.Add(-time.Second) })
		o := showing(all)
		shown := o.Shown["b"]
		require.NotEqual(t, keyID, rotation.Converge(expected, o, start).KeyID)
		shown.Already = []string{"kms"}
		o.Shown["b"] = shown
		require.Equal(t, keyID, rotation.Converge(expected, o, start).KeyID)
		all["b"] = with(all["b"], func(p *rotation.Provider) { p.WroteAt = start.Add(time.Second) })
		o.Instances = all
		require.Empty(t, rotation.Converge(expected, o, start).KeyID)
	}
}

// Where nothing is stored with a provider, and nothing can be, no write is waited for.
func TestNothingToShowIsNoReasonToWait(t *testing.T) {
	all := three(func(map[string]rotation.Instance) {})
	all["b"] = with(all["b"], func(p *rotation.Provider) { p.WroteKeyID = "" })
	o := showing(all)
	o.Shown["b"] = rotation.Shown{At: start, Identities: rotation.Identities(all), Nothing: []string{"kms"}}
	c := rotation.Converge(rotation.Expected{Instances: []string{"a", "b", "c"}, Providers: []string{"kms"}, MaxAge: time.Minute}, o, start)
	require.Equal(t, rotation.Convergence{KeyID: keyB}, c)
}

func TestReasonsReadAsOneLine(t *testing.T) {
	require.Equal(t, "divergent: a, b; b has A1; a has B2", rotation.Waiting{Reason: "divergent", Instances: []string{"a", "b"},
		KeyIDs: map[string][]string{"A1": {"b"}, "B2": {"a"}}}.String())
	require.Equal(t, "left 3 objects; secrets: [3 under no KMS provider]; until 2026-11-20T12:00:00Z at the earliest", rotation.Waiting{
		Reason: "left", Objects: 3, Details: map[string]string{"secrets": "[3 under no KMS provider]"}, Until: start}.String())
	require.Equal(t, "lost 1 object; put it back", rotation.Waiting{Reason: "lost", Objects: 1, Remedy: "put it back"}.String())
	require.Equal(t, "foreign config: b; b: sha256:1", rotation.Waiting{Reason: "foreign_config", Instances: []string{"b"},
		Details: map[string]string{"b": "sha256:1"}}.String())
}
