package audit_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/operate/audit"
)

// row is a count of one object.
func row(kind config.Kind, name string) audit.Count {
	return audit.Count{Form: audit.Form{Kind: kind, Name: name}, Objects: 3, Keys: []string{"/a", "/b", "/c"}}
}

func reportOf(resource string, counts ...audit.Count) *audit.Report {
	return &audit.Report{Resources: []audit.Resource{{Name: resource, Forms: counts}}}
}

func TestFindings(t *testing.T) {
	encrypting := parseRules(t,
		rule("secrets", keyed("aesgcm", "new", "old"), kmsV2("vault", "unix:///vault.sock"), identity),
		rule("'*.apps'", identity, keyed("secretbox", "box")),
		rule("configmaps", kmsV2("strict", "unix:///strict.sock")))
	for name, c := range map[string]struct {
		resource string
		count    audit.Count
		want     audit.FindingKind
		message  string
	}{
		"what is written with now":                   {"secrets", row(config.AESGCM, "new"), "", ""},
		"another key of the provider":                {"secrets", row(config.AESGCM, "old"), audit.Outdated, `aesgcm "new" is written with now`},
		"another provider":                           {"secrets", row(config.KMSv2, "vault"), audit.Outdated, `aesgcm "new" is written with now`},
		"plaintext that can be read":                 {"secrets", row(audit.Plaintext, ""), audit.InPlaintext, `stored with aesgcm "new"`},
		"a key that is not there":                    {"secrets", row(config.AESGCM, "older"), audit.Unreadable, `add aesgcm "older"`},
		"the name of a key, of another kind":         {"secrets", row(config.AESCBC, "new"), audit.Unreadable, `add aescbc "new"`},
		"the name of a provider, of another version": {"secrets", row(config.KMSv1, "vault"), audit.Unreadable, `add kms v1 "vault"`},
		"plaintext without identity":                 {"configmaps", row(audit.Plaintext, ""), audit.Unreadable, "add identity"},
		"plaintext that is written":                  {"deployments.apps", row(audit.Plaintext, ""), "", ""},
		"encrypted and being decrypted":              {"deployments.apps", row(config.Secretbox, "box"), audit.Outdated, "plaintext is written with now"},
		"plaintext of what no rule names":            {"pods", row(audit.Plaintext, ""), "", ""},
		"encrypted of what no rule names":            {"pods", row(config.AESGCM, "new"), audit.Unreadable, "add aesgcm"},
		"an unknown prefix":                          {"pods", row(audit.Unknown, ""), audit.Broken, "restore it from a backup"},
		"undecodable":                                {"secrets", row(audit.Undecodable, ""), audit.Broken, "restore it from a backup"},
	} {
		t.Run(name, func(t *testing.T) {
			needs := audit.NeedsRewrite(encrypting, schema.ParseGroupResource(c.resource), nil)
			require.Equal(t, c.want == audit.Outdated || c.want == audit.InPlaintext, needs(c.count.Form))
			found := reportOf(c.resource, c.count).Against(encrypting, nil)
			if c.want == "" {
				require.Empty(t, found)
				return
			}
			require.Len(t, found, 1)
			require.Equal(t, c.want, found[0].Kind)
			require.Equal(t, c.resource, found[0].Resource)
			require.Equal(t, int64(3), found[0].Objects)
			require.Equal(t, c.count.Keys, found[0].Keys)
			require.Contains(t, found[0].Message, c.message)
			require.Contains(t, found[0].String(), c.resource+": 3 "+string(c.want))
		})
	}
}

func TestAKeyIDIsOutdatedWhenAnotherIsCurrent(t *testing.T) {
	c := parse(t, "secrets", kmsV2("vault", "unix:///vault.sock"))
	old := row(config.KMSv2, "vault")
	old.KeyIDHash = "sha256:old"
	current := func(hash string) audit.Current {
		return func(provider string) string {
			require.Equal(t, "vault", provider)
			return hash
		}
	}
	require.Empty(t, reportOf("secrets", old).Against(c, nil))
	require.Empty(t, reportOf("secrets", old).Against(c, current("")), "not known")
	require.Empty(t, reportOf("secrets", old).Against(c, current("sha256:old")))
	secrets := schema.GroupResource{Resource: "secrets"}
	require.False(t, audit.NeedsRewrite(c, secrets, current("sha256:old"))(old.Form))
	require.True(t, audit.NeedsRewrite(c, secrets, current("sha256:new"))(old.Form))
	found := reportOf("secrets", old).Against(c, current("sha256:new"))
	require.Len(t, found, 1)
	require.Equal(t, audit.Outdated, found[0].Kind)
	require.Contains(t, found[0].Message, "sha256:new")
}

func TestWhatIsWrittenWith(t *testing.T) {
	c := parseRules(t, rule("secrets", kmsV2("vault", "unix:///vault.sock"), identity), rule("configmaps", keyed("aesgcm", "new", "old")))
	current := func(string) string { return "sha256:now" }
	for resource, want := range map[string]audit.Form{
		"secrets":    {Kind: config.KMSv2, Name: "vault", KeyIDHash: "sha256:now"},
		"configmaps": {Kind: config.AESGCM, Name: "new"},
		"pods":       {Kind: audit.Plaintext},
	} {
		require.Equal(t, want, audit.WrittenWith(c, schema.ParseGroupResource(resource), current))
	}
	require.Empty(t, audit.WrittenWith(c, schema.GroupResource{Resource: "secrets"}, nil).KeyIDHash)
}

func TestTheWorstFindingComesFirst(t *testing.T) {
	c := parse(t, "secrets", keyed("aesgcm", "new", "old"), identity)
	locked := row(config.AESGCM, "new")
	locked.NotOpened = 2
	report := reportOf("secrets", row(config.AESGCM, "old"), row(audit.Plaintext, ""), locked, row(config.AESCBC, "gone"), row(audit.Unknown, ""))
	var kinds []audit.FindingKind
	for _, f := range report.Against(c, nil) {
		kinds = append(kinds, f.Kind)
		if f.Kind == audit.NotOpened {
			require.Equal(t, int64(2), f.Objects)
		}
	}
	require.Equal(t, []audit.FindingKind{audit.Broken, audit.Unreadable, audit.NotOpened, audit.InPlaintext, audit.Outdated}, kinds)

	kinds = nil
	for _, f := range report.Broken() {
		kinds = append(kinds, f.Kind)
	}
	require.Equal(t, []audit.FindingKind{audit.NotOpened, audit.Broken}, kinds, "without a configuration")
}

func TestWhatNotOpenedAndIsOutdatedIsBoth(t *testing.T) {
	c := parse(t, "secrets", keyed("aesgcm", "new", "old"))
	locked := row(config.AESGCM, "old")
	locked.NotOpened = 3
	found := reportOf("secrets", locked).Against(c, nil)
	require.Len(t, found, 2)
	require.Equal(t, audit.NotOpened, found[0].Kind)
	require.Equal(t, audit.Outdated, found[1].Kind)
}

func TestAFormReadsAsOneLine(t *testing.T) {
	f := audit.Form{Kind: config.KMSv2, Name: "vault", KeyIDHash: "sha256:" + strings.Repeat("0", 64)}
	require.Equal(t, `kms v2 "vault" key_id sha256:`+strings.Repeat("0", 64), f.String())
	require.Equal(t, "plaintext", audit.Form{Kind: audit.Plaintext}.String())
}

// Whether something is outdated is not known where the key_id of now is not.
func TestProvidersWhoseKeyIDOfNowIsNotKnown(t *testing.T) {
	c := parseRules(t, rule("secrets", kmsV2("a", "unix:///a"), kmsV2("b", "unix:///b")), rule("pods", keyed("aesgcm", "one"), kmsV2("c", "unix:///c")))
	of := func(name string, forms ...audit.Form) audit.Resource {
		r := audit.Resource{Name: name}
		for _, f := range forms {
			r.Forms = append(r.Forms, audit.Count{Form: f, Objects: 1})
		}
		return r
	}
	a, b := audit.Form{Kind: config.KMSv2, Name: "a", KeyIDHash: "1"}, audit.Form{Kind: config.KMSv2, Name: "b", KeyIDHash: "1"}
	known := func(string) string { return "1" }
	for _, test := range []struct {
		stored []audit.Resource
		want   []string
	}{
		{[]audit.Resource{of("secrets", a, b)}, []string{"a"}},
		{[]audit.Resource{of("secrets", a), of("pods", a)}, []string{"a"}},
		{[]audit.Resource{of("secrets", b), of("pods", a)}, nil}, // outdated in any case, and unreadable
		{[]audit.Resource{of("pods", audit.Form{Kind: config.AESGCM, Name: "one"})}, nil},
	} {
		r := &audit.Report{Resources: test.stored}
		v2, v1 := r.Undated(c, nil)
		require.Equal(t, test.want, v2)
		require.Empty(t, v1)
		v2, _ = r.Undated(c, known)
		require.Empty(t, v2)
	}
}

// KMS v1 stores no key_id, so that of what is stored with it nobody can know.
func TestProvidersOfKMSv1NeverTellTheirKeyID(t *testing.T) {
	c, err := config.Parse([]byte("apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n"+
		"- resources: [secrets]\n  providers: [kms: {name: a, endpoint: 'unix:///a'}, kms: {name: b, endpoint: 'unix:///b'}]\n"), config.Options{KMSv1: true})
	require.NoError(t, err)
	one, two := reportOf("secrets", row(config.KMSv1, "a"), row(config.KMSv1, "a"), row(config.KMSv1, "b")), reportOf("secrets", row(config.KMSv1, "b"))
	v2, v1 := one.Undated(c, nil)
	require.Empty(t, v2)
	require.Equal(t, []string{"a"}, v1)
	_, v1 = two.Undated(c, nil)
	require.Empty(t, v1, "it is outdated in any case")
}
