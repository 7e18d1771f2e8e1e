package edit

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/operate/rotation"
)

const head = "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n"

// keyed is a new key, and shown what stands in the file for it.
func keyed(name string) Provider {
	return Provider{Name: name, Secret: func() []byte { return bytes.Repeat([]byte{1}, 32) }}
}

const shown = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE="

func entry(providers ...string) string {
	return "  - resources: [secrets]\n    providers:\n      - " + strings.Join(providers, "\n      - ") + "\n"
}

func keysOf(kind string, keys ...string) string {
	all := kind + ":\n          keys:"
	for _, key := range keys {
		name, secret, _ := strings.Cut(key, "=")
		all += "\n            - name: " + name + "\n              secret: " + secret + "="
	}
	return all
}

const (
	identity = "identity: {}"
	oldKMS   = "kms:\n          apiVersion: v2\n          name: old\n          endpoint: unix:///o.sock"
	newKMS   = "kms:\n          apiVersion: v2\n          name: vault\n          endpoint: unix:///v.sock"
)

// The files of all stages, of each kind to each other.
func TestWhatAMoveMakesOfAFile(t *testing.T) {
	vault := Provider{Name: "vault", Endpoint: "unix:///v.sock"}
	const old, two = "a=b2xkIGtleSBpcyBvbGQ", "b=YW5vdGhlciBvbGQgb25"
	for name, c := range map[string]struct {
		change Replacement
		want   [4]string
	}{
		"nothing to a key": {Replacement{Old: rotation.Plain, New: keyed("secretbox:k")}, [4]string{
			entry(identity), entry(identity, keysOf("secretbox", "k="+shown[:43])), entry(keysOf("secretbox", "k="+shown[:43]), identity), entry(keysOf("secretbox", "k="+shown[:43]))}},
		"a key to nothing": {Replacement{Old: "aescbc:a", New: Provider{Name: rotation.Plain}}, [4]string{
			entry(keysOf("aescbc", old)), entry(keysOf("aescbc", old), identity), entry(identity, keysOf("aescbc", old)), entry(identity)}},
		"a key to nothing, which is read": {Replacement{Old: "aescbc:a", With: []string{"aescbc:b"}, New: Provider{Name: rotation.Plain}}, [4]string{
			entry(keysOf("aescbc", old, two), identity), entry(keysOf("aescbc", old, two), identity), entry(identity, keysOf("aescbc", old, two)), entry(identity)}},
		"a key to one of its kind": {Replacement{Old: "aescbc:a", With: []string{"aescbc:b"}, New: keyed("aescbc:k")}, [4]string{
			entry(keysOf("aescbc", old, two), identity), entry(keysOf("aescbc", old, two, "k="+shown[:43]), identity),
			entry(keysOf("aescbc", "k="+shown[:43], two, old), identity), entry(keysOf("aescbc", "k="+shown[:43]), identity)}},
		"a key to one of another kind": {Replacement{Old: "aescbc:a", With: []string{"aescbc:b"}, New: keyed("aesgcm:k")}, [4]string{
			entry(keysOf("aescbc", old, two), identity), entry(keysOf("aescbc", old, two), keysOf("aesgcm", "k="+shown[:43]), identity),
			entry(keysOf("aesgcm", "k="+shown[:43]), keysOf("aescbc", old, two), identity), entry(keysOf("aesgcm", "k="+shown[:43]), identity)}},
		"a key to a plugin": {Replacement{Old: "aescbc:a", New: vault}, [4]string{
			entry(keysOf("aescbc", old)), entry(keysOf("aescbc", old), newKMS), entry(newKMS, keysOf("aescbc", old)), entry(newKMS)}},
		"a plugin to a key": {Replacement{Old: "old", New: keyed("aesgcm:k")}, [4]string{
			entry(oldKMS, identity), entry(oldKMS, keysOf("aesgcm", "k="+shown[:43]), identity), entry(keysOf("aesgcm", "k="+shown[:43]), oldKMS, identity), entry(keysOf("aesgcm", "k="+shown[:43]), identity)}},
		"of one entry": {Replacement{Old: rotation.Plain, New: keyed("aesgcm:k"), Entry: 2}, [4]string{
			entry(identity) + entry(identity), entry(identity) + entry(identity, keysOf("aesgcm", "k="+shown[:43])),
			entry(identity) + entry(keysOf("aesgcm", "k="+shown[:43]), identity), entry(identity) + entry(keysOf("aesgcm", "k="+shown[:43]))}},
	} {
		for i, stage := range rotation.Stages {
			file, err := Advance([]byte(head+c.want[0]), rotation.Before, stage, c.change)
			require.NoError(t, err, "%s: %s", name, stage)
			require.Equal(t, head+c.want[i], string(file), "%s: %s", name, stage)
			if stage == rotation.Removed || name == "a key to nothing" { // of which nobody knows whether it was read
				continue
			}
			back, err := Retreat(file, stage, c.change)
			require.NoError(t, err, "%s: %s", name, stage)
			require.Equal(t, head+c.want[0], string(back), "%s: back from %s", name, stage)
		}
	}
}

func TestWhatCannotBeMovedIsRefused(t *testing.T) {
	const a, b = "a=b2xkIGtleSBpcyBvbGQ", "b=YW5vdGhlciBvbGQgb25"
	vault := Provider{Name: "vault", Endpoint: "unix:///v.sock"}
	for want, c := range map[string]struct {
		file   string
		from   rotation.Stage
		change Replacement
	}{
		`nothing is written with "aescbc:b"`:                {entry(keysOf("aescbc", a, b)), rotation.Before, Replacement{Old: "aescbc:b", New: vault}},
		`nothing is written with "aescbc:a"`:                {entry(keysOf("aescbc", a)) + entry(identity), rotation.Before, Replacement{Old: "aescbc:a", New: vault, Entry: 2}},
		`"aescbc:a" is there twice, as resources[0].provid`: {entry(keysOf("aescbc", a), keysOf("aescbc", a)), rotation.Before, Replacement{Old: "aescbc:a", New: vault}},
		`"identity:" is there twice`:                        {entry(identity, keysOf("aescbc", a), identity), rotation.Before, Replacement{Old: rotation.Plain, New: vault}},
		`provider "aescbc:b" is there already`:              {entry(keysOf("aescbc", a, b)), rotation.Before, Replacement{Old: "aescbc:a", New: keyed("aescbc:b")}},
		`provider "vault" is there already`:                 {entry(identity) + entry(newKMS), rotation.Before, Replacement{Old: rotation.Plain, New: vault, Entry: 1}},
		"its key has no name, or is in no configuration":    {entry(identity), rotation.Before, Replacement{Old: rotation.Plain, New: Provider{Name: "aescbc:k"}}},
		`provider "aescbc:" cannot be added: its key has`:   {entry(identity), rotation.Before, Replacement{Old: rotation.Plain, New: keyed("aescbc:")}},
		"has a key more than it had: put the file back":     {entry(newKMS, keysOf("aescbc", a, b)), rotation.Swapped, Replacement{Old: "aescbc:a", New: vault}},
	} {
		_, err := Advance([]byte(head+c.file), c.from, rotation.Removed, c.change)
		require.ErrorContains(t, err, want)
		for _, secret := range []string{a[2:], b[2:], shown} {
			require.NotContains(t, err.Error(), secret[:6], want)
		}
	}
}

func TestKeysThatStandElsewhereAreRefused(t *testing.T) {
	file := "x: &k [{name: a, secret: " + shown + "}]\n" + head + "  - providers:\n      - aescbc: {keys: *k}\n"
	_, err := Advance([]byte(file), rotation.Before, rotation.Added, Replacement{Old: "aescbc:a", New: keyed("aescbc:k")})
	require.ErrorContains(t, err, "the keys at resources[0].providers[0].keys[0] are not written out: write them without anchors and aliases")
}

func TestTheEntriesOfAFile(t *testing.T) {
	all, err := Entries([]byte(head + entry(keysOf("aescbc", "a=eA", "b=eA"), oldKMS, identity) + entry(identity)))
	require.NoError(t, err)
	require.Equal(t, []Entry{{[][]string{{"aescbc:a", "aescbc:b"}, {"old"}, {rotation.Plain}}}, {[][]string{{rotation.Plain}}}}, all)
	require.True(t, all[0].Writes("x", "aescbc:a"))
	require.True(t, all[0].Writes("aescbc:b"), "its provider writes")
	require.False(t, all[0].Writes("old", rotation.Plain))
	require.True(t, all[0].Has("old"))
	require.False(t, all[1].Has("old"))
	require.False(t, Entry{}.Writes(rotation.Plain), "an apiserver refuses it")
	_, err = Entries([]byte("\t" + shown))
	require.ErrorContains(t, err, "not YAML")
	require.NotContains(t, err.Error(), shown[:6])
}
