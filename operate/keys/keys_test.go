package keys_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/internal/hashed"
	"github.com/kube-atrest/atrest/operate/api/v1alpha1"
	"github.com/kube-atrest/atrest/operate/bundle"
	"github.com/kube-atrest/atrest/operate/keys"
	"github.com/kube-atrest/atrest/operate/rotation"
)

// TestEveryMoveBetweenModes has each of them come true after each other one, by the three
// changes of a file that each needs and no other.
func TestEveryMoveBetweenModes(t *testing.T) {
	modes := map[string]keys.Desired{
		"identity": wants(keys.Identity, nil), "aescbc": wants(keys.AESCBC, nil), "aesgcm": wants(keys.AESGCM, nil), "secretbox": wants(keys.Secretbox, nil),
		"A": wants(keys.KMS, keyFile("A")), "B": wants(keys.KMS, keyFile("B")),
	}
	for from, was := range modes {
		for to, is := range modes {
			if from == to {
				continue
			}
			c := newCluster("a")
			c.wanted = from
			c.settle(was)
			c.log, c.wanted = nil, to
			c.settle(is)
			require.Equal(t, v1alpha1.ReasonAsExpected, c.condition(v1alpha1.ConditionKeyDegraded).Reason, "%s to %s: %v", from, to, c.out.Conditions)
			last := c.in.Records[len(c.in.Records)-1]
			require.Equal(t, is.Mode, last.Mode)
			require.False(t, last.SettledAt.IsZero(), "%s to %s", from, to)
			require.Equal(t, is.Mode != keys.Identity, strings.Contains(c.stored["secrets"][0], last.ID.String()+"_secrets"), "%s to %s: %v", from, to, c.stored)
			changes := 0
			for _, line := range c.log {
				if strings.HasPrefix(line, "a:") {
					changes++
				}
			}
			require.Equal(t, 3, changes, "%s to %s: %s", from, to, strings.Join(c.log, "\n"))
		}
	}
}

// files are the lines of a log that are of an apiserver's file.
func files(log []string, name string) (all []string) {
	for _, line := range log {
		if rest, ok := strings.CutPrefix(line, name+": "); ok {
			all = append(all, rest)
		}
	}
	return all
}

func TestTheProvidersOnTheWay(t *testing.T) {
	c := newCluster("a", "b")
	c.settle(wants(keys.AESCBC, nil))
	require.Equal(t, []string{"identity:", "identity: aescbc:1_secrets", "aescbc:1_secrets identity:", "aescbc:1_secrets identity:"}, files(c.log, "a"))
	c.log = nil
	c.settle(wants(keys.KMS, keyFile("A")))
	require.Equal(t, []string{"aescbc:1_secrets 2_secrets identity:", "2_secrets aescbc:1_secrets identity:", "2_secrets identity:"}, files(c.log, "b"))
	require.Equal(t, "1", c.in.Records[1].Left.ID.String())
	require.Equal(t, "aescbc key 1", c.out.MayGo[0].KEK)
	c.log, c.wanted = nil, "B"
	c.settle(wants(keys.KMS, keyFile("B")))
	require.Equal(t, []string{"2_secrets 3_secrets identity:", "3_secrets 2_secrets identity:", "3_secrets identity:"}, files(c.log, "b"))
	require.Equal(t, []keys.Left{{ID: 2, KEK: "/etc/A", KeyIDs: []string{hashed.ID("kek")}, Etcds: []rotation.Etcd{{Cluster: 1, Revision: 1}}}}, c.out.MayGo, "O5: the KEK is named that may go")
	c.log = nil
	c.settle(wants(keys.Identity, nil))
	require.Equal(t, []string{"3_secrets identity:", "identity: 3_secrets", "identity:"}, files(c.log, "b"))
	require.Equal(t, v1alpha1.ReasonDecryptionCompleted, c.condition(v1alpha1.ConditionEncrypted).Reason)
	c.log = nil
	c.settle(wants(keys.KMS, keyFile("A")))
	require.Equal(t, "create 5 encryption-mode-changed", c.log[0], "I5: a key of its own, as no keyID is used twice")
	require.Equal(t, []string{"identity: 5_secrets", "5_secrets identity:", "5_secrets identity:"}, files(c.log, "b"))
	require.Equal(t, v1alpha1.ReasonEncryptionCompleted, c.condition(v1alpha1.ConditionEncrypted).Reason)
}

func TestAtRestNothingIsWrittenAndTheSameWishMakesNoKey(t *testing.T) {
	for _, d := range []keys.Desired{wants(keys.Identity, nil), wants(keys.AESGCM, nil), wants(keys.KMS, vault("transit/keys/a", "role"))} {
		c := newCluster("a", "b")
		c.settle(d)
		c.log = nil
		for range 20 {
			c.step()
			require.Empty(t, c.out.Records)
			require.Len(t, c.out.Configs, 2, "what is to be so is said each time")
		}
		require.Empty(t, c.log, "I6")
	}
}

func TestARemoteRotationChangesNoFileAndMakesNoKey(t *testing.T) {
	c := newCluster("a", "b")
	c.settle(wants(keys.KMS, keyFile("A")))
	c.log = nil
	c.keyIDs[1] = "kek-2"
	for range 20 {
		c.step()
	}
	require.Equal(t, [2]string{"1_secrets", hashed.ID("kek-2")}, c.stored["secrets"])
	require.Equal(t, hashed.ID("kek-2"), c.in.Records[0].Migrated, "I13, I15")
	require.Len(t, c.in.Records, 1, "I9")
	require.Empty(t, files(c.log, "a"), "I9")
	require.Contains(t, c.out.MayGo, keys.Left{ID: 1, KEK: "/etc/A", KeyIDs: []string{hashed.ID("kek")}, Etcds: []rotation.Etcd{{Cluster: 1, Revision: 1}}})
	c.log = nil
	for range 20 {
		c.step()
	}
	require.Empty(t, c.log, "and then nothing is written")
}

// The key_id changed between the preflight and the end of the first migration: what is
// stored is looked at once more (O2).
func TestARotationDuringTheFirstMigrationIsNotLost(t *testing.T) {
	c := newCluster("a", "b")
	c.in.Desired, c.stored["secrets"] = wants(keys.KMS, keyFile("A")), [2]string{rotation.Plain, ""}
	for !slices.Contains(c.log, "migrate") {
		c.step()
	}
	c.keyIDs[1] = "kek-2"
	for range 40 {
		c.step()
	}
	require.Equal(t, [2]string{"1_secrets", hashed.ID("kek-2")}, c.stored["secrets"])
	require.Equal(t, hashed.ID("kek-2"), c.in.Records[0].Migrated)
	require.Equal(t, hashed.ID("kek"), c.in.Records[0].KeyIDHash, "what the preflight saw stays what it was")
}

// vaultWith is a plugin with some text of its settings replaced.
func vaultWith(old, new string) *keys.Plugin {
	p := vault("transit/keys/a", "role")
	p.Settings = []byte(strings.Replace(string(p.Settings), old, new, 1))
	return p
}

func TestWhatIsChangedInPlaceMakesNoKey(t *testing.T) {
	rotated := vault("transit/keys/a", "role")
	rotated.Parts[bundle.Part{Source: bundle.Secret, Name: "role", Key: "secret-id"}] = []byte("another secret-id")
	same := bundle.Evidence{Was: hashed.ID("kek"), Is: hashed.ID("kek"), Opened: bundle.Yes, OpenedBack: bundle.Yes}
	other := bundle.Evidence{Was: hashed.ID("kek"), Is: hashed.ID("kek-2"), Opened: bundle.No}
	for name, tc := range map[string]struct {
		plugin   *keys.Plugin
		evidence bundle.Evidence
		key      string
	}{
		"an image":                             {vaultWith("vault:", "program: {image: \"example.com/plugin@"+hashed.Name(nil)+"\"}\nvault:"), bundle.Evidence{}, "kek"},
		"a credential":                         {rotated, bundle.Evidence{}, "kek"},
		"a Secret of another name":             {vault("transit/keys/a", "another"), bundle.Evidence{}, "kek"},
		"a name in TLS":                        {vaultWith("auth:", "tls: {serverName: vault}, auth:"), bundle.Evidence{}, "kek"},
		"a namespace of the login":             {vaultWith("auth:", "authNamespace: team, auth:"), bundle.Evidence{}, "kek"},
		"an address of the same KEK":           {vaultWith("vault.example", "vault2.example"), same, "kek"},
		"another path of the same KEK":         {vault("transit/keys/alias", "role"), same, "kek"},
		"an address whose key_id is known":     {vaultWith("vault.example", "vault2.example"), bundle.Evidence{}, "kek"},
		"an address of another KEK":            {vaultWith("vault.example", "vault2.example"), other, "kek-2"},
		"an address of which nothing is known": {vaultWith("vault.example", "vault2.example"), bundle.Evidence{}, "kek-2"},
		"another namespace":                    {vaultWith("auth:", "namespace: team, auth:"), bundle.Evidence{}, "kek-2"},
		"another path":                         {vault("transit/keys/b", "role"), bundle.Evidence{}, "kek-2"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster("a", "b")
			c.settle(wants(keys.KMS, vault("transit/keys/a", "role")))
			c.log, c.wanted, c.evidence = nil, tc.key, tc.evidence
			c.settle(wants(keys.KMS, tc.plugin))
			if tc.key == "kek" {
				require.Equal(t, []string{"update 1 updated-in-place"}, c.log, "I17")
				require.Equal(t, tc.plugin.Settings, c.in.Records[0].Plugin.Settings)
				return
			}
			require.Equal(t, "create 2 kms-key-changed", c.log[0], "I17")
			require.Equal(t, "2_secrets", c.stored["secrets"][0])
		})
	}
}

// A key deleted and made again under one path is another one, whatever the text says (O12).
func TestAKEKMadeAgainIsAnotherOne(t *testing.T) {
	c := newCluster("a", "b")
	p := keyFile("A")
	c.settle(wants(keys.KMS, p))
	c.log, c.wanted = nil, "kek-2"
	c.evidence = bundle.Evidence{Was: hashed.ID("kek"), Is: hashed.ID("kek-2"), Opened: bundle.No}
	again := keyFile("A")
	again.Settings = append(again.Settings, "# made again\n"...)
	c.in.Desired = wants(keys.KMS, again)
	c.step()
	require.Empty(t, c.log, "the text alone says nothing")
	beside := keys.Hash(c.in.Desired, secret, 1)
	for _, name := range c.in.Expected {
		c.in.Verdicts[name] = keys.Verdict{Hash: beside, Outcome: keys.Passed, KeyIDHash: hashed.ID("kek-2"), Evidence: c.evidence}
	}
	c.step()
	require.Equal(t, []string{"create 2 kms-key-changed"}, c.log)
}

// What keeps a rollout from converging is mended under the same keyID, at once (I18).
func TestAStuckRolloutIsRepairedInPlace(t *testing.T) {
	c := newCluster("a", "b")
	c.in.Desired, c.stored["secrets"] = wants(keys.KMS, vault("transit/keys/a", "role")), [2]string{rotation.Plain, ""}
	for !slices.ContainsFunc(c.log, func(s string) bool { return strings.HasPrefix(s, "a: 1_secrets") }) {
		c.step()
	}
	c.servers["b"].down = true // it does not come to be well
	for range 10 {
		c.step()
	}
	c.log = nil
	c.in.Desired = wants(keys.KMS, vault("transit/keys/a", "mended"))
	c.step()
	require.Equal(t, []string{"update 1 updated-in-place"}, c.log)
	c.servers["b"].down = false
	for range 40 {
		c.step()
	}
	require.Equal(t, "1_secrets", c.stored["secrets"][0])
}

func TestAMindMayChangeUntilTheFirstWrite(t *testing.T) {
	c := newCluster("a", "b")
	c.settle(wants(keys.AESGCM, nil))
	c.in.Desired, c.wanted, c.log = wants(keys.KMS, keyFile("A")), "A", nil
	for len(files(c.log, "b")) == 0 {
		c.step()
	}
	require.Equal(t, []string{"aesgcm:1_secrets 2_secrets identity:"}, files(c.log, "b"))
	c.log = nil
	c.settle(wants(keys.AESGCM, nil))
	require.Equal(t, []string{"aesgcm:1_secrets identity:"}, files(c.log, "b"), "O6: the stage in which it is read is taken back")
	require.False(t, c.in.Records[1].AbandonedAt.IsZero())
	require.NotContains(t, c.log, "migrate")
	c.log = nil
	c.settle(wants(keys.KMS, keyFile("A")))
	require.Equal(t, "3_secrets", c.stored["secrets"][0], "I5: the keyID is not used again")
}

func TestAMindThatChangesAfterTheFirstWriteIsQueued(t *testing.T) {
	c := newCluster("a", "b")
	c.in.Desired, c.stored["secrets"] = wants(keys.AESGCM, nil), [2]string{rotation.Plain, ""}
	for !slices.Contains(c.log, "a: aesgcm:1_secrets identity:") {
		c.step()
	}
	c.in.Desired = wants(keys.Identity, nil)
	c.step()
	require.Contains(t, c.condition(v1alpha1.ConditionEncrypted).Message, "waits for what is under way with key 1", "O20: it is told, and not silent")
	c.settle(wants(keys.Identity, nil))
	require.Equal(t, rotation.Plain, c.stored["secrets"][0])
	require.Contains(t, c.log, "update 1 settled", "I4: the whole way first")
}

func TestAPreflight(t *testing.T) {
	c := newCluster("a", "b")
	c.in.Desired, c.stored["secrets"] = wants(keys.KMS, vault("transit/keys/a", "role")), [2]string{rotation.Plain, ""}
	c.step()
	require.Equal(t, bundle.KeyID(1), c.out.Preflight.KeyID)
	c.in.Verdicts["b"] = keys.Verdict{Hash: c.out.Preflight.Hash, Outcome: keys.NotYet, Problem: "status: unreachable"}
	hash := c.out.Preflight.Hash
	look := func(b keys.Verdict) keys.Output {
		in := c.in
		in.Verdicts = map[string]keys.Verdict{"a": c.in.Verdicts["a"], "b": b}
		return keys.Next(in, c.now)
	}
	at := func(out keys.Output, what string) keys.Condition {
		return out.Conditions[slices.IndexFunc(out.Conditions, func(c keys.Condition) bool { return c.Type == what })]
	}
	out := look(c.in.Verdicts["b"])
	require.Empty(t, out.Records, "I19: it has to pass everywhere")
	require.Equal(t, hash, out.Preflight.Hash, "O8: it is tried again as it is")
	require.Contains(t, at(out, v1alpha1.ConditionPreflightProgressing).Message, "b: status: unreachable")
	out = look(keys.Verdict{Hash: hash, Outcome: keys.Refused, Problem: "status: no key_id"})
	require.Empty(t, out.Records)
	require.Equal(t, keys.True, at(out, v1alpha1.ConditionPreflightDegraded).Status)
	require.Contains(t, at(out, v1alpha1.ConditionPreflightDegraded).Message, "b: status: no key_id; change the settings")
	out = look(keys.Verdict{Hash: "another", Outcome: keys.Passed, KeyIDHash: hashed.ID("kek")})
	require.Empty(t, out.Records, "I19: it is of something else")
	out = look(keys.Verdict{Hash: hash, Outcome: keys.Passed})
	require.Empty(t, out.Records, "I20: without a key_id nothing is known of it")
	out = look(keys.Verdict{Hash: hash, Outcome: keys.Passed, KeyIDHash: hashed.ID("another")})
	require.Empty(t, out.Records)
	require.Contains(t, at(out, v1alpha1.ConditionPreflightProgressing).Message, "different key_ids")
	out = look(keys.Verdict{Hash: hash, Outcome: keys.Passed, KeyIDHash: hashed.ID("kek")})
	require.Len(t, out.Records, 1)
	require.Equal(t, hashed.ID("kek"), out.Records[0].Record.KeyIDHash)
	require.Nil(t, out.Preflight)

	c.in.Desired.Retry = "again"
	require.NotEqual(t, hash, keys.Next(c.in, c.now).Preflight.Hash, "and another token has it begin anew")
}

func TestTheHashOfAPreflight(t *testing.T) {
	d := wants(keys.KMS, vault("transit/keys/a", "role"))
	hash := func(change func(d *keys.Desired)) string {
		d := wants(keys.KMS, vault("transit/keys/a", "role"))
		change(&d)
		return keys.Hash(d, secret, 1)
	}
	all := map[string]string{"": keys.Hash(d, secret, 1), "secret": keys.Hash(d, []byte("another one that is kept"), 1), "beside": keys.Hash(d, secret, 2)}
	part := bundle.Part{Source: bundle.Secret, Name: "role", Key: "role-id"}
	all["content"] = hash(func(d *keys.Desired) { d.Plugin.Parts[part] = []byte("x") })
	all["of one field"] = hash(func(d *keys.Desired) { d.Retry = "1" + d.Retry })
	all["of another"] = hash(func(d *keys.Desired) { d.Plugin.Settings = append([]byte("1"), d.Plugin.Settings...) })
	all["timeout"] = hash(func(d *keys.Desired) { d.Plugin.Timeout = time.Second })
	all["name"] = hash(func(d *keys.Desired) {
		d.Plugin.Parts[bundle.Part{Source: bundle.Secret, Name: "role", Key: "role-ids"}] = d.Plugin.Parts[part]
		delete(d.Plugin.Parts, part)
	})
	seen := map[string]string{}
	for name, h := range all {
		require.Empty(t, seen[h], "%q and %q", name, seen[h])
		seen[h] = name + "!"
	}
	require.Equal(t, all[""], hash(func(*keys.Desired) {}))
}

func TestWhatIsMissingIsNamedAndWhatRunsStays(t *testing.T) {
	c := newCluster("a", "b")
	c.settle(wants(keys.KMS, vault("transit/keys/a", "role")))
	c.log = nil
	p := vault("transit/keys/a", "role")
	delete(p.Parts, bundle.Part{Source: bundle.Secret, Name: "role", Key: "secret-id"})
	c.in.Desired = wants(keys.KMS, p)
	c.step()
	require.Equal(t, "ConfigurationInvalid", c.condition(v1alpha1.ConditionKeyDegraded).Reason)
	require.Contains(t, c.condition(v1alpha1.ConditionKeyDegraded).Message, `secret "role", key "secret-id" is missing`, "I21")
	require.Empty(t, c.log)
	require.Len(t, c.out.Configs, 2)
	c.settle(wants(keys.KMS, vault("transit/keys/a", "role")))
	require.Equal(t, v1alpha1.ReasonAsExpected, c.condition(v1alpha1.ConditionKeyDegraded).Reason, "and it heals by itself")
	require.Empty(t, c.log)
}

// Who comes without any file is given the newest key to write with, and never plain text (O23).
func TestALostFileIsMadeAgainOfTheRecords(t *testing.T) {
	c := newCluster("a", "b")
	c.settle(wants(keys.KMS, keyFile("A")))
	for until := range 20 {
		c := newCluster("a", "b")
		c.settle(wants(keys.AESGCM, nil))
		c.in.Desired = wants(keys.KMS, keyFile("A"))
		for range until {
			c.step()
		}
		for _, s := range c.servers {
			s.has = keys.Config{}
		}
		c.look()
		out := keys.Next(c.in, c.now)
		for name, config := range out.Configs {
			require.NotEqual(t, keys.Identity, config.Entries[0].Providers[0].Mode, "%s after %d steps", name, until)
		}
		for range 60 {
			c.step()
		}
		require.Equal(t, "2_secrets", c.stored["secrets"][0])
	}
}

func TestPlainTextIsDroppedWhenThereIsNone(t *testing.T) {
	strict := wants(keys.AESGCM, nil)
	strict.Strict = true
	c := newCluster("a", "b")
	c.settle(strict)
	require.Equal(t, []string{"identity:", "identity: aesgcm:1_secrets", "aesgcm:1_secrets identity:", "aesgcm:1_secrets"}, files(c.log, "a"), "O14")
	c.log = nil
	c.settle(wants(keys.AESGCM, nil))
	require.Equal(t, []string{"aesgcm:1_secrets identity:"}, files(c.log, "a"), "it is read again where it is wanted")
	c.stored["secrets"] = [2]string{rotation.Plain, ""} // somebody put it there
	c.log = nil
	c.settle(strict)
	require.Equal(t, []string{"aesgcm:1_secrets"}, files(c.log, "a"))
	require.Less(t, slices.Index(c.log, "migrate"), slices.Index(c.log, "a: aesgcm:1_secrets"), "not before a count found none: %v", c.log)
	require.Equal(t, "aesgcm:1_secrets", c.stored["secrets"][0])

	next := wants(keys.KMS, keyFile("A"))
	next.Strict = true
	c.log = nil
	c.settle(next)
	require.Equal(t, []string{"aesgcm:1_secrets 2_secrets", "2_secrets aesgcm:1_secrets", "2_secrets"}, files(c.log, "a"))
}

func TestResourcesJoinAndLeave(t *testing.T) {
	c := newCluster("a", "b")
	c.settle(wants(keys.KMS, keyFile("A"), "secrets"))
	c.log = nil
	c.settle(wants(keys.KMS, keyFile("A"), "secrets", "configmaps"))
	require.Equal(t, []string{"identity: 1_configmaps 1_secrets identity:", "1_configmaps identity: 1_secrets identity:", "1_configmaps identity: 1_secrets identity:"}, files(c.log, "a"))
	require.Equal(t, "1_configmaps", c.stored["configmaps"][0])
	require.Equal(t, "1_secrets", c.stored["secrets"][0])
	c.log = nil
	c.settle(wants(keys.KMS, keyFile("A"), "configmaps"))
	require.Equal(t, []string{"1_configmaps identity: 1_secrets identity:", "1_configmaps identity: identity: 1_secrets", "1_configmaps identity:"}, files(c.log, "a"))
	require.Equal(t, rotation.Plain, c.stored["secrets"][0])
	require.Equal(t, []string{"configmaps"}, c.in.Records[0].Resources)
}

func TestAKeyIsMadeAnewWhenPeopleWantItOrItIsOld(t *testing.T) {
	c := newCluster("a")
	d := wants(keys.AESGCM, nil)
	c.settle(d)
	d.External = "the key was seen in a log"
	c.settle(d)
	require.Len(t, c.in.Records, 2)
	require.Equal(t, keys.Requested, c.in.Records[1].Reason)
	c.settle(d)
	require.Len(t, c.in.Records, 2, "and once")
	d.Renew = 7 * 24 * time.Hour
	c.settle(d)
	require.Len(t, c.in.Records, 2)
	c.now = c.now.Add(d.Renew)
	c.settle(d)
	require.Equal(t, keys.Aged, c.in.Records[2].Reason)
}

// With a plugin that is on its way out, too, the KMS is reached as it is by now (O7).
func TestCredentialsAreThoseOfTheKMS(t *testing.T) {
	c := newCluster("a", "b")
	c.settle(wants(keys.KMS, vault("transit/keys/a", "role")))
	c.log, c.wanted = nil, "kek-2"
	c.in.Desired = wants(keys.KMS, vault("transit/keys/b", "role"))
	for range 5 {
		c.step()
	}
	require.Len(t, c.in.Records, 2)
	renamed := vault("transit/keys/b", "renamed")
	c.settle(wants(keys.KMS, renamed))
	var former keys.Record
	for _, r := range c.in.Records {
		if r.ID == 1 {
			former = r
		}
	}
	require.Equal(t, renamed.Parts, former.Plugin.Parts)
	require.Contains(t, string(former.Plugin.Settings), `"keyPath":"transit/keys/a"`)
}

// A Vault that moves while one key of it takes the place of another has both move.
func TestAVaultThatMovesTakesAllItsKeysAlong(t *testing.T) {
	c := newCluster("a", "b")
	c.settle(wants(keys.KMS, vault("transit/keys/a", "role")))
	c.log, c.wanted = nil, "kek-2"
	c.in.Desired = wants(keys.KMS, vault("transit/keys/b", "role"))
	for !slices.Contains(c.log, "migrate") {
		c.step()
	}
	moved := vault("transit/keys/b", "role")
	moved.Settings = []byte(strings.Replace(string(moved.Settings), "vault.example.com", "vault.example.org", 1))
	c.settle(wants(keys.KMS, moved))
	require.Len(t, c.in.Records, 2, "what may have been written with stays, by its key_id")
	for _, r := range c.in.Records {
		require.Contains(t, string(r.Plugin.Settings), "vault.example.org", r.ID)
	}
	require.Equal(t, "2_secrets", c.stored["secrets"][0])
}

func TestPruneKeepsTheTenNewestAndWhatAnyoneHas(t *testing.T) {
	c := newCluster("a")
	d := wants(keys.AESGCM, nil)
	for n := range 13 {
		d.External = fmt.Sprint("again ", n)
		c.settle(d)
	}
	require.Len(t, c.in.Records, 11, "I25: the one in use, and ten")
	require.Contains(t, c.log, "delete 2 pruned")
	require.NotContains(t, c.log, "delete 3 pruned")

	d.External = "once more"
	c.in.Desired = d
	for len(c.in.Records) < 12 || c.in.Records[11].SettledAt.IsZero() {
		c.step()
	}
	c.look()
	c.in.Present = append(c.in.Present, 3) // which a node still has
	require.Empty(t, keys.Next(c.in, c.now).Records)
	require.NotEmpty(t, keys.Without("present")(c.in, c.now).Records, "without that it would be gone")
}

func TestWhoWasAwayHoldsAnew(t *testing.T) {
	c := newCluster("a")
	c.in.Desired, c.stored["secrets"] = wants(keys.AESGCM, nil), [2]string{rotation.Plain, ""}
	for len(c.in.Records) == 0 || c.in.Records[0].State.Move.AgreedAt.IsZero() {
		c.step()
	}
	c.now = c.now.Add(time.Hour)
	c.look()
	c.in.Resumed = true
	require.Empty(t, c.actions(keys.Next(c.in, c.now)), "I11")
	require.NotEmpty(t, c.actions(keys.Without("resumed")(c.in, c.now)), "without that it would begin")
}

// movingState is some state of a move.
func movingState(t *testing.T) *rotation.State {
	t.Helper()
	s, err := rotation.NewMove(rotation.Plan{Configs: map[string][]string{"a": {"1", "2", "3", "4"}}, Resources: []string{"secrets"}}, []string{"old"}, []string{"new"})
	require.NoError(t, err)
	return &s
}

// actions are those that rewrite.
func (c *cluster) actions(out keys.Output) (all []rotation.Action) {
	for _, a := range out.Actions {
		if _, migrates := a.(rotation.Migrate); migrates {
			all = append(all, a)
		}
	}
	return all
}

func TestNothingIsDecidedForNobody(t *testing.T) {
	c := newCluster("a")
	c.settle(wants(keys.AESGCM, nil))
	for _, expected := range [][]string{nil, {}, {""}} {
		in := c.in
		in.Expected, in.Desired = expected, wants(keys.Identity, nil)
		out := keys.Next(in, c.now)
		require.Empty(t, out.Records)
		require.Empty(t, out.Configs)
		require.Equal(t, v1alpha1.ReasonEncryptionCompleted, out.Conditions[0].Reason, "what was known stays")
		in.Conditions = nil
		require.Equal(t, keys.Unknown, keys.Next(in, c.now).Conditions[0].Status)
	}
}

func TestRecordsThatContradictEachOtherAreRefused(t *testing.T) {
	c := newCluster("a")
	c.settle(wants(keys.AESGCM, nil))
	c.settle(wants(keys.Secretbox, nil))
	one, two := c.in.Records[0], c.in.Records[1]
	moving := one
	moving.SettledAt, moving.State = time.Time{}, movingState(t)
	twice, coming := two, two
	coming.SettledAt, coming.State = time.Time{}, movingState(t)
	for name, records := range map[string][]keys.Record{
		"a settled one after one on its way": {moving, two}, "one on its way, and not the one that it came from": {coming}, "two of one keyID": {one, two, twice}, "one without a key": {{ID: 1, Mode: keys.AESGCM}},
	} {
		in := c.in
		in.Records = records
		out := keys.Next(in, c.now)
		require.Empty(t, out.Records, name)
		require.Empty(t, out.Configs, name)
		require.Equal(t, "KeyRecordRefused", out.Conditions[1].Reason, name)
		t.Log(out.Conditions[1].Message)
	}
}

func TestConditionsSaySinceWhen(t *testing.T) {
	c := newCluster("a", "b")
	c.settle(wants(keys.KMS, keyFile("A")))
	since := c.condition(v1alpha1.ConditionEncrypted).Since
	c.step()
	require.Equal(t, since, c.condition(v1alpha1.ConditionEncrypted).Since)
	c.servers["b"].down = true
	c.step()
	require.Equal(t, "StepBlocked", c.condition(v1alpha1.ConditionStateDegraded).Reason)
	require.Contains(t, c.condition(v1alpha1.ConditionStateDegraded).Message, "b")
	require.Equal(t, c.now, c.condition(v1alpha1.ConditionStateDegraded).Since)
	require.Equal(t, since, c.condition(v1alpha1.ConditionEncrypted).Since)
	var types []string
	for _, condition := range c.out.Conditions {
		types = append(types, condition.Type)
	}
	require.Equal(t, []string{"Encrypted", "EncryptionKeyControllerDegraded", "EncryptionStateControllerDegraded", "EncryptionMigrationControllerProgressing",
		"EncryptionMigrationControllerDegraded", "EncryptionKMSPreflightControllerProgressing", "EncryptionKMSPreflightControllerDegraded", "KmsHealthReportsProgressing", "KMSPluginsDegraded"}, types)
}

func TestApiserversThatDisagreeForLongAreTrouble(t *testing.T) {
	c := newCluster("a", "b")
	c.settle(wants(keys.KMS, keyFile("A")))
	c.versions = map[string]string{"b": "kek-2"} // which sees another version
	c.step()
	require.Equal(t, keys.True, c.condition(v1alpha1.ConditionReportsProgressing).Status, "O1")
	require.Contains(t, c.condition(v1alpha1.ConditionReportsProgressing).Message, "b has "+hashed.ID("kek-2"), "and who has which")
	require.Equal(t, keys.False, c.condition(v1alpha1.ConditionPluginsDegraded).Status)
	for range 130 {
		c.step()
	}
	require.Equal(t, keys.True, c.condition(v1alpha1.ConditionPluginsDegraded).Status)
	require.NotContains(t, c.log[len(c.log)-1], "migrate", "I10")
}

func TestNoTextHasACredential(t *testing.T) {
	c := newCluster("a", "b")
	c.in.Desired, c.stored["secrets"] = wants(keys.KMS, vault("transit/keys/a", "role")), [2]string{rotation.Plain, ""}
	for range 20 {
		c.step()
		for _, text := range []string{fmt.Sprintf("%v %+v %#v", c.out, c.out, c.out), fmt.Sprintf("%v %+v %#v", c.in, c.in, c.in)} {
			require.NotContains(t, text, "sesame")
			require.NotContains(t, text, fmt.Sprint([]byte(secretID)))
			require.NotContains(t, text, fmt.Sprint(random[:4]))
		}
	}
}
