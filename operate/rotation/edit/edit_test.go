package edit

import (
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/operate/rotation"
)

const before = `# Kept by the platform team.
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: # what is secret
  - secrets
  - configmaps
  providers:
  # The version of 2025.
  - kms:
      apiVersion: v2
      name: old
      endpoint: unix:///run/kms/old.sock
      timeout: 3s # slow today
  - aescbc:
      keys:
      - name: "0x1F"
        secret: c2VjcmV0IGlzIHNlY3VyZSwgb3IgaXMgaXQ/IGFiYw==
  - identity: {} # until all is encrypted
- resources: [events]
  providers: [{identity: {}}]
`

const added = `# Kept by the platform team.
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
  - resources: # what is secret
      - secrets
      - configmaps
    providers:
      # The version of 2025.
      - kms:
          apiVersion: v2
          name: old
          endpoint: unix:///run/kms/old.sock
          timeout: 3s # slow today
      - aescbc:
          keys:
            - name: "0x1F"
              secret: c2VjcmV0IGlzIHNlY3VyZSwgb3IgaXMgaXQ/IGFiYw==
      - kms:
          apiVersion: v2
          name: new
          endpoint: unix:///run/kms/new.sock
          timeout: 5s
      - identity: {} # until all is encrypted
  - resources: [events]
    providers: [{identity: {}}]
`

const swapped = `# Kept by the platform team.
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
  - resources: # what is secret
      - secrets
      - configmaps
    providers:
      - kms:
          apiVersion: v2
          name: new
          endpoint: unix:///run/kms/new.sock
          timeout: 5s
      - aescbc:
          keys:
            - name: "0x1F"
              secret: c2VjcmV0IGlzIHNlY3VyZSwgb3IgaXMgaXQ/IGFiYw==
      # The version of 2025.
      - kms:
          apiVersion: v2
          name: old
          endpoint: unix:///run/kms/old.sock
          timeout: 3s # slow today
      - identity: {} # until all is encrypted
  - resources: [events]
    providers: [{identity: {}}]
`

const removed = `# Kept by the platform team.
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
  - resources: # what is secret
      - secrets
      - configmaps
    providers:
      - kms:
          apiVersion: v2
          name: new
          endpoint: unix:///run/kms/new.sock
          timeout: 5s
      - aescbc:
          keys:
            - name: "0x1F"
              secret: c2VjcmV0IGlzIHNlY3VyZSwgb3IgaXMgaXQ/IGFiYw==
      - identity: {} # until all is encrypted
  - resources: [events]
    providers: [{identity: {}}]
`

func add(file []byte, old string, p Provider) ([]byte, error) {
	return addReader(file, Replacement{Old: old, New: p})
}

func exchanged(file []byte, old, new string) ([]byte, error) {
	return swap(file, Replacement{Old: old, New: Provider{Name: new}})
}

func remove(file []byte, name string) ([]byte, error) {
	return change(file, func(d *document) error {
		at, err := d.only(name)
		if err != nil {
			return err
		}
		return d.remove(at)
	})
}

var plugin = Provider{Name: "new", Endpoint: "unix:///run/kms/new.sock", Timeout: 5 * time.Second}

func TestTheThreeChangesOfARotationKeepAllElse(t *testing.T) {
	file, err := add([]byte(before), "old", plugin)
	require.NoError(t, err)
	require.Equal(t, added, string(file))
	file, err = exchanged(file, "old", "new")
	require.NoError(t, err)
	require.Equal(t, swapped, string(file))
	file, err = remove(file, "old")
	require.NoError(t, err)
	require.Equal(t, removed, string(file))
}

func TestWithoutIdentityTheReaderIsLast(t *testing.T) {
	file, err := add([]byte("resources: [{resources: [secrets], providers: [{identity: {}}, {kms: {name: old}}]}]"), "old", plugin)
	require.NoError(t, err)
	require.Equal(t, "resources: [{resources: [secrets], providers: [{identity: {}}, {kms: {name: old}}, "+
		"{kms: {apiVersion: v2, name: new, endpoint: 'unix:///run/kms/new.sock', timeout: 5s}}]}]\n", string(file))
}

func TestJSONStaysJSON(t *testing.T) {
	file, err := add([]byte(`{"kind": "EncryptionConfiguration", "resources": [{"resources": ["secrets"],
		"providers": [{"kms": {"name": "old", "cachesize": 1000, "note": "\u00e9\"<\n"}}, {"identity": {}}]}]}`), "old",
		Provider{Name: "new", Endpoint: "unix:///n.sock"})
	require.NoError(t, err)
	require.JSONEq(t, `{"kind": "EncryptionConfiguration", "resources": [{"resources": ["secrets"],
		"providers": [{"kms": {"name": "old", "cachesize": 1000, "note": "é\"<\n"}},
		{"kms": {"apiVersion": "v2", "name": "new", "endpoint": "unix:///n.sock"}}, {"identity": {}}]}]}`, string(file))
}

func TestNamesThatLookLikeSomethingElseStayStrings(t *testing.T) {
	for _, name := range []string{"2026", "true", "0x10", "null", "a: b", "- x", "é", "#"} {
		file, err := add([]byte(before), "old", Provider{Name: name, Endpoint: "unix:///n.sock"})
		require.NoError(t, err, name)
		file, err = exchanged(file, "old", name)
		require.NoError(t, err, name)
		_, err = remove(file, name)
		require.NoError(t, err, name)
	}
}

func TestWhatCannotBeChangedIsRefused(t *testing.T) {
	add := func(file, old string) error {
		_, err := addReader([]byte(file), Replacement{Old: old, New: plugin})
		return err
	}
	two := strings.Replace(before, "[{identity: {}}]", "[{kms: {name: old}}, {kms: {name: other}}]", 1)
	swap := func(file, old, new string) error { _, err := exchanged([]byte(file), old, new); return err }
	remove := func(file, name string) error { _, err := remove([]byte(file), name); return err }
	for want, err := range map[string]error{
		`there is no KMS provider "mold"`:                                                   add(before, "mold"),
		`provider "new" is there already`:                                                   add(added, "old"),
		"in 2 places (resources[0].providers[0], resources[1":                               add(two, "old"),
		"for different resources (resources[0].providers[0] and resources[1].providers[1])": swap(strings.Replace(two, "name: old}", "name: x}", 1), "old", "other"),
		"is the only one of its entry (resources[0].providers[0])":                          remove("resources: [{providers: [{kms: {name: a}}]}]", "a"),
		"more than one YAML document":                                                       add(before+"---\n"+before, "old"),
		"no list of resources":                                                              add("kind: EncryptionConfiguration", "old"),
		"not YAML with a mapping":                                                           add("- a", "old"),
		"not YAML":                                                                          add("", "old"),
		"at most 1048576 are read":                                                          add(strings.Repeat("#", config.MaxSize+1), "old"),
		"without anchors, aliases and tags":                                                 remove("resources: [{providers: [{kms: &a {name: a}}, {kms: {name: b, like: *a}}]}]", "a"),
	} {
		require.ErrorContains(t, err, want)
	}
}

func TestOnlyAProviderThatIsThereIsExchangedOrRemoved(t *testing.T) {
	for _, err := range []error{
		second(exchanged([]byte(added), "mold", "new")),
		second(exchanged([]byte(added), "old", "mold")),
		second(remove([]byte(added), "mold")),
	} {
		require.ErrorContains(t, err, `encryption configuration: there is no KMS provider "mold": name one that the file has`)
	}
}

func second(_ []byte, err error) error { return err }

func TestWhatIsNoListOfProvidersIsRefused(t *testing.T) {
	for _, file := range []string{"{}", "null", "resources:", "resources: a", "resources: {a: b}", "resources: [a]", "resources: [[providers, a]]", "resources: [{}]",
		"resources: [{providers: a}]", "resources: [{providers: {a: b}}]", "resources: [{providers: [{kms: {name: old}}]}, {resources: [a]}]",
		"resources: [&a {providers: [{kms: {name: old}}]}, *a]", "a: &a [{providers: [{kms: {name: old}}]}]\nresources: *a",
		"a: &a [{kms: {name: old}}]\nresources: [{providers: *a}]", "resources: [{<<: {providers: [{kms: {name: old}}]}}]",
	} {
		_, err := add([]byte(file), "old", plugin)
		require.ErrorIs(t, err, errNoConfiguration, file)
	}
	// A provider that says nothing is for others to refuse.
	_, err := add([]byte("resources: [{providers: [null, a, {kms: a}, {kms: {name: 7}}, {kms: {name: old}}]}]"), "old", plugin)
	require.NoError(t, err)
}

func TestAPluginNeedsANameAnEndpointAndNoNegativeTimeout(t *testing.T) {
	for _, p := range []Provider{{Endpoint: "unix:///n"}, {Name: "n"}, {Name: "n", Endpoint: "unix:///n", Timeout: -1}} {
		_, err := add([]byte(before), "old", p)
		require.ErrorContains(t, err, "it needs a name, an endpoint and no negative timeout")
	}
	out, err := add([]byte(before), "old", Provider{Name: "n", Endpoint: "unix:///n", Timeout: 1})
	require.NoError(t, err)
	require.Contains(t, string(out), "timeout: 1ns")
	out, err = add([]byte(before), "old", Provider{Name: "n", Endpoint: "unix:///n"})
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(string(out), "timeout:"))
}

func TestNoErrorRepeatsAKey(t *testing.T) {
	for _, file := range []string{"a: c2VjcmV0\n\tb", "resources: c2VjcmV0", "{c2VjcmV0", "c2VjcmV0: [", "resources: [{providers: [c2VjcmV0]}]"} {
		_, err := remove([]byte(file), "x")
		require.Error(t, err)
		require.NotContains(t, err.Error(), "c2VjcmV0")
	}
}

// lost reports whether a change was refused for a comment, the one reason there
// may be for what came out of a change.
func lost(t *testing.T, err error) bool {
	t.Helper()
	if err != nil {
		require.ErrorContains(t, err, "the comment in line")
	}
	return err != nil
}

// However a file is damaged, no error shows any of a key in it.
func TestNoErrorRepeatsAKeyOfADamagedFile(t *testing.T) {
	const key = "MDEyMzQ1Njc4OS10aGUtZmlyc3Qta2V5LTg5MDEyMzQ="
	whole := "resources:\n- resources:\n  - secrets\n  providers:\n  - kms:\n      name: old\n  - aescbc:\n      keys:\n      - name: key1\n        secret: " + key + "\n  - identity: {}\n"
	damage := []string{":", "- ", "  ", "\n", "{", "}", "[", "]", "\"", "'", "&a ", "*a ", "!!int ", "|", ">", "\t", "#", ",", "0x", "? ", "!!binary "}
	random := rand.New(rand.NewPCG(7, 7))
	errors := map[string]bool{}
	for range 1500 {
		file := whole
		for range 1 + random.IntN(3) {
			at := random.IntN(len(file) - 1)
			if random.IntN(2) == 0 {
				at = min(len(file)-1, max(0, strings.Index(file, key[:8])-20+random.IntN(70)))
			}
			if random.IntN(3) == 0 {
				file = file[:at] + file[at+1:]
			} else {
				file = file[:at] + damage[random.IntN(len(damage))] + file[at:]
			}
		}
		for _, stage := range rotation.Stages {
			if _, err := Advance([]byte(file), rotation.Before, stage, Replacement{Old: "old", New: plugin}); err != nil {
				errors[err.Error()] = true
			}
		}
	}
	require.NotEmpty(t, errors)
	for text := range errors {
		for i := range len(key) - 6 {
			require.NotContains(t, text, key[i:i+6])
		}
	}
}

func FuzzChanges(f *testing.F) {
	for _, seed := range []string{before, added, swapped, `{"resources": [{"providers": [{"kms": {"name": "old"}}]}]}`,
		"resources: [{providers: [&a {kms: {name: old}}, *a]}]", "a: &a [*a]", "resources:\n- {<<: {providers: []}}"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		one, err := add(file, "old", plugin)
		if err != nil {
			return
		}
		again, err := add(file, "old", plugin)
		require.NoError(t, err)
		require.Equal(t, one, again)
		two, err := exchanged(one, "old", "new")
		if lost(t, err) {
			return
		}
		back, err := exchanged(two, "old", "new")
		if !lost(t, err) && string(back) != string(one) { // comments may have moved
			_, err = remove(back, "new")
			lost(t, err)
		}
		_, err = remove(two, "old")
		lost(t, err)
	})
}

func TestEveryStageCanBeMadeFromEveryEarlierOne(t *testing.T) {
	r := Replacement{Old: "old", New: plugin}
	files := map[rotation.Stage]string{rotation.Before: before, rotation.Added: added, rotation.Swapped: swapped, rotation.Removed: removed}
	hashes, err := Hashes([]byte(before), r)
	require.NoError(t, err)
	for i, from := range rotation.Stages {
		for j, to := range rotation.Stages {
			file, err := Advance([]byte(files[from]), from, to, r)
			if j < i {
				require.ErrorContains(t, err, "keep a copy of the file to go back")
				continue
			}
			require.NoError(t, err)
			require.Equal(t, files[to], string(file))
			require.Equal(t, hashes[j], fmt.Sprintf("sha256:%x", sha256.Sum256(file)))
		}
	}
}

func TestWhichFilesSayTheSame(t *testing.T) {
	const file = "resources:\n- resources: [secrets]\n  providers:\n  - kms: {name: old, timeout: 3s}\n  - identity: {}\n"
	for other, want := range map[string]bool{
		file: true,
		"# by hand\nresources:\n  - resources:\n      - secrets\n    providers:\n      - kms:\n          timeout: \"3s\"\n          name: old\n      - identity: {}\n": true,
		`{"resources": [{"resources": ["secrets"], "providers": [{"kms": {"name": "old", "timeout": "3s"}}, {"identity": {}}]}]}`:                                      true,
		strings.Replace(file, "3s", "4s", 1):                                false,
		strings.Replace(file, ", timeout: 3s", "", 1):                       false,
		"resources:\n- resources: [secrets]\n  providers: [identity: {}]\n": false,
		"": false,
	} {
		require.Equal(t, want, Same([]byte(file), []byte(other)), other)
		require.Equal(t, want, Same([]byte(other), []byte(file)), other)
	}
	require.False(t, Same(nil, nil), "which say nothing")
}

func TestProvidersOfSeveralEntriesAreReplacedTogether(t *testing.T) {
	file := "resources:\n- {resources: [secrets], providers: [{kms: {name: 1_secrets}}, {identity: {}}]}\n" +
		"- {resources: [configmaps], providers: [{kms: {name: 1_configmaps}}, {identity: {}}]}\n"
	end, err := Advance([]byte(file), rotation.Before, rotation.Removed,
		Replacement{Old: "1_secrets", New: Provider{Name: "2_secrets", Endpoint: "unix:///2"}},
		Replacement{Old: "1_configmaps", New: Provider{Name: "2_configmaps", Endpoint: "unix:///2"}})
	require.NoError(t, err)
	require.NotContains(t, string(end), "1_")
	require.Contains(t, string(end), "name: 2_secrets")
	require.Contains(t, string(end), "name: 2_configmaps")
}

func TestAFileLeadsBackToWhereItCameFrom(t *testing.T) {
	file := "resources:\n- {resources: [secrets], providers: [{kms: {name: 1_secrets}}, {identity: {}}]}\n" +
		"- {resources: [configmaps], providers: [{kms: {name: 1_configmaps}}]}\n"
	all := []Replacement{
		{Old: "1_secrets", New: Provider{Name: "2_secrets", Endpoint: "unix:///2"}},
		{Old: "1_configmaps", New: Provider{Name: "2_configmaps", Endpoint: "unix:///2"}}}
	for _, from := range []rotation.Stage{rotation.Before, rotation.Added, rotation.Swapped} {
		later, err := Advance([]byte(file), rotation.Before, from, all...)
		require.NoError(t, err)
		before, err := Retreat(later, from, all...)
		require.NoError(t, err)
		again, err := Advance(before, rotation.Before, from, all...)
		require.NoError(t, err)
		require.Equal(t, string(later), string(again))
	}
	_, err := Advance([]byte(file), "other", rotation.Added, all...)
	require.ErrorContains(t, err, `stage "added" cannot be made from stage "other"`)
	_, err = Advance([]byte(file), rotation.Before, rotation.Swapped, all[0], all[0])
	require.ErrorContains(t, err, `stage "added": encryption configuration: provider "2_secrets" is there already`)
	_, err = Retreat([]byte(file), rotation.Removed, all...)
	require.ErrorContains(t, err, "no way back")
	_, err = Retreat([]byte(file), rotation.Added, all...)
	require.ErrorContains(t, err, `there is no KMS provider "2_secrets"`)
}

// An apiserver reads YAML 1.1.
func TestAProviderMayBeCalledYes(t *testing.T) {
	for _, name := range []string{"yes", "On", "n", "null", "1", "1e3", "0x1", "~"} {
		out, err := Advance([]byte("apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [secrets]\n  providers:\n"+
			"  - kms: {apiVersion: v2, name: old, endpoint: 'unix:///o.sock'}\n"), rotation.Before, rotation.Removed, Replacement{Old: "old", New: Provider{Name: name, Endpoint: "unix:///n.sock"}})
		require.NoError(t, err)
		c, err := config.Parse(out, config.Options{})
		require.NoError(t, err, name)
		require.Equal(t, name, c.Providers()[0].KMS().Name)
	}
}
