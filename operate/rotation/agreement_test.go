package rotation_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/operate/rotation"
)

// has is an instance whose healthy plugins named these key_ids, by provider.
func has(keyIDs map[string]string) rotation.Instance {
	i := rotation.Instance{Providers: map[string]rotation.Provider{}}
	for name, keyID := range keyIDs {
		i.Providers[name] = rotation.Provider{Healthy: true, KeyID: keyID}
	}
	return i
}

func TestOnlyAKeyIDFromAHealthyPluginCounts(t *testing.T) {
	sick := rotation.Instance{Providers: map[string]rotation.Provider{"kms": {Problem: "sealed", KeyID: "one"}}}
	seen := map[string]rotation.Instance{"b": has(map[string]string{"kms": "one"}), "a": has(map[string]string{"kms": "one"}),
		"c": has(map[string]string{"kms": "two"}), "silent": has(map[string]string{"kms": ""}), "other": has(nil), "sick": sick}
	require.Equal(t, map[string][]string{"one": {"a", "b"}, "two": {"c"}}, rotation.Holders(seen, []string{"kms"}))
	for name, want := range map[string][]rotation.Lack{
		"a":      nil,
		"silent": {{Provider: "kms", Told: true, Healthy: true}},
		"other":  {{Provider: "kms"}},
		"sick":   {{Provider: "kms", Told: true, Problem: "sealed"}},
	} {
		require.Equal(t, want, seen[name].Lacks([]string{"kms"}), name)
	}
}

func TestTheCurrentKeyIDIsOneOfAllOrNone(t *testing.T) {
	one, two := map[string]string{"p": "one", "q": "one"}, map[string]string{"p": "one", "q": "two"}
	away := rotation.Instance{Problem: "it is away"}
	sick := rotation.Instance{Problem: "late", Providers: map[string]rotation.Provider{"p": {KeyID: "one"}, "q": {KeyID: "one"}}}
	for name, c := range map[string]struct {
		seen    map[string]rotation.Instance
		problem string
	}{
		"all have it":           {map[string]rotation.Instance{"a": has(one), "b": has(one)}, ""},
		"one of them is sick":   {map[string]rotation.Instance{"a": has(one), "b": sick}, ""},
		"one of them is away":   {map[string]rotation.Instance{"a": has(one), "b": away}, `key_id of provider "p" at b: it is away`},
		"one of them has none":  {map[string]rotation.Instance{"a": has(one), "b": has(nil)}, `key_id of provider "p" at b is not known`},
		"one of them has a new": {map[string]rotation.Instance{"a": has(one), "b": has(two)}, `several key_ids of provider "p" "q", among them one and two`},
	} {
		keyID, err := rotation.CurrentKeyID(c.seen, []string{"p", "q"})
		if c.problem == "" {
			require.NoError(t, err, name)
			require.Equal(t, "one", keyID, name)
			continue
		}
		require.ErrorContains(t, err, c.problem, name)
	}
}
