package config_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/config"
)

func fileOf(entries ...string) string {
	return "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n" + strings.Join(entries, "")
}

func rule(resources string, providers ...string) string {
	out := fmt.Sprintf("- resources: [%s]\n  providers:\n", resources)
	for _, p := range providers {
		out += "  - " + p + "\n"
	}
	return out
}

const (
	identity = "identity: {}"
	gcmKey   = "aesgcm: {keys: [{name: k1, secret: MDEyMzQ1Njc4OWFiY2RlZg==}]}"
)

func parsed(t *testing.T, entries ...string) *config.Configuration {
	c, err := config.Parse([]byte(fileOf(entries...)), config.Options{})
	require.NoError(t, err)
	return c
}

func kmsAt(name, socket string) string {
	return fmt.Sprintf("kms: {apiVersion: v2, name: %s, endpoint: 'unix:///%s'}", name, socket)
}

func TestDiffSaysWhatAFileMeans(t *testing.T) {
	const otherKey = "aesgcm: {keys: [{name: k1, secret: ZmVkY2JhOTg3NjU0MzIxMA==}]}"
	const twoKeys = "aesgcm: {keys: [{name: k1, secret: MDEyMzQ1Njc4OWFiY2RlZg==}, {name: k2, secret: ZmVkY2JhOTg3NjU0MzIxMA==}]}"
	old := parsed(t, rule("secrets", kmsAt("a", "a"), identity), rule("configmaps", gcmKey), rule("'*.apps'", gcmKey))
	for name, c := range map[string]struct {
		next *config.Configuration
		want []string
	}{
		"nothing, in other words": {
			parsed(t, rule("configmaps, '*.apps'", gcmKey), rule("secrets", kmsAt("a", "a"), identity)), nil,
		},
		"a reader comes": {
			parsed(t, rule("secrets", kmsAt("a", "a"), kmsAt("b", "b"), identity), rule("configmaps", gcmKey), rule("'*.apps'", gcmKey)),
			[]string{`secrets: also read with kms v2 "b"`},
		},
		"a key comes after the one that writes": {
			parsed(t, rule("secrets", kmsAt("a", "a"), identity), rule("configmaps", twoKeys), rule("'*.apps'", gcmKey)),
			[]string{`configmaps: also read with aesgcm key "k2"`},
		},
		"the writer changes and identity goes": {
			parsed(t, rule("secrets", kmsAt("b", "b"), kmsAt("a", "a")), rule("configmaps", gcmKey), rule("'*.apps'", gcmKey)),
			[]string{`secrets: written with kms v2 "b", no longer with kms v2 "a"; also read with kms v2 "b"; no longer read with identity`},
		},
		"a key changes under its name, a plugin its socket, and a rule goes": {
			parsed(t, rule("secrets", kmsAt("a", "moved"), identity), rule("configmaps", otherKey)),
			[]string{
				`secrets: written with another kms v2 "a", no longer with kms v2 "a"; also read with kms v2 "a"; no longer read with kms v2 "a"`,
				`configmaps: written with another aesgcm key "k1", no longer with aesgcm key "k1"; also read with aesgcm key "k1"; no longer read with aesgcm key "k1"`,
				`*.apps: written with identity, no longer with aesgcm key "k1"; also read with identity; no longer read with aesgcm key "k1"`,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, change := range config.Diff(old, c.next) {
				got = append(got, change.String())
			}
			require.Equal(t, c.want, got)
		})
	}
}

func TestDiffWarnsOfWhatHasToBeDoneBefore(t *testing.T) {
	const unread = ` is written with at once, and was not read with before: apiservers that still have the old file cannot read what the others write; ` +
		`add it after the first provider, wait until every apiserver has that file, and then put it first`
	gone := func(what string) string {
		return "what is stored with " + what + " stops being readable: look first whether anything is, with: atrest check NEW --etcd"
	}
	one, both, swapped := rule("secrets", kmsAt("a", "a")), rule("secrets", kmsAt("a", "a"), kmsAt("b", "b")), rule("secrets", kmsAt("b", "b"), kmsAt("a", "a"))
	for name, c := range map[string]struct {
		from, to string
		want     []string
	}{
		"a reader comes":                 {one, both, nil},
		"it becomes the writer":          {both, swapped, nil},
		"the former one goes":            {swapped, rule("secrets", kmsAt("b", "b")), []string{gone(`kms v2 "a"`)}},
		"a writer comes":                 {one, swapped, []string{`kms v2 "b"` + unread}},
		"all at once":                    {one, rule("secrets", kmsAt("b", "b")), []string{gone(`kms v2 "a"`), `kms v2 "b"` + unread}},
		"a plugin of the same name":      {one, rule("secrets", kmsAt("a", "z")), []string{gone(`kms v2 "a"`), `another kms v2 "a"` + unread}},
		"a name changes its place":       {both, rule("secrets", kmsAt("b", "b"), kmsAt("a", "z")), []string{gone(`kms v2 "a"`)}},
		"encryption begins":              {rule("pods", gcmKey), rule("pods, secrets", gcmKey, identity), []string{`aesgcm key "k1"` + unread}},
		"encryption ends where it could": {rule("secrets", gcmKey, identity), rule("secrets", identity), []string{gone(`aesgcm key "k1"`)}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, change := range config.Diff(parsed(t, c.from), parsed(t, c.to)) {
				if change.Resource == "secrets" {
					got = append(got, change.Warnings...)
				}
			}
			require.Equal(t, c.want, got)
		})
	}
}
