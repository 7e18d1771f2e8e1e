package audit_test

import (
	"encoding/hex"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/envelope"
	"github.com/kube-atrest/atrest/internal/stored"
	"github.com/kube-atrest/atrest/operate/audit"
)

// golden is a value that kube-apiserver stored.
type golden struct {
	Name, Provider, KeyHex, KeyID, AAD, StoredHex string
	EncryptedDEKSourceType                        int
}

func (g golden) value(t testing.TB) []byte {
	value, err := hex.DecodeString(g.StoredHex)
	require.NoError(t, err)
	return value
}

func goldens(t testing.TB) []golden {
	content, err := os.ReadFile("../../internal/stored/testdata/golden.json")
	require.NoError(t, err)
	var all []golden
	require.NoError(t, json.Unmarshal(content, &all))
	require.NotEmpty(t, all)
	return all
}

func TestWhatKubeAPIServerStoredIsToldApart(t *testing.T) {
	names := map[string]string{
		"kmsv1-gcm-short": "golden", "kmsv1-cbc-short": "golden",
		"kmsv2-type0-short": "p2", "kmsv2-type0-ann-short": "p3", "kmsv2-type1-short": "p4", "kmsv2-type1-ann-short": "p5",
	}
	for _, g := range goldens(t) {
		want := audit.Form{Kind: config.Kind(g.Provider), Name: "key1"}
		switch g.Provider {
		case "kms-v1":
			want = audit.Form{Kind: config.KMSv1, Name: names[g.Name], DEKSource: audit.DEK}
		case "kms-v2":
			source := []audit.DEKSource{audit.DEK, audit.Seed}[g.EncryptedDEKSourceType]
			want = audit.Form{Kind: config.KMSv2, Name: names[g.Name], DEKSource: source, KeyIDHash: envelope.HashKeyID(g.KeyID)}
		}
		got := audit.Inspect(g.value(t), nil)
		require.NoError(t, got.Problem, g.Name)
		require.Equal(t, want, got.Form, g.Name)
		require.Equal(t, g.KeyID, got.KeyID, g.Name)
		require.Equal(t, strings.HasPrefix(g.Provider, "kms"), len(got.WrappedDEK) > 0, g.Name)
	}
}

func TestACutOffValueIsUndecodable(t *testing.T) {
	shortest := map[string]int{"aesgcm": 28, "aescbc": 32, "secretbox": 40, "kms-v1": 2 + 44 + 28}
	for _, g := range goldens(t) {
		value := g.value(t)
		for n := range value {
			got, size := audit.Inspect(value[:n], nil), payloadSize(value[:n])
			whole := shortest[g.Provider] > 0 && size >= shortest[g.Provider] && (g.Provider != "aescbc" || size%16 == 0)
			if g.Provider == "kms-v2" { // an annotation, or the type of the source, may not be there
				whole = got.Problem == nil && (strings.Contains(g.Name, "ann") || strings.Contains(g.Name, "type1"))
			}
			require.Equal(t, whole, got.Problem == nil, "%s to %d", g.Name, n)
		}
	}
}

// payloadSize is that of what follows the name.
func payloadSize(value []byte) int {
	for _, f := range stored.Formats {
		if rest, ok := strings.CutPrefix(string(value), f.Prefix); ok {
			_, payload, _ := strings.Cut(rest, ":")
			return len(payload)
		}
	}
	return 0
}

func TestWhatIsNotOfAProvider(t *testing.T) {
	for value, want := range map[string]struct {
		kind config.Kind
		why  string
	}{
		`{"kind":"Secret"}`:                {audit.Plaintext, ""},
		"k8s\x00\n\x0c\n\x02v1":            {audit.Plaintext, ""},
		"\xd9\xd9\xf7\xa1":                 {audit.Plaintext, ""},
		"":                                 {audit.Undecodable, "neither encrypted nor JSON"},
		"garbage":                          {audit.Undecodable, "neither encrypted nor JSON"},
		"K8s:enc:aesgcm:v1:k:":             {audit.Undecodable, "neither encrypted nor JSON"},
		"k8s:enc:rot13:v1:key:Frperg":      {audit.Unknown, `"k8s:enc:rot13:v1:"`},
		"k8s:enc:aesgcm:v2:key:secret":     {audit.Unknown, `"k8s:enc:aesgcm:v2:"`},
		"k8s:enc:" + "\x1b[31m\xff":        {audit.Unknown, `k8s:enc:\x1b[31m?`},
		"k8s:enc:aesgcm:v1::nonce":         {audit.Undecodable, "no readable key name"},
		"k8s:enc:aesgcm:v1:no end of name": {audit.Undecodable, "no readable key name"},
		"k8s:enc:aesgcm:v1:\x00:" + strings.Repeat("x", 28):                       {audit.Undecodable, "no readable key name"},
		"k8s:enc:aesgcm:v1:" + strings.Repeat("n", 254) + strings.Repeat(":", 99): {audit.Undecodable, "no readable key name"},
		"k8s:enc:aesgcm:v1:key:short":                                             {audit.Undecodable, `aesgcm: key "key": is cut off: restore it from a backup`},
		"k8s:enc:kms:v1:name:\x00":                                                {audit.Undecodable, `kms v1: provider "name": is cut off`},
		"k8s:enc:kms:v2:name:":                                                    {audit.Undecodable, `kms v2 "name": encrypted data is empty`},
		"k8s:enc:kms:v2:name:\n\x01d\x12\x00":                                     {audit.Undecodable, "key_id is empty"},
	} {
		got := audit.Inspect([]byte(value), nil)
		for _, f := range stored.Formats {
			if strings.HasPrefix(value, f.Prefix) {
				require.Equal(t, config.Kind(f.Kind), got.Form.Begins, "%q", value)
				got.Form.Begins = ""
			}
		}
		require.Equal(t, want.kind, got.Form.Kind, "%q", value)
		if want.why == "" {
			require.NoError(t, got.Problem, "%q", value)
			continue
		}
		require.ErrorContains(t, got.Problem, want.why, "%q", value)
		require.Equal(t, audit.Form{Kind: want.kind}, got.Form, "%q", value)
	}
}

func TestANameMayContainColons(t *testing.T) {
	names := audit.Names{config.AESGCM: {"a", "a:b"}, config.KMSv1: {"x:y"}}
	payload := strings.Repeat("p", 32)
	for value, want := range map[string]string{
		"k8s:enc:aesgcm:v1:a:" + payload:                                                            "a",
		"k8s:enc:aesgcm:v1:a:b:" + payload:                                                          "a:b",
		"k8s:enc:aesgcm:v1:a:c:" + payload:                                                          "a",
		"k8s:enc:aesgcm:v1:other:b:" + payload:                                                      "other",
		"k8s:enc:kms:v1:x:y:\x00\x02ke" + payload:                                                   "x:y",
		"k8s:enc:kms:v1:vault:prod:\x00\x02ke" + payload:                                            "vault:prod",
		"k8s:enc:kms:v1:v:p:\x00\x02ke" + strings.Repeat(payload, 2000) /* "p:" may be a length */ : "v:p",
		"k8s:enc:kms:v1:long:\x40\x00" + strings.Repeat(payload, 2000) /* as it may be sealed */ :   "long",
		"k8s:enc:aescbc:v1:a:b:" + payload /* blocks, after the last one */ :                        "a:b",
		"k8s:enc:secretbox:v1:key:" + payload + payload[:8] /* no more than that */ :                "key",
	} {
		got := audit.Inspect([]byte(value), names)
		require.NoError(t, got.Problem, value)
		require.Equal(t, want, got.Form.Name, value)
	}
}

func TestNamesInAreThoseOfKeysAndProviders(t *testing.T) {
	c := parse(t, "secrets", `aescbc: {keys: [{name: "a:b", secret: MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=}, {name: old, secret: MDEyMzQ1Njc4OTAxMjM0NQ==}]}`,
		`kms: {apiVersion: v2, name: vault, endpoint: "unix:///vault.sock"}`, `identity: {}`)
	names := audit.NamesIn(c)
	require.Equal(t, []string{"a:b", "old"}, names[config.AESCBC])
	require.Equal(t, []string{"vault"}, names[config.KMSv2])
	require.Empty(t, names[config.Identity])
}

// Nothing panics, and what has a problem is of no provider.
func FuzzInspect(f *testing.F) {
	for _, g := range goldens(f) {
		f.Add(g.value(f))
	}
	f.Add([]byte("{}"))
	names := audit.Names{config.AESGCM: {"key1", "key1:k"}, config.KMSv1: {""}}
	f.Fuzz(func(t *testing.T, value []byte) {
		for _, n := range []audit.Names{nil, names} {
			i := audit.Inspect(value, n)
			isBroken := i.Form.Kind == audit.Unknown || i.Form.Kind == audit.Undecodable
			require.Equal(t, isBroken, i.Problem != nil)
			isKMS := i.Form.Kind == config.KMSv1 || i.Form.Kind == config.KMSv2
			require.Equal(t, isKMS, len(i.WrappedDEK) > 0)
			require.Equal(t, isKMS, i.Form.DEKSource != "")
		}
	})
}
