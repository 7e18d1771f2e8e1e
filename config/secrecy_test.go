package config

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/davecgh/go-spew/spew"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"pgregory.net/rapid"
)

// encodings are the forms in which key material could show.
func encodings(secret []byte) map[string]string {
	numbers := func(format, between string) string {
		parts := make([]string, 8)
		for i := range parts {
			parts[i] = fmt.Sprintf(format, secret[i])
		}
		return strings.Join(parts, between)
	}
	unpadded := base64.RawStdEncoding.EncodeToString(secret)
	return map[string]string{
		"raw":             string(secret),
		"start of raw":    string(secret[:12]),
		"base64":          unpadded,
		"start of base64": unpadded[:16],
		"end of base64":   unpadded[len(unpadded)-16:],
		"base64url":       base64.RawURLEncoding.EncodeToString(secret)[:16],
		"hex":             hex.EncodeToString(secret[:8]),
		"HEX":             strings.ToUpper(hex.EncodeToString(secret[:8])),
		"%v":              numbers("%d", " "),
		"JSON numbers":    numbers("%d", ","),
		"%#v":             numbers("%#x", ", "),
		"spew":            numbers("%02x", " "),
		"base64 in %v":    strings.Trim(fmt.Sprint([]byte(unpadded[:16])), "[]"),
		"quoted raw":      strings.Trim(fmt.Sprintf("%q", secret[:12]), `"`),
	}
}

// reflected prints whatever reflection reaches, and calls no method.
var reflected = spew.ConfigState{DisableMethods: true, DisablePointerMethods: true, Indent: " "}

// printed is v in every form that a careless log line could give it.
func printed(t rapid.TB, v any) string {
	t.Helper()
	var b strings.Builder
	wrapped := struct{ hidden any }{v} // formatting does not call the methods of an unexported field
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%d", "%x", "%X"} {
		fmt.Fprintf(&b, verb+"\n"+verb+"\n", v, wrapped)
	}
	b.WriteString(reflected.Sdump(v))
	text, err := json.Marshal(v)
	require.NoError(t, err)
	b.Write(text)
	return b.String()
}

func requireNoSecret(t rapid.TB, secret []byte, v any) {
	t.Helper()
	text := printed(t, v)
	for name, form := range encodings(secret) {
		require.False(t, strings.Contains(text, form), "%T shows the key as %s: %s", v, name, text)
	}
}

// everything that the error or the result gives out.
func givenOut(c *Configuration, err error) []any {
	if err != nil {
		out := []any{err, err.Error()}
		for _, problem := range err.(*Error).Problems {
			out = append(out, problem, problem.Error())
			var e *field.Error
			if errors.As(problem, &e) {
				out = append(out, *e)
			}
		}
		return out
	}
	out := []any{c, *c, c.Rules(), c.Providers(), c.Warnings()}
	for _, p := range c.Providers() {
		out = append(out, p, *p, p.KMS(), p.Keys())
		for _, key := range p.Keys() {
			out = append(out, key, &key)
		}
	}
	return out
}

// misplaced are files in which %s, a key in base64, stands where it should and
// where it should not.
var misplaced = []string{
	`[{aescbc: {keys: [{name: a, secret: %s}, {name: a, secret: %s}]}}]`,
	`[{aesgcm: {keys: [{name: a, secret: %s}, {name: a, secret: "%s"}]}}, {identity: {}}]`,
	`[{secretbox: {keys: [{name: a, secret: %s}]}}]`,
	`[{identity: {}, aescbc: {keys: [{name: a, secret: %s}]}}]`,
	`[{aescbc: {keys: [{name: a, secret: %s}]}, aesgcm: {keys: [{name: b, secret: %s}]}}]`,
	`[{aescbc: {keys: [{name: a, secret: %s%s}]}}]`,
	`[{aescbc: {keys: [{name: a, secret: x%s}]}}]`,
	`[{aescbc: {keys: [{name: a, secret:%s}]}}]`,
	`[{aescbc: {keys: [{name: a, secret: {%s: b}}]}}]`,
	`[{aescbc: {keys: [{name: a, "secret: %s"}]}}]`,
	`[{aescbc: {keys: [{name: a, %s}]}}]`,
	`[{aescbc: {keys: [{name: a, %s, %s}]}}]`,
	`[{aescbc: {keys: [{name: a, secret: b, secret: %s}]}}]`,
	`[{aescbc: {keys: [{name: a, Secret: %s}]}}]`,
	`[{aescbc: {keys: [{name: a, secret: [%s]}]}}]`,
	`[{aescbc: {keys: [{? [%s] : b}]}}]`,
	`[{aescbc: {keys: [{? {a: %s} : b}]}}]`,
	`[{aescbc: {keys: [{name: a, secret: !!int %s}]}}]`,
	`[{aescbc: {keys: [{name: a, secret: !!float %s}]}}]`,
	`[{aescbc: {keys: [{name: a, secret: *%s}]}}]`,
	`[{aescbc: {keys: [{name: a, secret: &%s b}]}}]`,
	`[{aescbc: {keys: [{name: a, secret: '%s}]}}]`,
	`[{aescbc: {keys: %s}}]`,
	`[{aescbc: %s}]`,
	`[%s]`,
	`%s`,
	`[{kms: {name: a, apiVersion: %s, endpoint: "unix:///a"}}]`,
	`[{kms: {name: a, timeout: %s, endpoint: "unix:///a"}}]`,
	`[{kms: {name: a, timeout: 3s%s, endpoint: "unix:///a"}}]`,
	`[{kms: {name: a, cachesize: %s, endpoint: "unix:///a"}}]`,
	"[{aescbc: {keys: [{name: a, secret: %s}]}}]\n  %s: {}",
	"[{aescbc: {keys: [{name: a, secret: %s}]}}]\n---\n%s",
	"[{aescbc: {keys: [{name: a, secret: %s}]}}]\n%s",
	"[{aescbc: {keys: [{name: a, secret: %s}]}}\n",
	"[{aescbc: {keys: [{name: a, secret: %s}]}}]\nkind: EncryptionConfiguration",
	"[{aescbc: {keys: [{name: a, secret: %s}]}}]\n%s: a",
	"\n  - kms:\n      apiVersion: v2\n      name: a\n       secret:%s\n      endpoint: unix:///a",
	"\n  - kms:\n      apiVersion: v2\n      name: a\n      endpoint: unix:///a\n       secret:%s%zz",
	"\n  - kms:\n      apiVersion: v2\n      name: a\n      endpoint: a\n       secret:%s",
}

func TestKeysAreNeverShown(t *testing.T) {
	heads := []string{head, head, head, "{" + head, "kind: EncryptionConfig\napiVersion: v1\n", "kind: EncryptionConfig\n", "apiVersion: v1\n", "", "\t",
		"kind: EncryptionConfiguration\napiVersion: apiserver.config.k8s.io/__internal\n", "kind: Else\napiVersion: v1\n"}
	accepted := 0
	rapid.Check(t, func(rt *rapid.T) {
		length := rapid.SampledFrom([]int{16, 24, 32}).Draw(rt, "length")
		secret := rapid.SliceOfN(rapid.ByteRange(1, 255), length, length).Filter(varied).Draw(rt, "secret")
		encode := rapid.SampledFrom([]func([]byte) string{
			base64.StdEncoding.EncodeToString, base64.URLEncoding.EncodeToString, hex.EncodeToString,
		}).Draw(rt, "encoding")
		first := rapid.SampledFrom(heads).Draw(rt, "head")
		names := rapid.SampledFrom([]string{"[secrets]", "[secrets]", "[Secrets]", "[secrets, secrets]", "\n  - secrets\n    secret:%s"}).Draw(rt, "resources")
		for _, providers := range misplaced {
			text := first + "resources:\n- resources: " + strings.ReplaceAll(names+"\n  providers: "+providers, "%s", encode(secret)) + "\n"
			c, err := Parse([]byte(text), Options{File: "config.yaml", KMSv1: true})
			if err == nil {
				accepted++
			}
			for _, v := range givenOut(c, err) {
				requireNoSecret(rt, secret, v)
			}
		}
	})
	require.Positive(t, accepted, "no file was accepted: the types were not looked at")
}

// varied keeps out secrets like sixteen equal bytes, whose parts occur by chance.
func varied(secret []byte) bool {
	seen := map[byte]bool{}
	for _, b := range secret {
		seen[b] = true
	}
	return len(seen) > len(secret)/2
}

// TestTheSearchForKeysFindsThem shows that the search above can fail.
func TestTheSearchForKeysFindsThem(t *testing.T) {
	secret := []byte("0123456789abcdefghijklmnopqrstuv")
	type careless struct{ secret []byte }
	for name, v := range map[string]any{
		"%v": careless{secret}, "base64": base64.StdEncoding.EncodeToString(secret), "raw": string(secret), "hex": hex.EncodeToString(secret),
	} {
		require.Contains(t, printed(t, v), encodings(secret)[name])
	}
}

// TestAValueAfterSecretIsNeverShown is about what is too short or too odd to
// look like a key, but is one to whoever wrote it there.
func TestAValueAfterSecretIsNeverShown(t *testing.T) {
	for _, value := range []string{"hunter2", "my pass: word", "päss", "Secret:hunter2"} {
		_, err := Parse([]byte(head+"resources: [{resources: [secrets], providers: [{aescbc: {keys: [{name: a, 'secret:"+value+"': }]}}]}]\n"), Options{})
		require.ErrorContains(t, err, `unknown field "resources[0].providers[0].aescbc.keys[0].secret:[redacted]"`)
		require.NotContains(t, err.Error(), value)
	}
}

func TestATypeInADecodingErrorIsNotTakenForAKey(t *testing.T) {
	for content, name := range map[string]string{
		"resources: 1":   "EncryptionConfiguration",
		"resources: [1]": "ResourceConfiguration",
		"resources: [{resources: [secrets], providers: [1]}]":               "ProviderConfiguration",
		"resources: [{resources: [secrets], providers: [{secretbox: 1}]}]":  "SecretboxConfiguration",
		"resources: [{resources: [secrets], providers: [{identity: [1]}]}]": "IdentityConfiguration",
	} {
		_, err := Parse([]byte(head+content), Options{})
		require.ErrorContains(t, err, name, content)
		require.NotContains(t, err.Error(), redacted, content)
	}
}

func TestKeysFormatAsTheirName(t *testing.T) {
	key := newKey("first", []byte("0123456789012345"))
	require.Equal(t, `key "first" [redacted]`, fmt.Sprint(key))
	require.Equal(t, `key "first" [redacted]`, fmt.Sprintf("%#v", key))
	require.Nil(t, Key{}.Secret())
}
