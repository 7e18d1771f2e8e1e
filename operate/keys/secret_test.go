package keys_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/kube-atrest/atrest/internal/hashed"
	"github.com/kube-atrest/atrest/operate/api/v1alpha1"
	"github.com/kube-atrest/atrest/operate/bundle"
	"github.com/kube-atrest/atrest/operate/keys"
	"github.com/kube-atrest/atrest/operate/rotation"
)

const prefix = keys.Group + "-"

func TestTheSecretOfAKeyHasFourParts(t *testing.T) {
	c := newCluster("a")
	p := vault("transit/keys/a", "vault-approle")
	p.Settings = []byte(strings.Replace(string(p.Settings), "auth:", "tls: {caBundle: vault-ca}, auth:", 1))
	p.Parts[bundle.Part{Source: bundle.ConfigMap, Name: "vault-ca", Key: "ca-bundle.crt"}] = []byte("-----BEGIN CERTIFICATE-----")
	c.settle(wants(keys.KMS, p))
	s, err := keys.Encode(c.in.Records[0], "kube-system")
	require.NoError(t, err)
	require.Equal(t, "encryption-key-1", s.Name)
	require.Equal(t, []string{keys.Finalizer}, s.Finalizers)
	require.Equal(t, "1", s.Labels[keys.Label])
	require.Equal(t, []string{
		prefix + "key", prefix + "kms-encryption-config", prefix + "kms-plugin-config",
		prefix + "kms-plugin-configmap-vault-ca_ca-bundle.crt", prefix + "kms-plugin-secret-vault-approle_role-id", prefix + "kms-plugin-secret-vault-approle_secret-id", prefix + "record",
	}, slices.Sorted(maps.Keys(s.Data)))
	require.Equal(t, make([]byte, 16), s.Data[prefix+"key"])
	require.JSONEq(t, `{"apiVersion":"apiserver.config.k8s.io/v1","kind":"EncryptionConfiguration","resources":[{"resources":["secrets"],"providers":[{"kms":{"apiVersion":"v2","name":"1","endpoint":"unix:///var/run/kmsplugin/kms-1.sock","timeout":"10s"}}]}]}`,
		string(s.Data[prefix+"kms-encryption-config"]))
	require.Equal(t, "KMS", s.Annotations[keys.Group+"/mode"])
	require.Equal(t, "key-does-not-exist", s.Annotations[keys.Group+"/internal-reason"])
	require.Equal(t, "secrets", s.Annotations[keys.Group+"/migrated-resources"])
	require.Equal(t, hashed.ID("kek"), s.Annotations[keys.Group+"/migrated-remote-key-id"])
}

func TestWhatDoesNotDecodeIsRefusedWhole(t *testing.T) {
	c := newCluster("a")
	c.settle(wants(keys.KMS, vault("transit/keys/a", "role")))
	c.settle(wants(keys.AESGCM, nil))
	c.settle(wants(keys.Identity, nil))
	kmsKey, local, none := c.in.Records[0], c.in.Records[1], c.in.Records[2]
	facts := func(change func(map[string]any)) func(*corev1.Secret) {
		return func(s *corev1.Secret) {
			all := map[string]any{}
			require.NoError(t, json.Unmarshal(s.Data[prefix+"record"], &all))
			change(all)
			s.Data[prefix+"record"], _ = json.Marshal(all)
		}
	}
	set := func(name, value string) func(*corev1.Secret) {
		return func(s *corev1.Secret) { s.Data[prefix+name] = []byte(value) }
	}
	for name, tc := range map[string]struct {
		record keys.Record
		change func(*corev1.Secret)
		want   string
	}{
		"no facts":                       {local, func(s *corev1.Secret) { delete(s.Data, prefix+"record") }, "is missing"},
		"half of the facts":              {local, func(s *corev1.Secret) { s.Data[prefix+"record"] = s.Data[prefix+"record"][:40] }, "cannot be decoded"},
		"facts twice":                    {local, func(s *corev1.Secret) { s.Data[prefix+"record"] = append(s.Data[prefix+"record"], "{}"...) }, "more than one"},
		"a field of a later version":     {local, facts(func(f map[string]any) { f["next"] = 1 }), "cannot be decoded"},
		"a later version":                {local, facts(func(f map[string]any) { f["version"] = 2 }), "version 2"},
		"another name":                   {local, func(s *corev1.Secret) { s.Name = "encryption-key-7" }, "is encryption-key-2"},
		"no key":                         {local, func(s *corev1.Secret) { delete(s.Data, prefix+"key") }, "32 bytes"},
		"a key of nothing":               {local, set("key", strings.Repeat("\x00", 32)), "32 bytes"},
		"a shorter key":                  {local, set("key", "short"), "32 bytes"},
		"a key where none is":            {none, set("key", string(random)), "mode \"identity\" none"},
		"a plugin where none is":         {none, set("kms-plugin-config", "x"), "none of a key"},
		"no settings":                    {kmsKey, func(s *corev1.Secret) { delete(s.Data, prefix+"kms-plugin-config") }, "no settings"},
		"settings of something else":     {kmsKey, set("kms-plugin-config", "{}"), "settings"},
		"no credential":                  {kmsKey, func(s *corev1.Secret) { delete(s.Data, prefix+"kms-plugin-secret-role_role-id") }, "is missing"},
		"one credential more":            {kmsKey, set("kms-plugin-secret-role_other", "x"), "do not need it"},
		"the provider of another key":    {kmsKey, set("kms-encryption-config", "{}"), "not the provider"},
		"a part whose name has no parts": {kmsKey, set("kms-plugin-secret-role", "x"), "none of a key"},
		"a key of its own":               {local, func(s *corev1.Secret) { s.Data["more"] = nil }, "none of a key"},
		"stringData":                     {local, func(s *corev1.Secret) { s.StringData = map[string]string{"a": "b"} }, "stringData"},
		"settled and abandoned":          {local, facts(func(f map[string]any) { f["abandonedAt"] = start }), "was abandoned"},
		"half a state":                   {kmsKey, facts(func(f map[string]any) { f["state"] = map[string]any{"version": 1} }), "rotation state"},
		"not settled, and without a way": {local, facts(func(f map[string]any) { delete(f, "settledAt") }), "no move to it"},
		"a timeout that is none":         {kmsKey, facts(func(f map[string]any) { f["timeout"] = "soon" }), "timeout"},
		"a mode that is none":            {none, facts(func(f map[string]any) { f["mode"] = "aes" }), "not known"},
		"all resources":                  {none, facts(func(f map[string]any) { f["resources"] = []string{"*.*"} }), "each is named once"},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := keys.Encode(tc.record, "kube-system")
			require.NoError(t, err)
			_, err = keys.Decode(s)
			require.NoError(t, err)
			tc.change(s)
			r, err := keys.Decode(s)
			require.ErrorContains(t, err, tc.want)
			require.NotContains(t, err.Error(), "sesame")
			require.Zero(t, r)
			in := c.in
			in.Refused, in.Records, in.Desired = []error{err}, nil, wants(keys.AESGCM, nil)
			out := keys.Next(in, c.now)
			require.Empty(t, out.Records, "it is never taken for no key")
			require.Empty(t, out.Configs)
			require.Equal(t, "KeyRecordRefused", out.Conditions[1].Reason)
		})
	}
}

// records are some of every kind.
func records(t *rapid.T) keys.Record {
	c := newCluster("a", "b")
	plugin := vault("transit/keys/"+rapid.StringMatching(`[a-z]{1,9}`).Draw(t, "key"), rapid.StringMatching(`[a-z]([-.]?[a-z0-9]){0,30}`).Draw(t, "role"))
	plugin.Timeout = time.Duration(rapid.IntRange(1, 60).Draw(t, "timeout")) * time.Second
	for part := range plugin.Parts {
		plugin.Parts[part] = rapid.SliceOfN(rapid.Byte(), 1, 60).Draw(t, "content")
	}
	all := []keys.Desired{wants(keys.KMS, plugin), wants(keys.AESGCM, nil), wants(keys.AESCBC, nil), wants(keys.Identity, nil)}
	for range rapid.IntRange(1, 3).Draw(t, "wishes") {
		c.in.Desired = rapid.SampledFrom(all).Draw(t, "wish")
		c.in.Desired.External = rapid.String().Draw(t, "why")
		c.stored["secrets"] = [2]string{rotation.Plain, ""}
		c.wanted += "."
		for range rapid.IntRange(0, 16).Draw(t, "steps") {
			c.step()
		}
	}
	if len(c.in.Records) == 0 {
		c.settle(all[1])
	}
	return rapid.SampledFrom(c.in.Records).Draw(t, "record")
}

func TestARecordComesBackFromItsSecret(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := records(t)
		s, err := keys.Encode(r, "kube-system")
		require.NoError(t, err)
		again, err := keys.Decode(s)
		require.NoError(t, err)
		text, err := keys.Encode(again, "kube-system")
		require.NoError(t, err)
		require.Equal(t, s, text)
		require.Equal(t, r.Plugin == nil, again.Plugin == nil)
		if r.Plugin != nil {
			require.Equal(t, r.Plugin.Parts, again.Plugin.Parts, "I22")
			require.Equal(t, r.Plugin.Settings, again.Plugin.Settings)
		}
		require.Equal(t, r.Key, again.Key)
	})
}

func FuzzDecode(f *testing.F) {
	c := newCluster("a")
	for _, d := range []keys.Desired{wants(keys.KMS, vault("transit/keys/a", "role")), wants(keys.AESGCM, nil), wants(keys.Identity, nil)} {
		c.settle(d)
		s, err := keys.Encode(c.in.Records[len(c.in.Records)-1], "")
		require.NoError(f, err)
		f.Add(s.Name, s.Data[prefix+"record"], s.Data[prefix+"key"], s.Data[prefix+"kms-plugin-config"], "kms-plugin-secret-role_role-id", []byte("x"))
	}
	f.Fuzz(func(t *testing.T, name string, facts, key, settings []byte, part string, content []byte) {
		s := &corev1.Secret{Data: map[string][]byte{prefix + "record": facts, prefix + "key": key}}
		s.Name = name
		if len(settings) > 0 {
			s.Data[prefix+"kms-plugin-config"], s.Data[prefix+part] = settings, content
		}
		r, err := keys.Decode(s)
		if err != nil {
			require.Zero(t, r)
			return
		}
		again, err := keys.Encode(r, "")
		require.NoError(t, err)
		more, err := keys.Decode(again)
		require.NoError(t, err)
		last, err := keys.Encode(more, "")
		require.NoError(t, err)
		require.Equal(t, again.Data, last.Data)
	})
}

// A record that is gone is put back from a bundle that has its key, and what was stored
// stays readable (I24).
func TestARecordIsPutBackFromABundle(t *testing.T) {
	for _, last := range []keys.Desired{wants(keys.KMS, vault("transit/keys/a", "role")), wants(keys.AESGCM, nil)} {
		for until := 2; until < 30; until++ {
			c := newCluster("a", "b")
			c.settle(wants(keys.Secretbox, nil))
			c.in.Desired, c.wanted = last, "A"
			for range until {
				c.step()
			}
			c.look()
			gone := slices.Clone(c.in.Records)
			c.in.Records = nil
			for _, s := range c.servers {
				b, err := bundle.New(s.has.Draft(1, nil))
				require.NoError(t, err)
				kept, err := keys.Kept(b)
				require.NoError(t, err)
				c.in.Kept = append(c.in.Kept, kept...)
			}
			c.log = nil
			for range 70 {
				c.step()
			}
			require.Contains(t, strings.Join(c.log, "\n"), "put-back")
			require.NotContains(t, strings.Join(c.log, "\n"), "identity: ", "O23, after %d steps", until)
			require.Equal(t, "2_secrets", strings.TrimPrefix(c.stored["secrets"][0], "aesgcm:"), "after %d steps: %v", until, c.log)
			for _, r := range c.in.Records {
				at := slices.IndexFunc(gone, func(was keys.Record) bool { return was.ID == r.ID })
				require.Equal(t, gone[at].Key, r.Key)
			}
			require.Equal(t, v1alpha1.ReasonEncryptionCompleted, c.condition(v1alpha1.ConditionEncrypted).Reason)
		}
	}
}

func TestABundleOfSomebodyElseHasNoRecords(t *testing.T) {
	for _, providers := range []string{
		`{"aescbc":{"keys":[{"name":"k1","secret":"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="}]}}`,
		`{"secretbox":{"keys":[{"name":"1_a","secret":"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="},{"name":"2_a","secret":"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="}]}}`,
	} {
		b, err := bundle.New(bundle.Draft{Revision: 1, EncryptionConfig: []byte("# mine\n" + `{"apiVersion":"apiserver.config.k8s.io/v1","kind":"EncryptionConfiguration","resources":[{"resources":["secrets"],"providers":[` + providers + `]}]}`)})
		require.NoError(t, err)
		_, err = keys.Kept(b)
		require.ErrorContains(t, err, "was not made here")
		require.NotContains(t, err.Error(), "AAECAw")
	}
}
