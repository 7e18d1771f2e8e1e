package edit

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
	"pgregory.net/rapid"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/operate/rotation"
)

// drawn is a file as plain values, and what is secret in it.
type drawn struct {
	entries [][]any // the providers of each
	secrets []string
	plugins int
}

func (d *drawn) secret(t *rapid.T) string {
	key := rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "secret")
	d.secrets = append(d.secrets, base64.StdEncoding.EncodeToString(key))
	return d.secrets[len(d.secrets)-1]
}

func (d *drawn) provider(t *rapid.T) any {
	switch kind := rapid.SampledFrom([]string{"aescbc", "aesgcm", "secretbox", "kms", "identity"}).Draw(t, "kind"); kind {
	case "identity":
		return map[string]any{kind: map[string]any{}}
	case "kms":
		d.plugins++ // each has a name of its own
		return map[string]any{kind: map[string]any{"apiVersion": rapid.SampledFrom([]string{"v1", "v2"}).Draw(t, "version"),
			"name": fmt.Sprintf("kms-%d", d.plugins), "endpoint": fmt.Sprintf("unix:///run/%d.sock", d.plugins)}}
	default:
		var keys []any
		for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "yes", "0x1F", "key: c", "#"}), 1, 3, rapid.ID).Draw(t, "keys") {
			keys = append(keys, map[string]any{"name": name, "secret": d.secret(t)})
		}
		return map[string]any{kind: map[string]any{"keys": keys}}
	}
}

func draw(t *rapid.T) *drawn {
	d := &drawn{}
	for range rapid.IntRange(1, 3).Draw(t, "entries") {
		var providers []any
		for range rapid.IntRange(1, 4).Draw(t, "providers") {
			providers = append(providers, d.provider(t))
		}
		d.entries = append(d.entries, providers)
	}
	return d
}

// values are the file as a whole, with these providers.
func values(entries [][]any) map[string]any {
	var all []any
	for i, providers := range entries {
		all = append(all, map[string]any{"resources": []any{fmt.Sprintf("r%d.example.com", i)}, "providers": providers})
	}
	return map[string]any{"apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration", "resources": all}
}

// text is the file in one of the styles that there are.
func (d *drawn) text(t *rapid.T) []byte {
	style := rapid.SampledFrom([]string{"json", "yaml", "braces"}).Draw(t, "style")
	whole := values(d.entries)
	if style == "yaml" {
		file, err := yaml.Marshal(whole)
		require.NoError(t, err)
		return file
	}
	file, err := json.Marshal(whole)
	require.NoError(t, err)
	if style == "braces" {
		return append([]byte("# Of the platform team.\n"), file...)
	}
	return file
}

// nameIn are the names of a provider.
func namesIn(provider any) (all []string) {
	for kind, of := range provider.(map[string]any) {
		of := of.(map[string]any)
		if name, ok := of["name"]; ok {
			return []string{name.(string)}
		}
		keys, _ := of["keys"].([]any)
		for _, key := range keys {
			all = append(all, kind+":"+key.(map[string]any)["name"].(string))
		}
		if len(all) == 0 {
			return []string{kind + ":"}
		}
	}
	return all
}

// moved is what becomes of the providers of an entry, as the steps are told to users.
func moved(was []any, to any, stage rotation.Stage) []any {
	var end []any
	for _, p := range was { // as a copy
		var c any
		b, _ := json.Marshal(p)
		_ = json.Unmarshal(b, &c)
		end = append(end, c)
	}
	name := namesIn(to)[0]
	kind, _, _ := strings.Cut(name, ":")
	if stage == rotation.Before {
		return end
	}
	if first, same := end[0].(map[string]any)[kind]; same && kind != "identity" && strings.Contains(name, ":") {
		first, key := first.(map[string]any), to.(map[string]any)[kind].(map[string]any)["keys"].([]any)[0]
		keys := append(first["keys"].([]any), key)
		last := len(keys) - 1
		switch stage {
		case rotation.Swapped:
			keys[0], keys[last] = keys[last], keys[0]
		case rotation.Removed:
			keys = []any{key}
		}
		first["keys"] = keys
		return end
	}
	plain := func(p any) bool { return namesIn(p)[0] == rotation.Plain }
	at := -1
	if plain(to) {
		at = slices.IndexFunc(end, plain)
	}
	if at < 0 {
		if at = slices.IndexFunc(end[1:], plain) + 1; at == 0 {
			at = len(end)
		}
		end = slices.Insert(end, at, to)
	}
	if stage != rotation.Added {
		end[0], end[at] = end[at], end[0]
	}
	if stage == rotation.Removed {
		end = slices.Delete(end, at, at+1)
	}
	return end
}

// target is what is moved to, as the file has it.
func (d *drawn) target(t *rapid.T) (p Provider, value any) {
	switch kind := rapid.SampledFrom([]string{"aescbc", "aesgcm", "secretbox", "kms", "identity"}).Draw(t, "to"); kind {
	case "identity":
		return Provider{Name: rotation.Plain}, map[string]any{kind: map[string]any{}}
	case "kms":
		return Provider{Name: "vault", Endpoint: "unix:///run/vault.sock", V1: true}, map[string]any{kind: map[string]any{"apiVersion": "v1", "name": "vault", "endpoint": "unix:///run/vault.sock"}}
	default:
		secret := d.secret(t)
		key, err := base64.StdEncoding.DecodeString(secret)
		require.NoError(t, err)
		return Provider{Name: kind + ":key-1", Secret: func() []byte { return key }}, map[string]any{kind: map[string]any{"keys": []any{map[string]any{"name": "key-1", "secret": secret}}}}
	}
}

// changes move each entry that is not written with the target, or for a plugin one alone;
// each has the new provider as a value.
func (d *drawn) changes(t *rapid.T, to Provider, value any) (all []Replacement, news map[int]any) {
	news = map[int]any{}
	for i, providers := range d.entries {
		names := namesIn(providers[0])
		twice := slices.ContainsFunc(providers[1:], func(p any) bool { return slices.Contains(namesIn(p), names[0]) })
		if twice || names[0] == to.Name || to.Endpoint != "" && len(all) > 0 || rapid.IntRange(0, 4).Draw(t, "stays") == 0 {
			continue
		}
		all = append(all, Replacement{Old: names[0], With: names[1:], New: to, Entry: i + 1})
		news[i] = value
	}
	return all, news
}

// silent is an error if a text shows a key.
func (d *drawn) silent(t require.TestingT, err error) {
	if err == nil {
		return
	}
	for _, secret := range d.secrets {
		for i := range len(secret) - 6 {
			require.NotContains(t, err.Error(), secret[i:i+6])
		}
	}
}

// Whatever a file has, each stage of a move is what it is said to be, and nothing else
// becomes of the file.
func TestAMoveDoesWhatItSaysToAnyFile(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := draw(t)
		file := d.text(t)
		_, err := config.Parse(file, config.Options{KMSv1: true, Reload: true})
		if d.silent(t, err); err != nil {
			t.Skip("no apiserver takes it")
		}
		to, value := d.target(t)
		all, news := d.changes(t, to, value)
		if len(all) == 0 {
			t.Skip("nothing moves")
		}
		var files [][]byte
		for _, stage := range rotation.Stages {
			next, err := Advance(file, rotation.Before, stage, all...)
			require.NoError(t, err)
			entries := slices.Clone(d.entries)
			for i, value := range news {
				entries[i] = moved(d.entries[i], value, stage)
			}
			want, err := json.Marshal(values(entries))
			require.NoError(t, err)
			require.True(t, Same(want, next), "stage %s:\n%s\n%s", stage, want, next)
			require.Equal(t, json.Valid(file), json.Valid(next))
			require.Equal(t, strings.HasPrefix(string(file), "# Of"), strings.HasPrefix(string(next), "# Of the platform team.\n"))
			_, err = config.Parse(next, config.Options{KMSv1: true, Reload: true})
			require.NoError(t, err, "stage %s:\n%s", stage, next)
			files = append(files, next)
		}
		d.leads(t, files, all)
		for i, from := range rotation.Stages { // what does not fit is said without a key
			for j, to := range rotation.Stages {
				if _, err := Advance(files[i], to, rotation.Removed, all...); i != j {
					d.silent(t, err)
				}
				if _, err := Retreat(files[i], to, all...); from != to {
					d.silent(t, err)
				}
			}
		}
	})
}

// leads requires that each file leads to all later ones, and back to what leads to them.
func (d *drawn) leads(t *rapid.T, files [][]byte, all []Replacement) {
	for i, from := range rotation.Stages {
		for j := i; j < len(files); j++ {
			next, err := Advance(files[i], from, rotation.Stages[j], all...)
			require.NoError(t, err)
			require.Equal(t, string(files[j]), string(next), "from %s to %s", from, rotation.Stages[j])
		}
		before, err := Retreat(files[i], from, all...)
		if from == rotation.Removed {
			require.ErrorContains(t, err, "no way back")
			continue
		}
		require.NoError(t, err)
		for j := max(i, 1); j < len(files); j++ {
			next, err := Advance(before, rotation.Before, rotation.Stages[j], all...)
			require.NoError(t, err)
			require.Equal(t, string(files[j]), string(next), "from %s back, and to %s", from, rotation.Stages[j])
		}
		if all[0].New.Name != rotation.Plain { // which may have been read with before
			require.True(t, Same(files[0], before), "from %s back", from)
		}
	}
}
