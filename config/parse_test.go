package config

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/kube-atrest/atrest/internal/stored"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/server/options/encryptionconfig"
)

// head begins every file written out within a test.
const head = "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\n"

// files are those that match, at least one.
func files(t testing.TB, pattern string) []string {
	t.Helper()
	found, err := filepath.Glob(pattern)
	require.NoError(t, err)
	require.NotEmpty(t, found, "no file matches %s", pattern)
	return found
}

func read(t testing.TB, file string) []byte {
	t.Helper()
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	return data
}

func parse(t testing.TB, file string, o Options) *Configuration {
	t.Helper()
	c, err := Parse(read(t, file), o)
	require.NoError(t, err)
	return c
}

var everyKind = Options{KMSv1: true}

func TestValidFilesAreAccepted(t *testing.T) {
	for _, file := range files(t, "testdata/valid/*") {
		t.Run(filepath.Base(file), func(t *testing.T) {
			c := parse(t, file, Options{KMSv1: true, Reload: true})
			require.NotEmpty(t, c.Rules())
			require.NotEmpty(t, c.Providers())
		})
	}
}

var wanted = regexp.MustCompile(`(?m)^# want: (.*)$`)

func TestInvalidFilesHaveExactlyTheProblemsTheyName(t *testing.T) {
	for _, file := range files(t, "testdata/invalid/*") {
		t.Run(filepath.Base(file), func(t *testing.T) {
			data := read(t, file)
			wants := wanted.FindAllSubmatch(data, -1)
			require.NotEmpty(t, wants, "the file does not say what is wrong with it")

			_, err := Parse(data, Options{File: file})
			var refused *Error
			require.ErrorAs(t, err, &refused)
			require.Contains(t, err.Error(), file)
			require.Len(t, refused.Problems, len(wants), err.Error())
			for _, want := range wants {
				require.Contains(t, err.Error(), string(want[1]))
			}
		})
	}
}

// TestRules has the rules in the order of kube-apiserver's validation.
func TestRules(t *testing.T) {
	const (
		entry    = head + "resources:\n- resources: "
		identity = "\n  providers: [{identity: {}}]\n"
		aescbc   = entry + "[secrets]\n  providers: [{aescbc: {keys: "
		kms      = entry + "[secrets]\n  providers: [{kms: "
		good16   = "MDEyMzQ1Njc4OTAxMjM0NQ=="
	)
	for _, test := range []struct {
		name, file, want string
	}{
		{"no entry", head, `resources: Required value: at least one resources is required`},
		{"no resource", entry + "[]" + identity, `resources[0].resources: Required value: at least one resources[0].resources is required`},
		{"no provider", entry + "[secrets]\n", `resources[0].providers: Required value: at least one resources[0].providers is required`},

		{"twice", entry + "[secrets, pods, secrets.]" + identity, `resources[0].resources: Invalid value: "secrets.": the same resource cannot be specified multiple times`},
		{"overlap in group", entry + "[secrets, '*.']" + identity, `resources[0].resources: Invalid value: "*.": using overlapping resources such as 'secrets' and '*.'`},
		{"overlap with all", entry + "[deployments.apps, '*.*']" + identity, `resources[0].resources: Invalid value: "*.*": using overlapping resources`},

		{"capital", entry + "[seCrets]" + identity, `resources[0].resources[0]: Invalid value: "seCrets": resource name should not contain capital letters`},
		{"star", entry + "['*']" + identity, `resources[0].resources[0]: Invalid value: "*": use '*.' to encrypt all the resources from core API group or *.* to encrypt all resources`},
		{"no REST API", entry + "[serviceipallocations]" + identity, `resources[0].resources[0]: Invalid value: "serviceipallocations": resources which do not have REST API/s cannot be encrypted`},
		{"events", entry + "[events.events.k8s.io]" + identity, `resources[0].resources[0]: Invalid value: "events.events.k8s.io": '*.events.k8s.io' objects are stored using the 'events' API group in etcd. Use 'events' instead`},
		{"extensions", entry + "['*.extensions']" + identity, `resources[0].resources[0]: Invalid value: "*.extensions": 'extensions' group has been removed`},
		{"across groups", entry + "['secrets.*']" + identity, `resources[0].resources[0]: Invalid value: "secrets.*": encrypting the same resource across groups is not supported`},

		{"empty name", entry + "['']" + identity, `resources[0].resources[0]: Invalid value: "": no resource can have this name`},
		{"subresource", entry + "[pods/status]" + identity, `resources[0].resources[0]: Invalid value: "pods/status": no resource has this name, nothing would be encrypted: leave out what follows '/'`},
		{"space", entry + "['secrets ']" + identity, `resources[0].resources[0]: Invalid value: "secrets ": no resource can have this name`},
		{"list in a name", entry + "['secrets,pods']" + identity, `no resource can have this name`},
		{"only a dot", entry + "['.']" + identity, `no resource can have this name`},
		{"no resource before the dot", entry + "['.apps']" + identity, `no resource can have this name`},
		{"wildcard in a group", entry + "['*.*.apps']" + identity, `no resource can have this name`},
		{"part of a wildcard", entry + "['secret*']" + identity, `no resource can have this name`},
		{"bad group", entry + "['pods.a..b']" + identity, `no resource can have this name`},
		{"null", entry + "[null]" + identity, `no resource can have this name`},

		{"no kind of provider", entry + "[secrets]\n  providers: [{}]\n", `resources[0].providers[0]: Invalid value: "": provider does not contain any of the expected providers: KMS, AESGCM, AESCBC, Secretbox, Identity`},
		{"two kinds", entry + "[secrets]\n  providers: [{identity: {}, aesgcm: {keys: [{name: a, secret: " + good16 + "}]}}]\n",
			`resources[0].providers[0]: Invalid value: "aesgcm, identity": more than one provider specified in a single element, should split into different list elements`},

		{"no key", aescbc + "[]}}]\n", `resources[0].providers[0].aescbc.keys: Required value: at least one keys is required`},
		{"no key name", aescbc + "[{secret: " + good16 + "}]}}]\n", `resources[0].providers[0].aescbc.keys[0].name: Required value: name is a mandatory field for a key`},
		{"no secret", aescbc + "[{name: a}]}}]\n", `resources[0].providers[0].aescbc.keys[0].secret: Required value: secret is a mandatory field for a key: make one with: head -c 32 /dev/urandom | base64`},
		{"not base64", aescbc + "[{name: a, secret: not_base64}]}}]\n", `resources[0].providers[0].aescbc.keys[0].secret: Invalid value: "REDACTED": secrets must be base64 encoded`},
		{"short key", aescbc + "[{name: a, secret: YWJj}]}}]\n", `resources[0].providers[0].aescbc.keys[0].secret: Invalid value: "REDACTED": secret is not of the expected length, got 3, expected one of [16 24 32]`},
		{"short secretbox key", entry + "[secrets]\n  providers: [{secretbox: {keys: [{name: a, secret: " + good16 + "}]}}]\n",
			`resources[0].providers[0].secretbox.keys[0].secret: Invalid value: "REDACTED": secret is not of the expected length, got 16, expected one of [32]`},

		{"no KMS name", kms + "{apiVersion: v2, endpoint: 'unix:///x'}}]\n", `resources[0].providers[0].kms.name: Required value: name is a mandatory field for a provider`},
		{"colon", kms + "{apiVersion: v2, name: 'a:b', endpoint: 'unix:///x'}}]\n", `resources[0].providers[0].kms.name: Invalid value: "a:b": invalid KMS provider name "a:b", must not contain ':'`},
		{"KMS name twice", kms + "{apiVersion: v2, name: a, endpoint: 'unix:///x'}}, {kms: {apiVersion: v2, name: a, endpoint: 'unix:///y'}}]\n",
			`resources[0].providers[1].kms.name: Invalid value: "a": duplicate KMS provider name "a", names must be unique`},
		{"no time", kms + "{apiVersion: v2, name: a, endpoint: 'unix:///x', timeout: 0s}}]\n", `resources[0].providers[0].kms.timeout: Invalid value: "0s": timeout should be a positive value`},
		{"no endpoint", kms + "{apiVersion: v2, name: a}}]\n", `resources[0].providers[0].kms.endpoint: Invalid value: "": endpoint is a mandatory field for a kms`},
		{"no URL", kms + "{apiVersion: v2, name: a, endpoint: '://'}}]\n", `resources[0].providers[0].kms.endpoint: Invalid value: "://": invalid endpoint for kms provider, error: parse`},
		{"not a socket", kms + "{apiVersion: v2, name: a, endpoint: 'tcp://x'}}]\n", `resources[0].providers[0].kms.endpoint: Invalid value: "tcp://x": unsupported scheme "tcp" for KMS provider, only unix is supported`},
		{"v2 cache", kms + "{apiVersion: v2, name: a, endpoint: 'unix:///x', cachesize: 5}}]\n", `resources[0].providers[0].kms.cachesize: Invalid value: 5: cachesize is not supported in v2`},
		{"no v1 cache", kms + "{name: a, endpoint: 'unix:///x', cachesize: 0}}]\n", `resources[0].providers[0].kms.cachesize: Invalid value: 0: cachesize should be a positive value, or negative to disable`},
		{"v3", kms + "{apiVersion: v3, name: a, endpoint: 'unix:///x'}}]\n", `resources[0].providers[0].kms.apiVersion: Invalid value: "v3": unsupported apiVersion for KMS provider, only v1 and v2 are supported`},

		{"no kind", "apiVersion: v1\n", `kind is missing: write kind: EncryptionConfiguration and apiVersion: apiserver.config.k8s.io/v1`},
		{"no version", "kind: EncryptionConfig\n", `apiVersion is missing: write`},
		{"old kind in the new group", "kind: EncryptionConfig\napiVersion: apiserver.config.k8s.io/v1\n", `no kind "EncryptionConfig" is registered for version "apiserver.config.k8s.io/v1"`},
		{"other kind", "kind: AdmissionConfiguration\napiVersion: apiserver.config.k8s.io/v1\n", `unexpected config type apiserver.config.k8s.io/v1, Kind=AdmissionConfiguration: write`},
		{"internal version", "kind: EncryptionConfiguration\napiVersion: apiserver.config.k8s.io/__internal\n", `unexpected config type apiserver.config.k8s.io/__internal`},
		{"unknown field", head + "resource: []\nresources: [{resources: [secrets], providers: [{identity: {}}]}]\n", `strict decoding error: unknown field "resource": check spelling, case and indentation`},
		{"wrong case", head + "resources: [{resources: [secrets], providers: [{Identity: {}, identity: {}}]}]\n", `unknown field "resources[0].providers[0].Identity"`},
		{"field twice", entry + "[secrets]\n  resources: [pods]" + identity, `line 5: key "resources" already set in map`},
		{"JSON field twice", `{"apiVersion": "v1", "kind": "EncryptionConfig", "resources": [{"resources": ["pods"], "providers": [{"identity": {}, "identity": {}}]}]}`,
			`strict decoding error: duplicate field "resources[0].providers[0].identity"`},
		{"number for a secret", aescbc + "[{name: a, secret: 123456}]}}]\n", `cannot be decoded: json: cannot unmarshal number into Go struct field Key.resources.providers.aescbc.keys.secret of type string: put the value in quotes`},
		{"no unit", kms + "{apiVersion: v2, name: a, endpoint: 'unix:///x', timeout: 3parsecs}}]\n", `time: invalid duration "3parsecs": write the timeout of a kms provider as in 3s or 500ms`},
		{"no duration", kms + "{apiVersion: v2, name: a, endpoint: 'unix:///x', timeout: soon}}]\n", `time: invalid duration "soon": write the timeout of a kms provider as in 3s or 500ms`},
		{"bool for a name", aescbc + "[{name: yes, secret: " + good16 + "}]}}]\n", `cannot unmarshal bool into Go struct field Key.resources.providers.aescbc.keys.name of type string: put the value in quotes`},
		{"no list", entry + "secrets" + identity, `cannot unmarshal string into Go struct field ResourceConfiguration.resources.resources of type []string: make it a list`},
		{"list at the top", "- a\n", `cannot be decoded: couldn't get version/kind; json parse error: json: cannot unmarshal array into Go value: write kind:`},
		{"tab", head + "\tresources: []\n", `found a tab character that violates indentation: indent with spaces`},
		{"list for a key", entry + "[secrets]\n  providers: [{? [a] : b}]\n", `a mapping has a key that is not a plain word`},
		{"text after JSON", `{"kind": "EncryptionConfig"} {}`, `invalid character '{' after top-level value`},
		{"second document", head + "resources: [{resources: [secrets], providers: [{identity: {}}]}]\n--- \na: b\n", `more than one YAML document`},
		{"broken second document", head + "resources: [{resources: [secrets], providers: [{identity: {}}]}]\n---\na: [\n", `more than one YAML document`},
		{"second document after an end mark", head + "resources: [{resources: [secrets], providers: [{identity: {}}]}]\n...\na: b\n", `more than one YAML document`},
		{"nothing", "", `empty: write an EncryptionConfiguration into it`},
		{"only a comment", "# soon\n", `kind is missing`},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := Parse([]byte(test.file), everyKind)
			var refused *Error
			require.ErrorAs(t, err, &refused)
			require.Contains(t, err.Error(), test.want)
			require.Len(t, refused.Problems, 1, err.Error())
			require.NotContains(t, err.Error(), "\n")
		})
	}
}

func TestNamesThatExistAreAccepted(t *testing.T) {
	for _, name := range []string{
		"secrets", "secrets.", "events", "events.k8s.io", "*.", "*.*", "*.apps", "*.k8s.io",
		"pandas.awesome.bears.example", "customresourcedefinitions.apiextensions.k8s.io", "two-words.x", "0.0",
	} {
		_, err := Parse([]byte(head+"resources: [{resources: ['"+name+"'], providers: [{identity: {}}]}]\n"), Options{})
		require.NoError(t, err, name)
	}
}

func TestMasking(t *testing.T) {
	for _, test := range []struct {
		first, second, want string
	}{
		{"secrets", "'*.'", ""},
		{"secrets, '*.apps'", "'*.*'", ""},
		{"secrets", "secrets", ""},
		{"'*.apps'", "'*.'", ""},
		{"'*.'", "secrets", `resources[1].resources[0]: Invalid value: "secrets": resource "secrets" is masked by earlier rule "*." (resources[0].resources[0]): move this entry before that one`},
		{"pods, '*.apps'", "secrets, deployments.apps", `resources[1].resources[1]: Invalid value: "deployments.apps": resource "deployments.apps" is masked by earlier rule "*.apps" (resources[0].resources[1])`},
		{"'*.apps'", "'*.apps'", `resource "*.apps" is masked by earlier rule "*.apps" (resources[0].resources[0]): join the two entries`},
		{"'*.*'", "pandas.bears", `resource "pandas.bears" is masked by earlier rule "*.*"`},
		{"'*.*'", "'*.'", `resource "*." is masked by earlier rule "*.*"`},
		{"'*.*'", "'*.*'", `resource "*.*" is masked by earlier rule "*.*"`},
	} {
		_, err := Parse([]byte(head+"resources:\n- {resources: ["+test.first+"], providers: [{identity: {}}]}\n"+
			"- {resources: ["+test.second+"], providers: [{identity: {}}]}\n"), Options{})
		if test.want == "" {
			require.NoError(t, err, "%s, then %s", test.first, test.second)
			continue
		}
		require.ErrorContains(t, err, test.want)
	}
}

// TestKMSNames holds on to an oddity: whether a name that both versions use is
// accepted depends on which of them comes first.
func TestKMSNames(t *testing.T) {
	for _, test := range []struct {
		first, second string
		reload, ok    bool
	}{
		{"v1", "v1", false, true},
		{"v2", "v1", false, true},
		{"v1", "v2", false, false},
		{"v2", "v2", false, false},
		{"v1", "v1", true, false},
		{"v2", "v1", true, false},
	} {
		_, err := Parse([]byte(head+"resources: [{resources: [secrets], providers: ["+
			"{kms: {name: a, apiVersion: "+test.first+", endpoint: 'unix:///a'}},"+
			"{kms: {name: a, apiVersion: "+test.second+", endpoint: 'unix:///b'}}]}]\n"), Options{Reload: test.reload, KMSv1: true})
		require.Equal(t, test.ok, err == nil, "%+v: %v", test, err)
	}
}

func TestKMSv1NeedsItsGate(t *testing.T) {
	data := read(t, "testdata/valid/legacy.yaml")
	_, err := Parse(data, Options{})
	require.ErrorContains(t, err, "resources[0].providers[0].kms.apiVersion: Forbidden: KMSv1 is deprecated and will only "+
		"receive security updates going forward. Use KMSv2 instead")
	require.ErrorContains(t, err, "Set --feature-gates=KMSv1=true to use the deprecated KMSv1 feature")
	_, err = Parse(data, everyKind)
	require.NoError(t, err)
}

func TestProblemsAreFieldErrors(t *testing.T) {
	_, err := Parse(read(t, "testdata/invalid/many-mistakes.yaml"), Options{})
	var problem *field.Error
	require.True(t, errors.As(err, &problem))
	require.Equal(t, "resources[0].resources[0]", problem.Field)
	require.Equal(t, field.ErrorTypeInvalid, problem.Type)
}

func TestSize(t *testing.T) {
	data := read(t, "testdata/valid/rotation.yaml")
	full := append(data, strings.Repeat("#", MaxSize-len(data))...)
	_, err := Parse(full, Options{})
	require.NoError(t, err)
	_, err = Parse(append(full, '#'), Options{})
	require.ErrorContains(t, err, "1048577 bytes long, at most 1048576 are read")
}

func TestAFileThatWouldGrowIsRefused(t *testing.T) {
	names := strings.Repeat("'',", 2000)
	_, err := Parse([]byte(head+"resources: [{resources: ["+names+"], providers: ["+strings.Repeat("{},", 1000)+"]}]"), Options{})
	require.ErrorContains(t, err, "resources: Invalid value: 2000000: the entries have more than 1048576 pairs of a resource and a provider")
	require.Less(t, len(err.Error()), 10_000, "the error is not bounded")
	require.ErrorContains(t, err, "more")
}

func TestLongValuesAreCut(t *testing.T) {
	name := strings.Repeat("é", 1000)
	_, err := Parse([]byte(head+"resources: [{resources: ["+name+"], providers: [{identity: {}}]}]"), Options{})
	require.ErrorContains(t, err, "é...")
	require.Less(t, len(err.Error()), 400)
}

func TestATextIsCutBetweenCharactersIfItHasAny(t *testing.T) {
	require.Equal(t, "aä...", shorten("aää", 4))
	require.Equal(t, "aää", shorten("aää", 5))
	require.Equal(t, "...", shorten("\x80\x80\x80\x80", 2), "bytes that begin no character")
}

func TestHash(t *testing.T) {
	for _, file := range files(t, "testdata/valid/*") {
		want, err := encryptionconfig.GetEncryptionConfigHash(file)
		require.NoError(t, err)
		require.Equal(t, want, parse(t, file, everyKind).Hash())
	}
}

func TestProvidersAreComplete(t *testing.T) {
	c := parse(t, "testdata/valid/every-kind.json", everyKind)
	providers := c.Providers()
	var kinds []Kind
	for _, p := range providers {
		kinds = append(kinds, p.Kind())
	}
	require.Equal(t, []Kind{Identity, AESCBC, AESGCM, Secretbox, KMSv1, KMSv2}, kinds)
	require.Equal(t, "resources[0].providers[2]", providers[2].Path())

	keys := providers[2].Keys()
	require.Len(t, keys, 2)
	require.Equal(t, "a", keys[1].Name)
	require.Equal(t, "0123456789012345", string(keys[1].Secret()))
	require.Equal(t, KMS{Name: "one", Endpoint: "unix:///run/one.sock", Address: "/run/one.sock",
		Timeout: 3 * time.Second, CacheSize: -1}, providers[4].KMS())
	require.Equal(t, KMS{Name: "two", Endpoint: "unix://run/two.sock", Address: "/two.sock",
		Timeout: 250 * time.Millisecond}, providers[5].KMS())
	require.Equal(t, `kms v2 "two" at resources[0].providers[5]`, providers[5].String())
}

func TestDefaults(t *testing.T) {
	p := parse(t, "testdata/valid/legacy.yaml", everyKind).Providers()[0]
	require.Equal(t, KMSv1, p.Kind())
	require.Equal(t, KMS{Name: "old", Endpoint: "unix:///@old-plugin", Address: "@old-plugin",
		Timeout: 3 * time.Second, CacheSize: 1000}, p.KMS())
}

func TestAKeyMaySpanLines(t *testing.T) {
	c := parse(t, "testdata/valid/wildcards.yaml", Options{})
	keys := c.For(schema.GroupResource{Group: "batch", Resource: "jobs"})[0].Keys()
	require.Equal(t, "012345678901234567890123", string(keys[0].Secret()))
}

func TestFor(t *testing.T) {
	c := parse(t, "testdata/valid/wildcards.yaml", Options{})
	paths := func(group, resource string) (paths []string) {
		for _, p := range c.For(schema.GroupResource{Group: group, Resource: resource}) {
			paths = append(paths, p.Path())
		}
		return paths
	}
	require.Equal(t, []string{"resources[0].providers[0]"}, paths("", "events"))
	require.Equal(t, []string{"resources[1].providers[0]", "resources[2].providers[0]"}, paths("", "secrets"), "entries are joined in order")
	require.Equal(t, []string{"resources[1].providers[0]"}, paths("apps", "deployments"))
	require.Equal(t, []string{"resources[3].providers[0]"}, paths("apps", "daemonsets"))
	require.Equal(t, []string{"resources[3].providers[0]"}, paths("", "pods"))
	require.Equal(t, []string{"resources[4].providers[0]"}, paths("batch", "jobs"))

	c = parse(t, "testdata/valid/rotation.yaml", Options{})
	require.Nil(t, c.For(schema.GroupResource{Resource: "pods"}), "what has no rule is stored as it is")
	require.Len(t, c.For(schema.GroupResource{Group: "awesome.bears.example", Resource: "pandas"}), 3)
}

func TestRulesAreInOrderOfFirstMention(t *testing.T) {
	rules := parse(t, "testdata/valid/wildcards.yaml", Options{}).Rules()
	var names []string
	for _, rule := range rules {
		names = append(names, nameOf(rule.Resource))
	}
	require.Equal(t, []string{"events", "secrets", "deployments.apps", "*.apps", "*.", "*.*"}, names)
	require.Equal(t, []string{"resources[1].resources[0]", "resources[2].resources[0]"}, rules[1].Paths)
}

func TestOnlyTheFirstProviderOfARuleWrites(t *testing.T) {
	var writers []string
	for _, p := range parse(t, "testdata/valid/wildcards.yaml", Options{}).Providers() {
		if p.Writes() {
			writers = append(writers, p.Path())
		}
	}
	require.Equal(t, []string{"resources[0].providers[0]", "resources[1].providers[0]",
		"resources[3].providers[0]", "resources[4].providers[0]"}, writers, "an entry whose resource is written by an earlier one does not write")
}

func TestAConfigurationCannotBeChanged(t *testing.T) {
	c := parse(t, "testdata/valid/rotation.yaml", Options{})
	secrets := schema.GroupResource{Resource: "secrets"}
	c.For(secrets)[0] = nil
	c.Providers()[0] = nil
	c.Rules()[0].Providers[0] = nil
	c.Rules()[0].Paths[0] = ""
	clear(c.For(secrets)[1].Keys()[0].Secret())
	warned, err := Parse([]byte(head+"resources: [{resources: [secrets], providers: [{identity: {}}, {kms: {apiVersion: v2, name: a, endpoint: 'unix:///a'}}]}]"), Options{})
	require.NoError(t, err)
	warned.Warnings()[0] = Warning{}
	require.NotZero(t, warned.Warnings()[0])

	again := parse(t, "testdata/valid/rotation.yaml", Options{})
	require.NotNil(t, c.For(secrets)[0])
	require.NotNil(t, c.Providers()[0])
	require.Equal(t, again.Rules()[0].Paths, c.Rules()[0].Paths)
	require.Equal(t, again.For(secrets)[1].Keys()[0].Secret(), c.For(secrets)[1].Keys()[0].Secret())
}

func TestKindsNameStoredForms(t *testing.T) {
	for _, kind := range []Kind{AESCBC, AESGCM, Secretbox, KMSv1, KMSv2} {
		_, ok := stored.FormatOf(string(kind))
		require.True(t, ok, kind)
	}
	_, ok := stored.FormatOf(string(Identity))
	require.False(t, ok)
}
