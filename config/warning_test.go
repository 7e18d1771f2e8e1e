package config

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestWarnings(t *testing.T) {
	require.Empty(t, parse(t, "testdata/valid/rotation.yaml", Options{}).Warnings())

	c := parse(t, "testdata/valid/every-kind.json", everyKind)
	require.Equal(t, []Warning{
		{identityWrites, "resources[0].providers[0]", `identity comes first, so "secrets" are written in plaintext although other providers are listed: ` +
			`right while decrypting everything; otherwise put identity last`},
		{notBoundToKey, "resources[0].providers[1]", `aescbc does not bind a value to its etcd key: who can write to etcd can put one object's value ` +
			`in the place of another's; prefer kms v2 or aesgcm`},
		{duplicateKeyName, "resources[0].providers[2].aesgcm.keys[1].name", `the name "a" is that of keys[0] too: both are tried, but stored values ` +
			`do not tell which of them is needed; give a new key a new name`},
		{notBoundToKey, "resources[0].providers[3]", `secretbox does not bind a value to its etcd key: who can write to etcd can put one object's value ` +
			`in the place of another's; prefer kms v2 or aesgcm`},
		{endpointPart, "resources[0].providers[5].kms.endpoint", `"unix://run/two.sock" means "/two.sock", as for kube-apiserver: only the path after ` +
			`the host counts; write unix:///two.sock, or with all of the path after unix:// and three slashes`},
	}, c.Warnings())
}

// The first of a name is the one that is tried first.
func TestEachKeyOfATakenNameIsWarnedOf(t *testing.T) {
	key := func(name string) string { return "{name: " + name + ", secret: " + strings.Repeat("A", 43) + "=}" }
	c, err := Parse([]byte(head+"resources: [{resources: [secrets], providers: [{aesgcm: {keys: ["+
		strings.Join([]string{key("a"), key("b"), key("a"), key("b"), key("a")}, ", ")+"]}}]}]"), Options{})
	require.NoError(t, err)
	var said []string
	for _, w := range c.Warnings() {
		require.Equal(t, duplicateKeyName, w.Kind)
		said = append(said, w.Path+" "+w.Message[:strings.Index(w.Message, " too")])
	}
	const at = "resources[0].providers[0].aesgcm.keys"
	require.Equal(t, []string{
		at + `[2].name the name "a" is that of keys[0]`,
		at + `[3].name the name "b" is that of keys[1]`,
		at + `[4].name the name "a" is that of keys[0]`,
	}, said)
}

func TestIdentityAloneIsNoWarning(t *testing.T) {
	for _, warning := range parse(t, "testdata/valid/wildcards.yaml", Options{}).Warnings() {
		require.Equal(t, notBoundToKey, warning.Kind, warning)
	}
}

func TestIdentityWarningNamesTheResourcesItWrites(t *testing.T) {
	c, err := Parse([]byte(head+`resources:
- {resources: [secrets], providers: [{identity: {}}]}
- {resources: [pods], providers: [{identity: {}}]}
- resources: [secrets, pods, events]
  providers: [{kms: {apiVersion: v2, name: a, endpoint: "unix:///a"}}, {identity: {}}]
`), Options{})
	require.NoError(t, err)
	require.Len(t, c.Warnings(), 2, "the providers of a resource come from all its entries")
	require.Contains(t, c.Warnings()[0].String(), `resources[0].providers[0]: identity comes first, so "secrets" are written`)
	require.Contains(t, c.Warnings()[1].String(), `resources[1].providers[0]: identity comes first, so "pods" are written`)
}

func TestEndpoints(t *testing.T) {
	for _, test := range []struct{ endpoint, address, warning string }{
		{"unix:///run/kms.sock", "/run/kms.sock", ""},
		{"unix:/run/kms.sock", "/run/kms.sock", ""},
		{"unix:///@kms", "@kms", ""},
		{"unix:///run/a%20b.sock", "/run/a b.sock", ""},
		{"unix://tmp/x.sock", "/x.sock", "write unix:///x.sock, or"},
		{"unix://tmp/@x", "@x", "write unix:///@x, or"},
		{"unix://tmp/a%3Fb%23c%25.sock", "/a?b#c%.sock", "write unix:///a%3Fb%23c%25.sock, or"},
		{"unix://tmp/a%20b.sock", "/a b.sock", "write unix:///a%20b.sock, or"},
		{"unix:///run/a.sock?b", "/run/a.sock", "write unix:///run/a.sock"},
		{"unix:///run/a.sock#b", "/run/a.sock", "write unix:///run/a.sock"},
		{"unix://", "", "has no path after unix://, so no plugin can be reached"},
		{"unix:run/kms.sock", "", "has no path after unix://, so no plugin can be reached"},
	} {
		c, err := Parse([]byte(head+"resources: [{resources: [secrets], providers: [{kms: {apiVersion: v2, name: a, endpoint: '"+
			test.endpoint+"'}}]}]"), Options{})
		require.NoError(t, err, test.endpoint)
		require.Equal(t, test.address, c.Providers()[0].KMS().Address, test.endpoint)
		if test.warning == "" {
			require.Empty(t, c.Warnings(), test.endpoint)
			continue
		}
		require.Len(t, c.Warnings(), 1, test.endpoint)
		require.Equal(t, endpointPart, c.Warnings()[0].Kind)
		require.Contains(t, c.Warnings()[0].Message, test.warning)
	}
}

func TestUnserved(t *testing.T) {
	c, err := Parse([]byte(head+`resources:
- resources: [secret, configmaps, pandas.awesome.bears.example, '*.apps', '*.app']
  providers: [{identity: {}}]
- resources: [secret]
  providers: [{identity: {}}]
- resources: ['*.']
  providers: [{identity: {}}]
- resources: ['*.*']
  providers: [{identity: {}}]
`), Options{})
	require.NoError(t, err)
	served := func(r schema.GroupResource) bool {
		return r.Group == "" && (r.Resource == "secrets" || r.Resource == "configmaps" || r.Resource == "*") || r.Group == "apps"
	}
	require.Equal(t, []Warning{
		{unservedResource, "resources[0].resources[0]", `this server has no resource "secret", so nothing is encrypted by its name: is "secrets" meant?`},
		{unservedResource, "resources[1].resources[0]", `this server has no resource "secret", so nothing is encrypted by its name: is "secrets" meant?`},
		{unservedResource, "resources[0].resources[2]", `this server has no resource "pandas.awesome.bears.example", so nothing is encrypted by its name: ` +
			`correct the name, or ignore this if it is to be defined later`},
		{unservedResource, "resources[0].resources[4]", `this server has no resource "*.app", so nothing is encrypted by its name: ` +
			`correct the name, or ignore this if it is to be defined later`},
	}, c.Unserved(served))
}

func TestAWarningNamesTenResourcesAndHowManyMore(t *testing.T) {
	said := func(n int) string {
		var names []string
		for i := range n {
			names = append(names, "r"+string(rune('a'+i)))
		}
		c, err := Parse([]byte(head+"resources: [{resources: ["+strings.Join(names, ",")+
			"], providers: [{identity: {}}, {kms: {apiVersion: v2, name: a, endpoint: 'unix:///a'}}]}]"), Options{})
		require.NoError(t, err)
		require.Len(t, c.Warnings(), 1)
		return c.Warnings()[0].Message
	}
	require.Contains(t, said(10), `"ri", "rj" are written in plaintext`)
	require.Contains(t, said(11), `"ri", "rj", 1 more are written in plaintext`)
	require.Contains(t, said(12), `"ri", "rj", 2 more are written in plaintext`)
}

func TestWarningsAreBounded(t *testing.T) {
	names := make([]string, 500)
	for i := range names {
		names[i] = "x" + strings.Repeat("y", i%50) + string(rune('a'+i/50))
	}
	c, err := Parse([]byte(head+"resources: [{resources: ["+strings.Join(names, ",")+
		"], providers: [{identity: {}}, {kms: {apiVersion: v2, name: a, endpoint: 'unix:///a'}}]}]"), Options{})
	require.NoError(t, err)
	require.Len(t, c.Warnings(), 1)
	require.Contains(t, c.Warnings()[0].Message, "490 more are written in plaintext")
	require.Less(t, len(c.Warnings()[0].Message), 1000)
}
