package retire

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/internal/hashed"
	"github.com/kube-atrest/atrest/operate/audit"
	"github.com/kube-atrest/atrest/operate/fleet"
	"github.com/kube-atrest/atrest/operate/migrate"
	"github.com/kube-atrest/atrest/operate/proof"
	"github.com/kube-atrest/atrest/operate/rotation"
	"github.com/kube-atrest/atrest/operate/rotation/observe"
)

var (
	keyOld = hashed.ID("old key")
	keyNew = hashed.ID("new key")
)

func TestHowAnApiserverUsesWhatIsToGo(t *testing.T) {
	provider, keyID := Subject{Provider: "kms"}, Subject{KeyID: keyOld}
	for name, c := range map[string]struct {
		what Subject
		seen rotation.Provider
		want string
	}{
		"it reads with the provider":      {provider, rotation.Provider{Healthy: true, KeyID: keyOld}, "has it in its configuration: take it out first"},
		"it wrote with the provider":      {provider, rotation.Provider{Healthy: true, KeyID: keyOld, WroteKeyID: keyOld}, "has it in its configuration, and wrote with it: "},
		"its plugin names the key_id":     {keyID, rotation.Provider{Healthy: true, KeyID: keyOld}, `the plugin of provider "kms" names it: rotate it, or take`},
		"it writes under the key_id":      {keyID, rotation.Provider{Healthy: true, KeyID: keyOld, WroteKeyID: keyOld}, `the plugin of provider "kms" names it, and the latest write was under it: rotate it first`},
		"it wrote under it before":        {keyID, rotation.Provider{Healthy: true, KeyID: keyNew, WroteKeyID: keyOld}, `the latest write with provider "kms" was under it, though the plugin names another: wait`},
		"it is sick, and names it":        {keyID, rotation.Provider{Problem: "sealed", KeyID: keyOld}, `the plugin of provider "kms" names it: `},
		"it went on to the next key_id":   {keyID, rotation.Provider{Healthy: true, KeyID: keyNew, WroteKeyID: keyNew}, ""},
		"the key_id of another provider":  {Subject{Provider: "other"}, rotation.Provider{Healthy: true, KeyID: keyOld, WroteKeyID: keyOld}, ""},
		"it knows no key_id":              {keyID, rotation.Provider{Healthy: true}, `the plugin of provider "kms" has named no key_id, as none of KMS v1 does, so which it uses is not known: `},
		"it never came up":                {keyID, rotation.Provider{Problem: "sealed"}, `the plugin of provider "kms" has named no key_id`},
		"it wrote under it and forgot":    {keyID, rotation.Provider{WroteKeyID: keyOld}, `the latest write with provider "kms" was under it`},
		"a provider that is remembered":   {provider, remembered(t), ""},
		"a key_id that is remembered too": {keyID, remembered(t), ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := c.what.usedAs("kms", c.seen)
			require.Equal(t, c.want == "", got == "", got)
			require.True(t, strings.HasPrefix(got, c.want), got)
		})
	}
}

// remembered is a provider that a kube-apiserver had in its configuration once.
func remembered(t *testing.T) rotation.Provider {
	t.Helper()
	at := time.Unix(1795176000, 0)
	i, err := observe.Metrics(strings.NewReader(fmt.Sprintf(`apiserver_encryption_config_controller_last_config_info{hash="sha256:1"} 1
apiserver_envelope_encryption_key_id_hash_status_last_timestamp_seconds{key_id_hash=%[1]q,provider_name="kms"} 1795175000
apiserver_envelope_encryption_key_id_hash_last_timestamp_seconds{key_id_hash=%[1]q,provider_name="kms",transformation_type="to_storage"} 1795175000
apiserver_encryption_config_controller_automatic_reload_last_timestamp_seconds{status="success"} 1795175000
`, keyOld)), "", observe.Moment{At: at})
	require.NoError(t, err)
	return i.Providers["kms"]
}

func TestApiserversCountBeforeAndAfterTheWalk(t *testing.T) {
	uses := rotation.Instance{Providers: map[string]rotation.Provider{"kms": {Healthy: true}}}
	free, away := rotation.Instance{}, rotation.Instance{Problem: "it is away"}
	reasons := func(before, after rotation.Instance) (all []string) {
		e := Evidence{Etcd: Stock{"etcd", &audit.Report{}}, Apiservers: [2]map[string]rotation.Instance{{"a": before}, {"a": after}}}
		for _, r := range e.against(Subject{Provider: "kms"}, 1) {
			require.Equal(t, "apiserver a", r.Where)
			all = append(all, r.Message)
		}
		return all
	}
	const inUse, unknown = "has it in its configuration: take it out first", "nobody knows what it writes with: it is away"
	require.Empty(t, reasons(free, free))
	require.Equal(t, []string{inUse}, reasons(uses, uses))
	require.Equal(t, []string{inUse}, reasons(uses, free))
	require.Equal(t, []string{inUse}, reasons(free, uses))
	require.Equal(t, []string{unknown}, reasons(away, free))
	require.Equal(t, []string{unknown}, reasons(free, away))
	require.Equal(t, []string{unknown, inUse}, reasons(uses, away))
}

func TestObjectsThatMayNotGo(t *testing.T) {
	count := func(kind config.Kind, name, keyID, key string) audit.Count {
		return audit.Count{Form: audit.Form{Kind: kind, Name: name, KeyIDHash: keyID}, Objects: 2, Keys: []string{key}}
	}
	s := Stock{"here", &audit.Report{Resources: []audit.Resource{
		{Name: "secrets", Forms: []audit.Count{
			count(config.AESCBC, "kms", "", "a key of that name"),
			count(config.KMSv1, "kms", "", "/c"), count(config.KMSv2, "kms", keyOld, "/b"), count(config.KMSv2, "kms", keyNew, "/a"),
			count(config.KMSv2, "other", keyOld, "/d")}},
		{Name: "pods", Forms: []audit.Count{count(audit.Plaintext, "", "", "/e")}},
	}}}
	like := Reason{Kind: "objects", Message: "left"}
	require.Equal(t, []Reason{{Kind: "objects", Where: "here", Message: "6 objects stored under it: left", Objects: 6,
		Resources: []Dependent{{"secrets", 6, []string{"/a", "/b"}}}}}, s.against(Subject{Provider: "kms"}, 2, like))
	require.Equal(t, []Reason{
		{Kind: "objects", Where: "here", Message: "4 objects stored under it: left", Objects: 4, Resources: []Dependent{{"secrets", 4, []string{"/b", "/d"}}}},
		{Kind: "objects", Where: "here", Message: "2 objects stored with KMS v1, which names no key_id, so that they may need this one: left", Objects: 2,
			Resources: []Dependent{{"secrets", 2, []string{"/c"}}}},
	}, s.against(Subject{KeyID: keyOld}, 2, like))
	require.Empty(t, s.against(Subject{Provider: "third"}, 2, like))
	own := s.against(Subject{KeyID: keyOld}, 2, Reason{Kind: "objects"})
	require.Contains(t, own[0].Message, "have them rewritten first, with atrest migrate")
	require.Contains(t, own[1].Message, "under a provider of KMS v2")
}

// What a key may be needed for is a reason as much as what it is needed for.
func TestWhatIsNotKnownIsAReason(t *testing.T) {
	const broken, merged = "2 objects that cannot be read, and may have been stored under it: see them", "2 objects possibly stored under it: more than 4096 resources"
	for name, c := range map[string]struct {
		resource string
		form     audit.Form
		want     string
	}{
		"a form of tomorrow":          {"secrets", audit.Form{Kind: audit.Unknown}, broken},
		"damaged, of KMS v1":          {"secrets", audit.Form{Kind: audit.Undecodable, Begins: config.KMSv1}, broken},
		"damaged, of KMS v2":          {"secrets", audit.Form{Kind: audit.Undecodable, Begins: config.KMSv2}, broken},
		"damaged, of a key":           {"secrets", audit.Form{Kind: audit.Undecodable, Begins: config.AESGCM}, ""},
		"nothing of Kubernetes":       {"secrets", audit.Form{Kind: audit.Undecodable}, ""},
		"KMS, not told apart":         {audit.Rest, audit.Form{Kind: config.KMSv2}, merged},
		"KMS v1, not told apart":      {audit.Rest, audit.Form{Kind: config.KMSv1}, merged},
		"damaged, and not told apart": {audit.Rest, audit.Form{Kind: audit.Undecodable}, merged},
		"a key, not told apart":       {audit.Rest, audit.Form{Kind: config.AESGCM}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := Stock{"here", &audit.Report{Resources: []audit.Resource{{Name: c.resource, Forms: []audit.Count{{Form: c.form, Objects: 2}}}}}}
			for _, what := range []Subject{{Provider: "third"}, {KeyID: keyOld}} {
				got := s.against(what, 2, Reason{Kind: "objects"})
				if c.want == "" {
					require.Empty(t, got)
					continue
				}
				require.Len(t, got, 1)
				require.Contains(t, got[0].Message, c.want)
			}
			doubt := c.want == "" && c.form.Kind == audit.Undecodable
			require.Equal(t, doubt, s.doubts() != nil, "it is a reason or a doubt")
		})
	}
}

func TestAnApiserverThatWasNotAskedTwiceIsAReason(t *testing.T) {
	seen, none := map[string]rotation.Instance{"a": {}}, map[string]rotation.Instance{}
	reasons := func(unnamed []string, seen ...map[string]rotation.Instance) (all []string) {
		e := Evidence{Etcd: Stock{"etcd", &audit.Report{}}, Unnamed: unnamed}
		copy(e.Apiservers[:], seen)
		for _, r := range e.against(Subject{Provider: "kms"}, 1) {
			all = append(all, r.Kind+", "+r.Where+": "+r.Message)
		}
		return all
	}
	const once = "no answer, apiserver a: nobody knows what it writes with: it was asked only once, and has to be before the objects are counted and after"
	require.Empty(t, reasons(nil, seen, seen))
	require.Equal(t, []string{once}, reasons(nil, seen, none))
	require.Equal(t, []string{once}, reasons(nil, none, seen))
	require.Equal(t, []string{"no answer, apiservers: none was asked, so nobody knows what they write with: name each"}, reasons(nil, none, none))
	const unnamed = "is one of the cluster's and was not asked, so nobody knows what it writes with: name it with --apiservers, or, if it is gone, excuse it with --without-apiservers"
	require.Equal(t, []string{"not named, apiserver b: " + unnamed, "not named, apiserver c: " + unnamed}, reasons([]string{"c", "b"}, seen, seen))
}

func TestNamesAreListedUpToAFew(t *testing.T) {
	names := map[string]bool{"no provider": false}
	require.Equal(t, "(none)", someOf(names))
	for i := range 23 {
		names[fmt.Sprintf("n%02d", i)] = true
	}
	require.True(t, strings.HasSuffix(someOf(names), "n18, n19 and 3 more"), someOf(names))
}

// A key_id may look like the hash of one.
func TestAKeyIDThatLooksLikeAHash(t *testing.T) {
	e := Evidence{Etcd: Stock{"etcd", &audit.Report{Resources: []audit.Resource{{Forms: []audit.Count{
		{Form: audit.Form{Kind: config.KMSv2, Name: "kms", KeyIDHash: hashed.ID(keyOld)}},
		{Form: audit.Form{Kind: config.KMSv2, Name: "kms", KeyIDHash: keyNew}}}}}}}}
	for name, want := range map[string]string{keyOld: hashed.ID(keyOld), keyNew: keyNew, "new key": keyNew} {
		what, err := e.Identify(name, Anything)
		require.NoError(t, err)
		require.Equal(t, Subject{KeyID: want}, what)
	}
	what, err := e.Identify(hashed.ID("unknown"), AKeyID)
	require.NoError(t, err)
	require.Equal(t, Subject{KeyID: hashed.ID("unknown")}, what)
}

func TestWhatIsBothHasToBeSaid(t *testing.T) {
	keyID := hashed.ID("kms")
	e := Evidence{Etcd: Stock{"etcd", &audit.Report{Resources: []audit.Resource{{Forms: []audit.Count{
		{Form: audit.Form{Kind: config.KMSv2, Name: "kms", KeyIDHash: keyID}}, {Form: audit.Form{Kind: config.AESGCM, Name: "key"}}}}}}}}
	_, err := e.Identify("kms", Anything)
	require.ErrorIs(t, err, ErrAmbiguous)
	for as, want := range map[As]Subject{AProvider: {Provider: "kms"}, AKeyID: {KeyID: keyID}} {
		what, err := e.Identify("kms", as)
		require.NoError(t, err)
		require.Equal(t, want, what)
	}
	_, err = e.Identify("key", Anything)
	require.ErrorContains(t, err, "is a key of the configuration file")
	_, err = e.Identify("nobody", Anything)
	require.ErrorContains(t, err, `nothing knows "nobody": there are the KMS providers kms and the key_ids `+keyID)
}

// Nothing needs a KMS provider of the name of a key_id, nor the other way round, so that
// the answer would always be yes.
func TestWhatIsOfTheOtherKindIsRefused(t *testing.T) {
	e := Evidence{Etcd: Stock{"etcd", &audit.Report{Resources: []audit.Resource{{Forms: []audit.Count{
		{Form: audit.Form{Kind: config.KMSv2, Name: "kms", KeyIDHash: keyOld}}}}}}}}
	bare, unknown := strings.TrimPrefix(keyOld, "sha256:"), strings.TrimPrefix(keyNew, "sha256:")
	for _, c := range []struct {
		name string
		as   As
		want string // empty if it is taken
	}{
		{"kms", AKeyID, "leave --key-id out, or if the key_id is meant, name it by its hash, " + hashed.ID("kms")},
		{hashed.ID("kms"), AKeyID, ""},
		{"old key", AProvider, "leave --provider out"},
		{keyOld, AProvider, "leave --provider out"},
		{bare, AKeyID, "which looks like a hash: write " + keyOld},
		{bare, Anything, "which looks like a hash: write " + keyOld},
		{bare, AProvider, "which looks like a hash: write " + keyOld},
		{strings.ToUpper(bare), AKeyID, "which looks like a hash: write " + keyOld},
		{unknown, AKeyID, "if it is a key_id itself, " + hashed.ID(unknown)},
		{hashed.ID(unknown), AKeyID, ""},
		{"gone", AKeyID, ""},
		{"gone", AProvider, ""},
	} {
		_, err := e.Identify(c.name, c.as)
		if c.want == "" {
			require.NoError(t, err, c.name)
			continue
		}
		require.ErrorContains(t, err, c.want, c.name)
	}
}

// A key_id of 64 hexadecimal digits, as our plugins make them, looks like a hash itself. Who
// takes it for one would be told that nothing needs it.
func TestAKeyIDIsNotTakenForItsHash(t *testing.T) {
	raw := strings.TrimPrefix(keyNew, "sha256:")
	e := Evidence{Etcd: Stock{"etcd", &audit.Report{Resources: []audit.Resource{{Forms: []audit.Count{
		{Form: audit.Form{Kind: config.KMSv2, Name: "kms", KeyIDHash: hashed.ID(raw)}}}}}}}}
	_, err := e.Identify("sha256:"+raw, AKeyID)
	require.ErrorContains(t, err, "name it as it is, or by its hash, "+hashed.ID(raw))
	what, err := e.Identify(raw, AKeyID)
	require.NoError(t, err)
	require.Equal(t, Subject{KeyID: hashed.ID(raw)}, what)
}

// apiservers are asked in turn. Each stores in the etcd, but for those of lost.
type apiservers struct {
	order  []string
	others []fleet.Other
	lost   error
	apart  error
	deks   []string // that it writes with
}

func (a *apiservers) Names() []string                                 { return []string{"a"} }
func (a *apiservers) Others(context.Context) ([]fleet.Other, error)   { return a.others, a.lost }
func (a *apiservers) Cluster(context.Context, string) (string, error) { return "uid", a.apart }
func (a *apiservers) Observe(context.Context) map[string]rotation.Instance {
	a.order = append(a.order, "ask")
	i := rotation.Instance{Process: fmt.Sprint(len(a.order)), Providers: map[string]rotation.Provider{}}
	for _, dek := range a.deks {
		i.Providers["other of "+dek] = rotation.Provider{DEK: dek}
	}
	return map[string]rotation.Instance{"a": i}
}
func (a *apiservers) Write(_ context.Context, _ string, r schema.GroupResource) (fleet.Written, error) {
	a.order = append(a.order, "write")
	return fleet.Written{Resource: r, Namespace: "ns", Name: "canary", Version: 3}, a.lost
}
func (a *apiservers) Touch(context.Context, string, schema.GroupVersionResource, string, string) (fleet.Written, error) {
	panic("a canary is written")
}
func (a *apiservers) Read(context.Context, string, schema.GroupVersionResource, fleet.Written) error {
	return nil
}

// nothing is served.
func nothing(context.Context) ([]schema.GroupResource, error) { return nil, nil }

// api reads the canaries.
type api struct {
	proof.API
	lacks bool // Secrets and ConfigMaps
}

func (a api) Version(_ context.Context, r schema.GroupResource) (schema.GroupVersionResource, error) {
	if a.lacks {
		return schema.GroupVersionResource{}, migrate.ErrNoResource
	}
	return r.WithVersion("v1"), nil
}

func (api) Revision(context.Context, schema.GroupVersionResource, migrate.Object) (int64, error) {
	return 3, nil
}

// place is an etcd that has the canaries.
type place struct{ audit.Store }

func (place) Find(context.Context, string) (audit.Entry, error) {
	return audit.Entry{ModRevision: 3, Value: []byte("{}")}, nil
}

func TestApiserversAreAskedBeforeTheCountAndAfter(t *testing.T) {
	broken := errors.New("etcd is away")
	all := &apiservers{}
	prover := &proof.Prover{Fleet: all, Etcd: place{}, API: api{}, Layout: audit.NewLayout("", nil)}
	var err error
	var found []string
	count := func(_ context.Context, deks []string) (Stock, []Stock, error) {
		found = deks
		all.order = append(all.order, "count")
		return Stock{Place: "etcd", Report: &audit.Report{}}, nil, err
	}
	e, got := Gather(t.Context(), prover, nothing, nil, count)
	require.NoError(t, got)
	require.Equal(t, []string{"ask", "write", "write", "count", "ask"}, all.order)
	require.Equal(t, "1", e.Apiservers[0]["a"].Process)
	require.Equal(t, "5", e.Apiservers[1]["a"].Process)
	require.Empty(t, e.Unshown)
	err = broken
	_, got = Gather(t.Context(), prover, nothing, nil, count)
	require.ErrorIs(t, got, broken)
	ended, end := context.WithCancel(t.Context())
	end()
	err = nil
	_, got = Gather(ended, prover, nothing, nil, count)
	require.ErrorIs(t, got, context.Canceled, "what was observed may be the end of the context alone")

	all.apart = errors.New("a has one and b another")
	e, got = Gather(t.Context(), prover, nothing, nil, count)
	require.NoError(t, got)
	require.Contains(t, fmt.Sprint(e.Answer(Subject{Provider: "kms"}, 1).Reasons), "{no answer apiservers they are not known to be of one cluster: a has one and b another")

	all.others, all.lost = []fleet.Other{{Name: "b"}, {Name: "c"}}, errors.New("the etcd is another")
	prover.APIs, all.deks = map[string]proof.API{"a": api{lacks: true}}, []string{"sha256:dek"}
	e, got = Gather(t.Context(), prover, nothing, []string{"b"}, count)
	require.NoError(t, got)
	answer := e.Answer(Subject{Provider: "kms"}, 1)
	require.False(t, answer.MayGo)
	require.Contains(t, fmt.Sprint(answer.Reasons), "nobody knows whether it stores in what was counted: it serves no Secrets, and not every DEK that it tells to write with is in what was counted: have an object that it encrypts written through it")
	require.Contains(t, fmt.Sprint(answer.Reasons), "nobody knows whether there are any: the etcd is another")
	require.Equal(t, []string{"sha256:dek"}, found)
	require.Contains(t, fmt.Sprint(answer.Reasons), "{not named apiserver c is one of the cluster's")
}

// One that serves no Secrets is known by the DEKs that it writes with, all of which are
// found. Of one that serves them and did not store them here something is wrong.
func TestADEKThatIsFoundShowsWhereAnApiserverStores(t *testing.T) {
	for name, c := range map[string]struct {
		lacks   bool
		writes  []string // with these DEKs
		isShown bool
	}{
		"its DEK is found":  {true, []string{"sha256:found"}, true},
		"its DEK is not":    {true, []string{"sha256:lost"}, false},
		"one of two is":     {true, []string{"sha256:found", "sha256:lost"}, false},
		"it wrote nothing":  {true, nil, false},
		"it serves Secrets": {false, []string{"sha256:found"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			apis := map[string]proof.API{"a": api{lacks: c.lacks}}
			all := &apiservers{lost: errors.New("the canary is not there"), deks: c.writes}
			prover := &proof.Prover{Fleet: all, Etcd: place{}, API: api{}, APIs: apis, Layout: audit.NewLayout("", nil)}
			e, err := Gather(t.Context(), prover, nothing, nil, func(context.Context, []string) (Stock, []Stock, error) {
				return Stock{Place: "etcd", Report: &audit.Report{DEKs: []string{"sha256:found"}}}, nil, nil
			})
			require.NoError(t, err)
			require.Equal(t, c.isShown, len(e.Unshown) == 0, e.Unshown)
		})
	}
}

func TestAnEmptyPlaceClearsNothing(t *testing.T) {
	_, err := NewStock("etcd at x", &audit.Report{Prefix: "/registry/", Everywhere: true})
	require.ErrorContains(t, err, "etcd at x: nothing at all is stored below /registry/")
	_, err = NewStock("etcd at x", &audit.Report{Prefix: "/registry/", Objects: 1})
	require.ErrorContains(t, err, "etcd at x: what is stored below /registry/ is not all: count the whole keyspace")
	_, err = NewStock("etcd at x", &audit.Report{Prefix: "/registry/", Everywhere: true, Objects: 1})
	require.NoError(t, err)
}

func TestAnAnswerIsYesWithoutAReason(t *testing.T) {
	free := Stock{"etcd", &audit.Report{Revision: 7, Cluster: 5, Objects: 2, Resources: []audit.Resource{{Name: "secrets", Forms: []audit.Count{
		{Form: audit.Form{Kind: config.KMSv2, Name: "kms", KeyIDHash: keyNew}, Objects: 1},
		{Form: audit.Form{Kind: audit.Undecodable}, Objects: 1}}}},
		Elsewhere: []audit.Elsewhere{{Prefix: "/openshift.io", Keys: 9, Encrypted: 1}, {Prefix: "/other", Keys: 1}}}}
	seen := map[string]rotation.Instance{"a": {}}
	e := Evidence{Etcd: free, Apiservers: [2]map[string]rotation.Instance{seen, seen}}
	yes := e.Answer(Subject{KeyID: keyOld}, 1)
	require.True(t, yes.MayGo)
	require.Equal(t, []Reason{}, yes.Reasons)
	require.Contains(t, yes.Advice[0], "may be disabled")
	require.Equal(t, Looked{Place: "etcd", Revision: 7, Objects: 2, Cluster: 5, Elsewhere: free.Report.Elsewhere}, yes.Etcd)
	require.Equal(t, "etcd, revision 7: 2 objects, 1 of them below /openshift.io", yes.Etcd.String())
	require.Equal(t, []string{"a"}, yes.Apiservers)
	require.Len(t, yes.Warnings, 2)
	for i, text := range []string{"nothing that was looked at knows key_id " + keyOld, "1 object that nothing can open"} {
		require.Contains(t, yes.Warnings[i], text)
	}

	no := e.Answer(Subject{KeyID: keyNew}, 1)
	require.False(t, no.MayGo)
	require.Empty(t, no.Advice)
	require.Equal(t, "objects", no.Reasons[0].Kind)
	e.Etcd, e.Snapshots = Stock{"etcd", &audit.Report{}}, []Stock{free}
	no = e.Answer(Subject{KeyID: keyNew}, 1)
	require.Len(t, no.Reasons, 1)
	require.Equal(t, "backup", no.Reasons[0].Kind, "a backup that is kept counts too")
}

func TestWhatApiserversAloneKnowIsKnown(t *testing.T) {
	keyThird, keyLast := hashed.ID("third key"), hashed.ID("last key")
	e := Evidence{Etcd: Stock{"etcd", &audit.Report{}}, Apiservers: [2]map[string]rotation.Instance{
		{"a": {Providers: map[string]rotation.Provider{"one": {KeyID: keyOld, WroteKeyID: keyNew}, "two": {KeyID: keyThird}}},
			"c": {Providers: map[string]rotation.Provider{"four": {Healthy: true}}}},
		{"b": {Providers: map[string]rotation.Provider{"three": {Healthy: true, WroteKeyID: keyLast}}}},
	}}
	for _, name := range []string{"one", "two", "three", "four"} {
		what, err := e.Identify(name, Anything)
		require.NoError(t, err)
		require.Equal(t, Subject{Provider: name}, what)
		require.Empty(t, e.doubts(what))
	}
	for _, keyID := range []string{keyOld, keyNew, keyThird, keyLast} {
		what, err := e.Identify(keyID, Anything)
		require.NoError(t, err)
		require.Equal(t, Subject{KeyID: keyID}, what)
		require.Empty(t, e.doubts(what))
	}
	_, err := e.Identify("nobody", Anything)
	require.ErrorContains(t, err, "KMS providers four, one, three, two and")
}

func TestEveryUseOfEveryApiserverIsAReason(t *testing.T) {
	uses := rotation.Instance{Providers: map[string]rotation.Provider{"one": {KeyID: keyOld}, "other": {KeyID: keyNew}, "two": {KeyID: keyOld, WroteKeyID: keyOld}}}
	seen := map[string]rotation.Instance{"a": uses, "b": {}, "c": uses}
	e := Evidence{Etcd: Stock{"etcd", &audit.Report{}}, Apiservers: [2]map[string]rotation.Instance{seen, seen}}
	var got []string
	for _, r := range e.against(Subject{KeyID: keyOld}, 1) {
		got = append(got, r.Where+": "+strings.SplitAfter(r.Message, "names it")[0])
	}
	require.Equal(t, []string{
		`apiserver a: the plugin of provider "one" names it`, `apiserver a: the plugin of provider "two" names it`,
		`apiserver c: the plugin of provider "one" names it`, `apiserver c: the plugin of provider "two" names it`,
	}, got)
}

func TestEveryBackupThatNeedsItIsAReason(t *testing.T) {
	needs := func(place string) Stock {
		return Stock{place, &audit.Report{Resources: []audit.Resource{{Name: "secrets", Forms: []audit.Count{
			{Form: audit.Form{Kind: config.KMSv2, Name: "kms", KeyIDHash: keyOld}, Objects: 1}}}}}}
	}
	seen := map[string]rotation.Instance{"a": {}}
	e := Evidence{Etcd: Stock{"etcd", &audit.Report{}}, Snapshots: []Stock{needs("monday"), {"tuesday", &audit.Report{}}, needs("wednesday")},
		Apiservers: [2]map[string]rotation.Instance{seen, seen}}
	a := e.Answer(Subject{KeyID: keyOld}, 1)
	require.Len(t, a.Reasons, 2)
	require.Equal(t, "monday", a.Reasons[0].Where)
	require.Equal(t, "wednesday", a.Reasons[1].Where)
	require.Len(t, a.Snapshots, 3)
}

func TestEveryProviderThatIsNotHealthyAndInUseIsADoubt(t *testing.T) {
	after := map[string]rotation.Instance{
		"a": {Complete: true, Providers: map[string]rotation.Provider{"kms": {Healthy: true}, "one": {Problem: "sealed"}, "silent": {Silent: true}, "two": {Problem: "away"}}},
		"b": {Complete: true, Providers: map[string]rotation.Provider{"one": {Problem: "denied"}}},
	}
	e := Evidence{Etcd: Stock{"etcd", &audit.Report{}}, Apiservers: [2]map[string]rotation.Instance{{}, after}}
	require.Equal(t, []string{
		`apiserver a finds provider "one" not healthy: sealed`,
		`apiserver a finds provider "two" not healthy: away`,
		`apiserver b finds provider "one" not healthy: denied`,
	}, e.doubts(Subject{Provider: "kms"}))
}
