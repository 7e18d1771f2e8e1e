package overview_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/operate/audit"
	"github.com/kube-atrest/atrest/operate/overview"
	"github.com/kube-atrest/atrest/operate/rotation"
)

var now = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

const (
	keyA, keyB = "sha256:a", "sha256:b"
	fileA      = "sha256:1"
	fileB      = "sha256:2"
	ofConfigs  = "what the difference means, atrest diff says; if each has one of its own, as for a socket of its own, say --separate-configs"
)

// vault is a provider that is written with, of an apiserver of this project.
func vault() rotation.Provider {
	deks := 3
	return rotation.Provider{Healthy: true, KeyID: keyA, WroteKeyID: keyA, WroteAt: now, Told: rotation.Told{
		Role: rotation.RoleWrites, WritesFor: []string{"secrets"}, WritesUntil: now.Add(3 * time.Minute), LastWrite: now.Add(-time.Minute), DEKs: &deks}}
}

// ours is an apiserver of this project that is well, and stock is another one.
func ours() rotation.Instance {
	return rotation.Instance{CheckedAt: now, ConfigHash: fileA, ConfigSince: now.Add(-time.Hour), Complete: true, Providers: map[string]rotation.Provider{
		"vault": vault(),
		"old":   {Healthy: true, KeyID: keyB, Told: rotation.Told{Role: rotation.RoleReads}},
	}}
}

func stock() rotation.Instance {
	return rotation.Instance{CheckedAt: now, ConfigHash: fileA, Providers: map[string]rotation.Provider{
		"vault": {Healthy: true, KeyID: keyA, WroteKeyID: keyA, WroteAt: now.Add(-time.Hour)}, "old": {Healthy: true, KeyID: keyB}}}
}

func look(of func() rotation.Instance) overview.Seen {
	s := overview.Seen{Began: now.Add(-time.Second), Ended: now, Apiservers: []string{"cp-1", "cp-2", "cp-3"}, Told: map[string]rotation.Instance{}, Unnamed: map[string]string{}}
	for _, name := range s.Apiservers {
		s.Told[name] = of()
	}
	return s
}

// change changes what an apiserver told.
func change(s *overview.Seen, name string, to func(*rotation.Instance)) {
	i := s.Told[name]
	to(&i)
	s.Told[name] = i
}

func provider(name string, to func(*rotation.Provider)) func(*rotation.Instance) {
	return func(i *rotation.Instance) {
		p := i.Providers[name]
		to(&p)
		i.Providers[name] = p
	}
}

func lines(o overview.Overview) []string {
	all := []string{}
	for _, p := range o.Problems {
		all = append(all, string(p.Verdict)+": "+p.String())
	}
	return all
}

func TestAFleetThatAgreesAndIsWell(t *testing.T) {
	for _, of := range []func() rotation.Instance{ours, stock} {
		o := overview.Of(look(of))
		require.Equal(t, overview.Well, o.Verdict)
		require.Equal(t, "All 3 apiservers agree and are well.", o.Summary)
		require.Empty(t, o.Problems)
		require.Empty(t, o.Notes)
	}
	alone := look(ours)
	alone.Apiservers = alone.Apiservers[:1]
	require.Equal(t, "The one apiserver is well.", overview.Of(alone).Summary)
}

// What was not told is absent, never a value that could be taken for one.
func TestWhatIsToldIsInTheRows(t *testing.T) {
	s := look(ours)
	s.Told["cp-2"] = stock()
	left, deks := 180.0, 3
	o := overview.Of(s)
	require.Equal(t, overview.Apiserver{Name: "cp-1", AnsweredAt: now, Seen: true, ConfigHash: fileA, ConfigSince: now.Add(-time.Hour), Providers: []overview.Provider{
		{Name: "vault", Role: rotation.RoleWrites, KeyIDHash: keyA, WroteKeyIDHash: keyA, Health: overview.Health(overview.Well), WritesLeft: &left, LastWrite: now.Add(-time.Minute), DEKs: &deks},
		{Name: "old", Role: rotation.RoleReads, KeyIDHash: keyB, Health: overview.Health(overview.Well)},
	}}, o.Apiservers[0])
	data, err := json.Marshal(o.Apiservers[1])
	require.NoError(t, err)
	require.JSONEq(t, `{"name": "cp-2", "answeredAt": "2026-11-20T12:00:00Z", "seen": true, "configHash": "sha256:1", "providers": [
		{"name": "old", "keyIDHash": "sha256:b", "health": "well"},
		{"name": "vault", "keyIDHash": "sha256:a", "wroteKeyIDHash": "sha256:a", "health": "well"}]}`, string(data))
}

// lies are what looks well, or nearly so, and is not: what is changed in a fleet of
// apiservers, what is said of it and the verdict.
var lies = map[string]struct {
	of      func() rotation.Instance
	change  func(*overview.Seen)
	verdict overview.Verdict
	says    []string
}{
	"nobody was asked": {ours, func(s *overview.Seen) { s.Apiservers = nil }, overview.Unknown, []string{"no apiserver was asked: name each that there is"}},
	"one never answered": {ours, func(s *overview.Seen) { s.Told["cp-2"] = rotation.Instance{Problem: "is it up?"} }, overview.Unknown,
		[]string{"cp-2 cannot be seen: is it up?"}},
	"one is missing altogether": {ours, func(s *overview.Seen) { delete(s.Told, "cp-2") }, overview.Unknown, []string{"cp-2 cannot be seen: it never answered"}},
	"an answer is of an earlier look": {ours, func(s *overview.Seen) {
		change(s, "cp-2", func(i *rotation.Instance) { i.CheckedAt, i.Problem = now.Add(-time.Minute), "connection refused" })
	}, overview.Unknown, []string{"cp-2 cannot be seen now: what it told is of 2026-11-20T11:59:00Z: connection refused"}},
	"an answer is of an earlier look and does not say so": {ours, func(s *overview.Seen) {
		change(s, "cp-2", func(i *rotation.Instance) { i.CheckedAt = now.Add(-time.Minute) })
	}, overview.Unknown, []string{"cp-2 cannot be seen now: what it told is of 2026-11-20T11:59:00Z: it did not answer since"}},
	"an answer is of a time to come": {ours, func(s *overview.Seen) {
		change(s, "cp-2", func(i *rotation.Instance) { i.CheckedAt = now.Add(time.Minute) })
	}, overview.Unknown, []string{"cp-2 cannot be seen now: what it told is of 2026-11-20T12:01:00Z: it did not answer since"}},
	"an earlier answer of another configuration is no disagreement": {ours, func(s *overview.Seen) {
		change(s, "cp-2", func(i *rotation.Instance) { i.CheckedAt, i.ConfigHash = now.Add(-time.Minute), fileB })
	}, overview.Unknown, []string{"cp-2 cannot be seen now: what it told is of 2026-11-20T11:59:00Z: it did not answer since"}},
	"encryption has ended": {ours, func(s *overview.Seen) {
		change(s, "cp-2", func(i *rotation.Instance) { i.Problem = "encryption has ended" })
	}, overview.NotWell, []string{"cp-2 says that it is not well: encryption has ended"}},
	"no configuration is in effect": {ours, func(s *overview.Seen) {
		change(s, "cp-2", func(i *rotation.Instance) { i.ConfigHash = "" })
	}, overview.Unknown, []string{"cp-2 tells of no configuration in effect: has it --encryption-provider-config?"}},
	"no configuration is in effect anywhere": {ours, func(s *overview.Seen) {
		for _, name := range s.Apiservers {
			s.Told[name] = rotation.Instance{CheckedAt: now, Complete: true}
		}
	}, overview.Unknown, []string{
		"cp-1 tells of no configuration in effect: has it --encryption-provider-config?",
		"cp-2 tells of no configuration in effect: has it --encryption-provider-config?",
		"cp-3 tells of no configuration in effect: has it --encryption-provider-config?"}},
	"the file is not in effect": {ours, func(s *overview.Seen) {
		change(s, "cp-2", func(i *rotation.Instance) { i.Pending = "kind: [" })
	}, overview.NotWell, []string{"cp-2 has not taken its file into use as it is now: kind: ["}},
	"another configuration": {ours, func(s *overview.Seen) {
		change(s, "cp-2", func(i *rotation.Instance) { i.ConfigHash = fileB })
	}, overview.NotWell, []string{"cp-2 has another configuration than the others: sha256:2, and they have sha256:1; " + ofConfigs}},
	"three configurations": {ours, func(s *overview.Seen) {
		change(s, "cp-2", func(i *rotation.Instance) { i.ConfigHash = fileB })
		change(s, "cp-3", func(i *rotation.Instance) { i.ConfigHash = "sha256:3" })
	}, overview.NotWell, []string{"the apiservers have different configurations: cp-1 has sha256:1, cp-2 has sha256:2, cp-3 has sha256:3; " + ofConfigs}},
	"an apiserver that tells nothing": {stock, func(s *overview.Seen) {
		change(s, "cp-2", func(i *rotation.Instance) { i.Providers = nil })
	}, overview.Unknown, []string{
		"cp-2 tells nothing of any plugin: so nothing is known of its health: its configuration has no KMS v2 provider, or no plugin has named a key_id",
		"cp-2 tells nothing of provider old: cp-1 and cp-3 have it",
		"cp-2 tells nothing of provider vault: cp-1 and cp-3 have it"}},
	"a provider is missing": {ours, func(s *overview.Seen) {
		change(s, "cp-2", func(i *rotation.Instance) { delete(i.Providers, "old") })
	}, overview.NotWell, []string{"cp-2 has no provider old: cp-1 and cp-3 have it"}},
	"a provider is silent at one": {stock, func(s *overview.Seen) {
		change(s, "cp-2", provider("old", func(p *rotation.Provider) { p.Healthy, p.Silent = false, true }))
	}, overview.Unknown, []string{"cp-2 tells nothing of provider old: cp-1 and cp-3 have it"}},
	"all that one has is silent": {stock, func(s *overview.Seen) {
		for _, name := range []string{"old", "vault"} {
			for _, apiserver := range s.Apiservers {
				change(s, apiserver, provider(name, func(p *rotation.Provider) { p.Healthy, p.Silent = false, true }))
			}
		}
	}, overview.Unknown, []string{
		"cp-1 tells nothing of any plugin: so nothing is known of its health: its configuration has no KMS v2 provider, or no plugin has named a key_id",
		"cp-2 tells nothing of any plugin: so nothing is known of its health: its configuration has no KMS v2 provider, or no plugin has named a key_id",
		"cp-3 tells nothing of any plugin: so nothing is known of its health: its configuration has no KMS v2 provider, or no plugin has named a key_id"}},
	"a plugin is away": {ours, func(s *overview.Seen) {
		change(s, "cp-2", provider("vault", func(p *rotation.Provider) {
			p.Healthy, p.Problem, p.Told.Message, p.Told.Since, p.Told.WritesUntil = false, "status_error", "no socket", now.Add(-time.Minute), now.Add(2*time.Minute)
		}))
	}, overview.NotWell, []string{"cp-2 finds the plugin of vault not well: status error since 2026-11-20T11:59:00Z: no socket; writes go on for 120 s"}},
	"a plugin is away for long": {ours, func(s *overview.Seen) {
		change(s, "cp-2", provider("vault", func(p *rotation.Provider) { p.Healthy, p.Problem, p.Told.WritesUntil = false, "unreachable", now }))
	}, overview.NotWell, []string{"cp-2 finds the plugin of vault not well: unreachable; writes have stopped"}},
	"a plugin that is only read with is away": {ours, func(s *overview.Seen) {
		change(s, "cp-2", provider("old", func(p *rotation.Provider) { p.Healthy = false }))
	}, overview.NotWell, []string{"cp-2 finds the plugin of old not well: it does not say why"}},
	"a plugin is well, and nothing can be written with it": {ours, func(s *overview.Seen) {
		change(s, "cp-2", provider("vault", func(p *rotation.Provider) { p.Told.WritesUntil = time.Time{} }))
	}, overview.NotWell, []string{"cp-2 has nothing to write with of vault: writes of secrets fail: see its log"}},
	"a plugin is well, and named no key_id": {ours, func(s *overview.Seen) {
		change(s, "cp-2", provider("old", func(p *rotation.Provider) { p.KeyID = "" }))
	}, overview.Unknown, []string{"cp-2 knows no key_id of old: its plugin has named none, as none of KMS v1 does, so whether all have the same key is not known"}},
	"a plugin is well, and names no key_id any more": {stock, func(s *overview.Seen) {
		change(s, "cp-2", provider("vault", func(p *rotation.Provider) { p.KeyID = "" }))
	}, overview.Unknown, []string{"cp-2 knows no key_id of vault: its plugin has named none, as none of KMS v1 does, so whether all have the same key is not known"}},
	"one configuration, and another key_id": {ours, func(s *overview.Seen) {
		change(s, "cp-2", provider("vault", func(p *rotation.Provider) { p.KeyID, p.WroteKeyID = keyB, keyB }))
	}, overview.NotWell, []string{"cp-2 has another key_id of vault than the others: sha256:b, and they have sha256:a"}},
	"one configuration, and another role": {ours, func(s *overview.Seen) {
		change(s, "cp-2", provider("vault", func(p *rotation.Provider) { p.Told.Role = rotation.RoleReads }))
	}, overview.NotWell, []string{"cp-2 has another role for vault than the others: reads, and they have writes"}},
	"one writes other resources, of a file of its own": {ours, func(s *overview.Seen) {
		s.SeparateConfigs = true
		change(s, "cp-2", provider("vault", func(p *rotation.Provider) { p.Told.WritesFor = []string{"secrets", "configmaps"} }))
	}, overview.NotWell, []string{"cp-2 writes other resources with vault than the others: configmaps and secrets, and they have secrets"}},
	"one writes under the former key_id": {stock, func(s *overview.Seen) {
		change(s, "cp-2", provider("vault", func(p *rotation.Provider) { p.WroteKeyID, p.WroteAt = keyB, now.Add(-time.Minute) }))
	}, overview.NotWell, []string{"cp-2 writes under another key_id than the plugin of vault names: at 2026-11-20T11:59:00Z under sha256:b, and its plugin names sha256:a"}},
	"one has not written under the new key_id": {stock, func(s *overview.Seen) {
		change(s, "cp-2", provider("vault", func(p *rotation.Provider) { p.WroteKeyID = keyB }))
	}, overview.Unknown, []string{"cp-2 has not written since the plugin of vault names another key_id: " +
		"last at 2026-11-20T11:00:00Z under sha256:b, and its plugin names sha256:a: what it writes under now was not seen"}},
	"one is of another cluster": {ours, func(s *overview.Seen) {
		s.Clusters = map[string]overview.Cluster{"cp-1": {UID: "x"}, "cp-2": {UID: "y"}, "cp-3": {UID: "x"}}
	}, overview.NotWell, []string{"cp-2 is of another cluster than the others: y, and they have x; by the UID of the namespace kube-system; name those of one alone"}},
	"which cluster one is of is not known": {ours, func(s *overview.Seen) {
		s.Clusters = map[string]overview.Cluster{"cp-1": {UID: "x"}, "cp-2": {Problem: "forbidden"}, "cp-3": {UID: "x"}}
	}, overview.Unknown, []string{"which cluster cp-2 is of is not known: forbidden"}},
	"one is not named": {ours, func(s *overview.Seen) { s.Unnamed["cp-4"] = "it has a Lease" }, overview.Unknown, []string{"cp-4 is not named: it has a Lease"}},
	"who there is is not known": {ours, func(s *overview.Seen) { s.Untold = "no Leases" }, overview.Unknown,
		[]string{"whether there are other apiservers is not known: no Leases"}},
}

func TestLiesAreNotBelieved(t *testing.T) {
	for name, lie := range lies {
		t.Run(name, func(t *testing.T) {
			s := look(lie.of)
			lie.change(&s)
			o := overview.Of(s)
			require.Equal(t, lie.verdict, o.Verdict, o.Summary)
			var says []string
			for _, text := range lie.says {
				says = append(says, string(lie.verdict)+": "+text)
			}
			require.Equal(t, says, lines(o))
			for _, p := range o.Problems {
				if who, _, _ := strings.Cut(p.What, " "); slices.Contains(s.Apiservers, who) {
					require.Equal(t, []string{who}, p.Apiservers, "it is the row of that one")
				}
				for _, provider := range []string{"vault", "old"} {
					require.Equal(t, strings.Contains(p.What, " "+provider), p.Provider == provider, p.What)
				}
			}
			begin := map[overview.Verdict]string{overview.NotWell: "Not well: ", overview.Unknown: "Unknown: "}[lie.verdict]
			require.True(t, strings.HasPrefix(o.Summary, begin+o.Problems[0].What), o.Summary)
		})
	}
}

func TestWhatIsNotWellWinsOverWhatIsUnknown(t *testing.T) {
	s := look(ours)
	lies["one never answered"].change(&s)
	change(&s, "cp-3", provider("vault", func(p *rotation.Provider) { p.Healthy, p.Problem = false, "unreachable" }))
	o := overview.Of(s)
	require.Equal(t, overview.NotWell, o.Verdict)
	require.Equal(t, "Not well: cp-3 finds the plugin of vault not well; and 1 more.", o.Summary)
}

// A row of one that was not seen now does not say that it is well.
func TestAnEarlierAnswerIsNotCalledWell(t *testing.T) {
	s := look(ours)
	lies["an answer is of an earlier look"].change(&s)
	row := overview.Of(s).Apiservers[1]
	require.False(t, row.Seen)
	require.Equal(t, []any{overview.Health(overview.Unknown), (*float64)(nil)}, []any{row.Providers[0].Health, row.Providers[0].WritesLeft})
	require.Equal(t, fileA, row.ConfigHash)
}

func TestNotesChangeNoVerdict(t *testing.T) {
	idle, none, gone, separate := look(stock), look(ours), look(stock), look(ours)
	separate.SeparateConfigs = true // keys in the files may differ
	change(&separate, "cp-2", func(i *rotation.Instance) { i.ConfigHash = fileB })
	for _, name := range idle.Apiservers {
		change(&idle, name, provider("vault", func(p *rotation.Provider) { p.WroteKeyID, p.WroteAt = "", time.Time{} }))
		none.Told[name] = rotation.Instance{CheckedAt: now, ConfigHash: fileA, Complete: true}
	}
	change(&gone, "cp-1", func(i *rotation.Instance) { i.Providers["former"] = rotation.Provider{KeyID: keyB, Silent: true} })
	for note, s := range map[string]overview.Seen{
		"no apiserver has written anything yet, as far as they tell":                                                                       idle,
		"nothing is written with KMS: what is written is under keys that are in the file, or plain":                                        none,
		"former was not heard of for minutes by cp-1: it is probably in the configuration no longer, which a kube-apiserver does not tell": gone,
		"the configurations are not compared, nor the keys in them, as each apiserver has one of its own":                                  separate,
	} {
		o := overview.Of(s)
		require.Equal(t, overview.Well, o.Verdict, o.Summary)
		require.Equal(t, []string{note}, o.Notes)
		agree := map[bool]string{true: "All 3 apiservers are well, and agree on KMS as far as they tell.", false: "All 3 apiservers agree and are well."}
		require.Equal(t, agree[s.SeparateConfigs], o.Summary)
	}
	separate.Told["cp-2"], separate.Told["cp-3"] = stock(), stock()
	require.Contains(t, overview.Of(separate).Notes, "which resources cp-2 and cp-3 have to write with KMS is not compared, as a kube-apiserver does not tell it")
}

func TestWhatEtcdHoldsIsJudged(t *testing.T) {
	count := func(n int64, f audit.Form) *overview.Etcd {
		r := &audit.Report{Prefix: "/registry/", Objects: n, Resources: []audit.Resource{{Name: "secrets", Forms: []audit.Count{{Form: f, Objects: n}}}}}
		return &overview.Etcd{Place: "etcd", Report: r}
	}
	v1 := audit.Form{Kind: config.KMSv1, Name: "vault"}
	kms := func(name, keyID string) audit.Form {
		return audit.Form{Kind: config.KMSv2, Name: name, KeyIDHash: keyID}
	}
	read := func(f audit.Form, v overview.Verdict, why string) *overview.Etcd {
		e := count(2, f)
		e.Reads = []overview.Read{{Resource: "configmaps", Form: f, Verdict: overview.Well}, {Resource: "secrets", Form: f, Verdict: v, Why: why}}
		return e
	}
	for name, c := range map[string]struct {
		of      func() rotation.Instance
		etcd    *overview.Etcd
		verdict overview.Verdict
		says    string
	}{
		"as it should be":          {ours, read(kms("vault", keyA), overview.Well, ""), overview.Well, ""},
		"as it should be, unread":  {ours, read(kms("vault", keyA), overview.NotWell, "no key"), overview.NotWell, "2 objects of secrets are stored with vault, and cannot be read: no key"},
		"as it should be, unasked": {ours, count(1, kms("vault", keyA)), overview.Unknown, "1 object of secrets is stored with vault, and whether they can be read is not known: no apiserver tells it: "},
		"not reached":              {ours, &overview.Etcd{Problem: "etcd is away"}, overview.Unknown, "what etcd holds is not known: etcd is away"},
		"not looked at":            {ours, &overview.Etcd{}, overview.Unknown, "what etcd holds is not known: nobody looked"},
		"nothing at all":           {ours, &overview.Etcd{Report: &audit.Report{Prefix: "/r/"}}, overview.Unknown, "what etcd holds is not known: nothing at all is stored below /r/"},
		"of a provider of nobody":  {ours, count(1, kms("gone", keyA)), overview.NotWell, "1 object of secrets is stored with gone, which no apiserver has: put the provider back"},
		"of a provider, untold":    {stock, count(2, kms("gone", keyA)), overview.Unknown, "2 objects of secrets are stored with gone, of which no apiserver tells: "},
		"of an earlier key_id":     {ours, count(2, kms("vault", keyB)), overview.Unknown, "2 objects of secrets are stored under an earlier key_id of vault, sha256:b, and whether they can be read is not known: no apiserver tells it: see atrest check FILE --etcd, "},
		"of one that is read":      {ours, read(kms("vault", keyB), overview.Well, ""), overview.Unknown, "2 objects of secrets are stored under an earlier key_id of vault, sha256:b, and whether the key is still there is not known: one was read, by what an apiserver may have in memory: atrest check FILE --etcd asks the plugin, "},
		"of one that is not read":  {ours, read(kms("vault", keyB), overview.NotWell, "no key"), overview.NotWell, "2 objects of secrets are stored under an earlier key_id of vault, sha256:b, and cannot be read: no key"},
		"of one that may not be":   {ours, read(kms("vault", keyB), overview.Unknown, "forbidden"), overview.Unknown, "2 objects of secrets are stored under an earlier key_id of vault, sha256:b, and whether they can be read is not known: forbidden: see atrest check FILE --etcd"},
		"of another provider":      {ours, count(2, kms("old", keyB)), overview.Unknown, "2 objects of secrets are stored with old, and whether they can be read is not known: no apiserver tells it: "},
		"of another that is read":  {ours, read(kms("old", keyB), overview.Well, ""), overview.Well, `2 objects of secrets are stored with kms v2 "old" key_id sha256:b, and they are written with vault now: `},
		"of the one, untold":       {stock, count(2, kms("vault", keyA)), overview.Unknown, "2 objects of secrets are stored with vault, and whether they can be read is not known: no apiserver tells it: "},
		"of a key in the file":     {ours, count(2, audit.Form{Kind: config.AESCBC, Name: "k"}), overview.Unknown, `2 objects of secrets are stored with aescbc "k", of which no apiserver tells: atrest check FILE --etcd says whether they can be read, with FILE as an apiserver has it; they are written with vault now: `},
		"of a key, nothing told":   {stock, count(1, audit.Form{Kind: config.Secretbox, Name: "k"}), overview.Unknown, `1 object of secrets is stored with secretbox "k", of which no apiserver tells: `},
		"plain, with a wildcard":   {writingFor("*.*"), count(2, audit.Form{Kind: audit.Plaintext}), overview.Unknown, "2 objects of secrets are in plaintext, and whether they are to be is not known: vault writes what a wildcard is for"},
		"plain, with one of core":  {writingFor("pods", "*."), count(2, audit.Form{Kind: audit.Plaintext}), overview.Unknown, "and whether they are to be is not known: vault writes what a wildcard is for"},
		"plain, with one of apps":  {writingFor("*.apps"), count(2, audit.Form{Kind: audit.Plaintext}), overview.Unknown, "and whether they are to be is not known: no apiserver tells that KMS writes them, and of keys in the file none tells: see atrest check FILE --etcd"},
		"plain, though encrypted":  {ours, count(2, audit.Form{Kind: audit.Plaintext}), overview.NotWell, "2 objects of secrets are in plaintext: vault is to encrypt them: "},
		"plain, nothing is told":   {stock, count(2, audit.Form{Kind: audit.Plaintext}), overview.Unknown, "2 objects of secrets are in plaintext, and whether they are to be is not known: no apiserver tells that KMS writes them, and of keys in the file none tells: see atrest check FILE --etcd"},
		"no entry for them":        {writingFor("configmaps"), count(2, kms("vault", keyA)), overview.NotWell, "2 objects of secrets are stored with vault, which no apiserver has for them: put secrets back into the entry of vault, "},
		"no entry, and read":       {writingFor("configmaps"), read(kms("vault", keyA), overview.Well, ""), overview.Well, ""},
		"of one of core":           {writingFor("*."), count(2, kms("vault", keyA)), overview.Unknown, "2 objects of secrets are stored with vault, and whether they can be read is not known: no apiserver tells it: "},
		"of one of core, read":     {writingFor("*."), read(kms("vault", keyA), overview.Well, ""), overview.Well, ""},
		"of another's wildcard":    {split, count(2, kms("vault", keyA)), overview.NotWell, "2 objects of secrets are stored with vault, which no apiserver has for them: "},
		"of KMS v1":                {ours, count(1, v1), overview.NotWell, "1 object of secrets is stored with KMS v1 vault, and what the apiservers have of that name is of KMS v2: put the provider back"},
		"of KMS v1, untold":        {stock, count(1, v1), overview.Unknown, "1 object of secrets is stored with KMS v1 vault, and what the apiservers have of that name is of KMS v2: put the provider back"},
		"damaged":                  {ours, count(2, audit.Form{Kind: audit.Undecodable}), overview.NotWell, "2 objects of secrets cannot be read: atrest audit lists them"},
		"of a provider of nowhere": {ours, count(2, audit.Form{Kind: audit.Unknown}), overview.NotWell, "2 objects of secrets cannot be read: atrest audit lists them"},
	} {
		t.Run(name, func(t *testing.T) {
			s := look(c.of)
			s.Etcd = c.etcd
			o := overview.Of(s)
			require.Equal(t, c.verdict, o.Verdict, o.Summary)
			var all []string
			for _, p := range o.Problems {
				all = append(all, p.String())
			}
			const memory = "what is stored with KMS is read now, if only with keys that apiservers have in memory: atrest check FILE --etcd has the plugins unwrap them"
			some := slices.ContainsFunc(c.etcd.Reads, func(r overview.Read) bool { return r.Verdict == overview.Well })
			require.Equal(t, some, slices.Contains(o.Notes, memory))
			all = append(all, slices.DeleteFunc(o.Notes, func(n string) bool { return n == memory })...)
			if c.says == "" {
				require.Empty(t, all)
				return
			}
			require.Contains(t, all[0], c.says)
			if all = all[1:]; !c.of().Complete {
				require.Len(t, all, 1)
				require.Contains(t, all[0], "which resources are to be encrypted a kube-apiserver does not tell")
				all = nil
			}
			require.Empty(t, all)
		})
	}
}

// writingFor is an apiserver that tells that it encrypts something else.
func writingFor(names ...string) func() rotation.Instance {
	return func() rotation.Instance {
		i := ours()
		provider("vault", func(p *rotation.Provider) { p.Told.WritesFor = names })(&i)
		return i
	}
}

// split is an apiserver that tells that another provider encrypts what a wildcard was for.
func split() rotation.Instance {
	i := writingFor("*.*")()
	provider("old", func(p *rotation.Provider) {
		p.Told.Role, p.Told.WritesFor, p.Told.WritesUntil = rotation.RoleWrites, []string{"secrets"}, now.Add(time.Hour)
	})(&i)
	return i
}

// What writes them now is in the file, where nobody looks.
func TestPlaintextBesideAKeyInTheFileIsNotTakenForMeant(t *testing.T) {
	s := look(stock)
	s.Etcd = &overview.Etcd{Report: &audit.Report{Objects: 2, Resources: []audit.Resource{
		{Name: "secrets", Forms: []audit.Count{{Form: audit.Form{Kind: config.AESGCM, Name: "k"}, Objects: 1}, {Form: audit.Form{Kind: audit.Plaintext}, Objects: 1}}},
		{Name: "pods", Forms: []audit.Count{{Form: audit.Form{Kind: audit.Plaintext}, Objects: 1}}},
	}}}
	var what []string
	for _, p := range overview.Of(s).Problems {
		require.Equal(t, overview.Unknown, p.Verdict)
		what = append(what, p.What)
	}
	require.Equal(t, []string{`1 object of secrets is stored with aesgcm "k", of which no apiserver tells`, "1 object of secrets is in plaintext, and whether they are to be is not known"}, what)
}

// What was under KMS at some time is not taken for plain on purpose, and what always was is.
func TestPlaintextBesideWhatIsUnderKMSIsNotTakenForMeant(t *testing.T) {
	s := look(stock)
	plain := audit.Count{Form: audit.Form{Kind: audit.Plaintext}, Objects: 2}
	s.Etcd = &overview.Etcd{Report: &audit.Report{Objects: 5, Resources: []audit.Resource{
		{Name: "configmaps", Forms: []audit.Count{{Form: audit.Form{Kind: config.KMSv2, Name: "vault", KeyIDHash: keyA}, Objects: 1}, plain}},
		{Name: "pods", Forms: []audit.Count{plain}},
	}}}
	s.Etcd.Reads = []overview.Read{{Resource: "configmaps", Form: s.Etcd.Report.Resources[0].Forms[0].Form, Verdict: overview.Well}}
	require.Equal(t, []string{"unknown: 2 objects of configmaps are in plaintext, and whether they are to be is not known: others are under KMS, " +
		"and no apiserver tells that it writes them: see atrest check FILE --etcd, with FILE as an apiserver has it"}, lines(overview.Of(s)))
}

// An etcd without any Secret may be another one than theirs.
func TestSecretsThatAreNowhereAreNotWell(t *testing.T) {
	for _, c := range []struct {
		of   func() rotation.Instance
		says []string
	}{
		{ours, []string{"unknown: no object of secrets is stored there: vault is to encrypt them: if they have an etcd of their own, name it with --etcd-servers-overrides; " +
			"else see whether it is the etcd of these apiservers, and whether there are any"}},
		{writingFor("configmaps"), []string{}},
	} {
		s := look(c.of)
		s.Etcd = &overview.Etcd{Report: &audit.Report{Objects: 1, Resources: []audit.Resource{{Name: "pods", Forms: []audit.Count{{Form: audit.Form{Kind: audit.Plaintext}, Objects: 1}}}}}}
		require.Equal(t, c.says, lines(overview.Of(s)))
	}
}

// With somebody away it is not known whether nobody has the provider.
func TestWhatAnAbsentOneMayHaveIsNotMissing(t *testing.T) {
	s := look(ours)
	lies["one never answered"].change(&s)
	s.Etcd = &overview.Etcd{Report: &audit.Report{Objects: 1, Resources: []audit.Resource{{Name: "secrets", Forms: []audit.Count{
		{Form: audit.Form{Kind: config.KMSv2, Name: "gone", KeyIDHash: keyA}, Objects: 1}}}}}}
	require.Equal(t, overview.Unknown, overview.Of(s).Verdict)
}

func TestASummaryNamesAFew(t *testing.T) {
	s := look(ours)
	for n := range 5 {
		s.Unnamed[fmt.Sprint("other-", n)] = "it has a Lease"
	}
	require.Equal(t, "Unknown: other-0 is not named; other-1 is not named; other-2 is not named; and 2 more.", overview.Of(s).Summary)
	require.True(t, slices.IsSorted(lines(overview.Of(s))))
}
