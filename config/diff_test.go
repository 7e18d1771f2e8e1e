package config_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/config"
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
