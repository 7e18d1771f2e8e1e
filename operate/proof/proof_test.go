package proof

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/operate/audit"
	"github.com/kube-atrest/atrest/operate/fleet"
	"github.com/kube-atrest/atrest/operate/migrate"
	"github.com/kube-atrest/atrest/operate/rotation"
)

const (
	fresh = "k8s:enc:aesgcm:v1:new:0123456789012345678901234567"
	old   = "k8s:enc:aesgcm:v1:old:0123456789012345678901234567"
)

var (
	secrets = schema.GroupResource{Resource: "secrets"}
	widgets = schema.GroupResource{Group: "example.com", Resource: "widgets"}
)

// cluster is two apiservers on one etcd, each of which may store somewhere else.
type cluster struct {
	etcd     map[string]audit.Entry
	revision int64
	// elsewhere are apiservers with an etcd of their own, and deaf those that
	// cannot decrypt.
	elsewhere, deaf map[string]bool
	// after, if set, is called when an apiserver has written.
	after  func(key string)
	others []fleet.Other
	err    error
	// hidden is in an etcd that nobody looks into, and foreign why the API does not
	// read what the apiservers wrote.
	hidden  map[string]audit.Entry
	foreign error
	// removed is how many canaries are removed at once.
	removed int
	// unlisted is that the API cannot list, and unconverted that it has no webhook to
	// convert what is stored.
	unlisted, unconverted, moved bool
	// uids are by what the apiservers tell their cluster.
	uids map[string]string
	// finds are how often etcd was asked for one object, and found is called after.
	finds int
	found func(key string)
}

func newCluster() *cluster {
	return &cluster{etcd: map[string]audit.Entry{}, revision: 10, elsewhere: map[string]bool{}, deaf: map[string]bool{}}
}

func (c *cluster) put(key, value string) int64 {
	c.revision++
	c.etcd[key] = audit.Entry{Value: []byte(value), ModRevision: c.revision, Cluster: 5}
	return c.revision
}

func (c *cluster) Find(_ context.Context, key string) (audit.Entry, error) {
	c.finds++
	entry, ok := c.etcd[key]
	if !ok {
		return entry, audit.ErrNotFound
	}
	if c.found != nil {
		c.found(key)
	}
	return entry, nil
}

func (c *cluster) Read(_ context.Context, prefix string) (*audit.Contents, error) {
	return &audit.Contents{Objects: func(yield func(audit.Object, error) bool) {
		for _, key := range slices.Sorted(maps.Keys(c.etcd)) {
			if strings.HasPrefix(key, prefix) && !yield(audit.Object{Key: key, Value: c.etcd[key].Value}, nil) {
				return
			}
		}
	}}, nil
}

func (c *cluster) String() string { return "etcd at here" }

// members are its apiservers.
type members struct{ *cluster }

func (m members) Names() []string                               { return []string{"a", "b"} }
func (m members) Others(context.Context) ([]fleet.Other, error) { return m.others, m.err }
func (m members) Cluster(_ context.Context, apiserver string) (string, error) {
	return m.uids[apiserver], m.err
}

func (m members) Observe(context.Context) map[string]rotation.Instance { return nil }

func (m members) Write(_ context.Context, instance string, r schema.GroupResource) (fleet.Written, error) {
	w := fleet.Written{Resource: r, Namespace: "kube-system", Name: "canary-" + instance, Version: m.revision + 1}
	key := "/registry/" + r.Resource + "/kube-system/canary-" + instance
	if !m.elsewhere[instance] {
		m.put(key, fresh)
	}
	if m.removed > 0 { // by another run
		m.removed--
		delete(m.etcd, key)
	}
	if m.after != nil {
		m.after(key)
	}
	return w, nil
}

func (m members) Touch(_ context.Context, instance string, r schema.GroupVersionResource, namespace, name string) (fleet.Written, error) {
	key := "/registry/" + r.Group + "/" + r.Resource + "/" + objectPath(namespace, name)
	entry := m.etcd[key]
	if string(entry.Value) != fresh { // stale
		entry.ModRevision = m.put(key, fresh)
	}
	if m.after != nil {
		m.after(key)
	}
	return fleet.Written{Resource: r.GroupResource(), Namespace: namespace, Name: name, Version: entry.ModRevision}, nil
}

func (m members) Read(_ context.Context, instance string, r schema.GroupVersionResource, w fleet.Written) error {
	for key, entry := range m.etcd {
		switch {
		case !strings.HasSuffix(key, "/"+r.Resource+"/"+objectPath(w.Namespace, w.Name)):
		case m.deaf[instance]:
			return fmt.Errorf("apiserver %s cannot decrypt", instance)
		case m.elsewhere[instance]:
			return fmt.Errorf("apiserver %s finds none", instance)
		case entry.ModRevision != w.Version:
			return fleet.ErrAnotherVersion
		default:
			return nil
		}
	}
	if !m.elsewhere[instance] {
		return apierrors.NewNotFound(r.GroupResource(), w.Name)
	}
	return fmt.Errorf("apiserver %s finds none", instance)
}

// api is the apiserver that objects are rewritten through. It lists what is in etcd,
// and what is hidden from those who look there.
type api struct{ *cluster }

func (a api) Version(_ context.Context, r schema.GroupResource) (schema.GroupVersionResource, error) {
	if r.Resource == "gadgets" {
		return schema.GroupVersionResource{}, migrate.ErrNoResource
	}
	return r.WithVersion("v1"), nil
}

func (a api) all() map[string]audit.Entry {
	all := maps.Clone(a.etcd)
	maps.Copy(all, a.hidden)
	return all
}

func (a api) Newest(_ context.Context, r schema.GroupVersionResource) (migrate.Object, int64, bool, error) {
	if a.moved {
		return migrate.Object{}, 0, false, apierrors.NewNotFound(r.GroupResource(), "")
	}
	if a.unlisted {
		return migrate.Object{}, 0, false, errors.New("one does not open")
	}
	if a.unconverted {
		return migrate.Object{}, 0, false, errNoWebhook
	}
	for key, entry := range a.all() {
		if parts := strings.Split(key, "/"); parts[len(parts)-3] == r.Resource {
			return migrate.Object{Namespace: parts[len(parts)-2], Name: parts[len(parts)-1]}, entry.ModRevision, true, nil
		}
	}
	return migrate.Object{}, 0, false, nil
}

func (a api) Revision(_ context.Context, r schema.GroupVersionResource, o migrate.Object) (int64, error) {
	if a.unconverted {
		return 0, errNoWebhook
	}
	for key, entry := range a.all() {
		if strings.HasSuffix(key, "/"+r.Resource+"/"+o.String()) {
			return entry.ModRevision, a.foreign
		}
	}
	return 0, errors.New("there is none")
}

var errNoWebhook = errors.New(`conversion webhook for example.com/v1, Kind=Widget failed: Post "https://widgets.operators.svc:443/convert": service "widgets" not found`)

func (c *cluster) prover() *Prover {
	return &Prover{Fleet: members{c}, Etcd: c, API: api{c}, APIs: map[string]API{"a": api{c}, "b": api{c}}, Layout: audit.NewLayout("", nil)}
}

// lacking is an apiserver that serves nothing of what is written, as an aggregated one.
type lacking struct{ api }

func (lacking) Version(context.Context, schema.GroupResource) (schema.GroupVersionResource, error) {
	return schema.GroupVersionResource{}, migrate.ErrNoResource
}

// undecided is one of which it is not known.
type undecided struct{ api }

func (undecided) Version(context.Context, schema.GroupResource) (schema.GroupVersionResource, error) {
	return schema.GroupVersionResource{}, errors.New("discovery failed")
}

// A kube-apiserver and an aggregated one may be of one fleet, as they have a key in common.
func TestWhatAnApiserverDoesNotServeItNeedNotRead(t *testing.T) {
	c := newCluster()
	c.deaf["b"] = true
	p := c.prover()
	_, err := p.Show(t.Context(), "a", secrets, stale)
	require.ErrorContains(t, err, "apiserver b cannot decrypt")
	p.APIs["b"] = undecided{api{c}}
	_, err = p.Show(t.Context(), "a", secrets, stale)
	require.ErrorContains(t, err, "apiserver b cannot decrypt")
	p.APIs["b"] = lacking{api{c}}
	_, err = p.Show(t.Context(), "a", secrets, stale)
	require.NoError(t, err)
}

// It may be served in another version by now, and its objects be anywhere.
func TestWhatIsNotServedInTheVersionThatItWasIsNotKnown(t *testing.T) {
	c := newCluster()
	c.moved = true
	require.EqualError(t, c.prover().Present(t.Context(), []schema.GroupResource{widgets}),
		"apiserver a does not serve widgets.example.com any more, or in another version than v1: it is asked for that anew in a minute")
}

// What the API lists has to be where one looks, in that version: something else of the
// resource there is no proof.
func TestWhatTheAPIListsIsInEtcd(t *testing.T) {
	c := newCluster()
	gadgets := schema.GroupResource{Group: "example.com", Resource: "gadgets"}
	require.NoError(t, c.prover().Present(t.Context(), []schema.GroupResource{secrets, widgets, gadgets}), "there is nothing")
	c.put("/registry/example.com/widgets/ns/here", fresh)
	require.NoError(t, c.prover().Present(t.Context(), []schema.GroupResource{widgets}))
	c.etcd = map[string]audit.Entry{"/registry/example.com/widgets/ns/a": {ModRevision: 3}}
	for _, revision := range []int64{1, 4} { // what is left of it there is of another count
		c.hidden = map[string]audit.Entry{"/registry/example.com/widgets/ns/a": {ModRevision: revision}}
		require.ErrorContains(t, c.prover().Present(t.Context(), []schema.GroupResource{secrets, widgets}),
			"apiserver a lists widgets.example.com ns/a, and etcd at here does not have it as /registry/example.com/widgets/ns/a: if its objects are kept in an etcd of their own")
	}
	// One that does not open keeps the API from listing, and not from reading others.
	c.unlisted = true
	require.ErrorContains(t, c.prover().Present(t.Context(), []schema.GroupResource{widgets}), "whether apiserver a has objects of widgets.example.com is not known: one does not open")
	c.hidden = nil
	require.NoError(t, c.prover().Present(t.Context(), []schema.GroupResource{widgets}))
	c.unlisted, c.hidden = false, map[string]audit.Entry{"/registry/example.com/widgets/ns/a": {ModRevision: 4}}
	c.etcd = map[string]audit.Entry{}
	require.Error(t, c.prover().Present(t.Context(), []schema.GroupResource{widgets}))
}

// The operator of a custom resource was uninstalled, and the webhook with it. Where etcd
// has its objects, they are counted there.
func TestWhatNobodyConvertsIsLookedForInEtcd(t *testing.T) {
	c := newCluster()
	c.unconverted = true
	require.ErrorContains(t, c.prover().Present(t.Context(), []schema.GroupResource{widgets}), "have the webhook answer again, or delete the CustomResourceDefinition widgets.example.com")
	c.put("/registry/example.com/widgets/ns/a", fresh)
	require.NoError(t, c.prover().Present(t.Context(), []schema.GroupResource{widgets}))
}

// An apiserver that keeps a resource elsewhere than the others is found, and named, as is
// one that does not answer.
func TestWhatEachApiserverListsIsInEtcd(t *testing.T) {
	c := newCluster()
	c.put("/registry/example.com/widgets/ns/here", fresh)
	other := newCluster()
	p := c.prover()
	p.APIs["b"] = api{other}
	require.NoError(t, p.Present(t.Context(), []schema.GroupResource{widgets}), "the other has none")
	other.put("/registry/example.com/widgets/ns/there", fresh)
	require.ErrorContains(t, p.Present(t.Context(), []schema.GroupResource{widgets}), "apiserver b lists widgets.example.com ns/there, and etcd at here does not have it")
	other.unlisted = true
	require.ErrorContains(t, p.Present(t.Context(), []schema.GroupResource{widgets}), "whether apiserver b has objects of widgets.example.com is not known: ")
	delete(p.APIs, "b")
	require.ErrorContains(t, p.Present(t.Context(), []schema.GroupResource{widgets}), "apiserver b is not asked")
}

// A resource of Kubernetes' own that is newer than the layout is looked for in the wrong
// place, until somebody says where it is.
func TestWhereANewResourceIsStoredCanBeSaid(t *testing.T) {
	for r, want := range map[schema.GroupResource]string{
		{Group: "new.k8s.io", Resource: "gears"}:    "say where it is stored: --map gears=gears.new.k8s.io",
		{Group: "apps", Resource: "gears"}:          "--map gears=gears.apps",
		{Group: "example.com", Resource: "gears"}:   "",
		{Group: "apps", Resource: "deployments"}:    "",
		{Group: "batch", Resource: "jobs"}:          "",
		{Resource: "configmaps"}:                    "",
		{Resource: "gears"}:                         "",
		{Group: "told.k8s.io", Resource: "springs"}: "",
	} {
		c := newCluster()
		c.hidden = map[string]audit.Entry{"/elsewhere/" + r.Resource + "/ns/one": {ModRevision: 1}}
		p := c.prover()
		p.Layout = audit.NewLayout("", map[string]schema.GroupResource{"springs": {Group: "told.k8s.io", Resource: "springs"}})
		err := p.Present(t.Context(), []schema.GroupResource{r})
		require.ErrorContains(t, err, "does not have it as /registry/")
		require.ErrorContains(t, err, want)
		require.Equal(t, want != "", strings.Contains(err.Error(), "--map"), r)
	}
}

// What one apiserver was found to list is not looked for again for another.
func TestEqualAnswersAreLookedForOnce(t *testing.T) {
	c := newCluster()
	c.put("/registry/example.com/widgets/ns/here", fresh)
	require.NoError(t, c.prover().Present(t.Context(), []schema.GroupResource{widgets}))
	require.Equal(t, 1, c.finds)
}

func stale(f audit.Form) bool { return f.Name != "new" }

func TestACanaryIsFoundInEtcd(t *testing.T) {
	c := newCluster()
	shown, err := c.prover().Show(t.Context(), "a", secrets, stale)
	require.NoError(t, err)
	require.Equal(t, "/registry/secrets/kube-system/canary-a", shown.Key)
	require.Equal(t, audit.Form{Kind: config.AESGCM, Name: "new"}, shown.Form)
	require.EqualValues(t, 5, shown.Cluster)
	require.EqualValues(t, 11, shown.Version)
}

func TestWhatIsNotAsItShouldBeIsNamed(t *testing.T) {
	for want, change := range map[string]func(*cluster, *Prover){
		"what apiserver a wrote is not in etcd at here as /registry/secrets/kube-system/canary-a": func(c *cluster, _ *Prover) { c.elsewhere["a"] = true },
		"is not in etcd at here as /other/secrets/kube-system/canary-a":                           func(_ *cluster, p *Prover) { p.Layout = audit.NewLayout("/other", nil) },
		"was written through apiserver a, and cannot be read: apiserver b cannot decrypt":         func(c *cluster, _ *Prover) { c.deaf["b"] = true },
		"was written through apiserver a, and cannot be read: apiserver b finds none":             func(c *cluster, _ *Prover) { c.elsewhere["b"] = true },
		"of revision 1 instead of": func(c *cluster, _ *Prover) { // a copy of the etcd, or one that lags
			c.after = func(key string) { c.etcd[key] = audit.Entry{Value: []byte(fresh), ModRevision: 1} }
		},
		"cannot be read through the apiserver that objects are rewritten through: another cluster: name that one with --context": func(c *cluster, _ *Prover) {
			c.foreign = errors.New("another cluster")
		},
		"others write it again and again": func(c *cluster, _ *Prover) {
			c.after = func(key string) { c.put(key, fresh) }
		},
	} {
		c := newCluster()
		p := c.prover()
		change(c, p)
		_, err := p.Show(t.Context(), "a", secrets, stale)
		require.ErrorContains(t, err, want)
	}
}

func TestApiserversOfTwoClustersAreNamed(t *testing.T) {
	c := newCluster()
	both := []string{"a", "b"}
	for _, all := range []map[string]string{nil, {"a": "1", "b": "1"}} { // of none, and of one
		c.uids = all
		uid, err := OneCluster(t.Context(), members{c}, both)
		require.NoError(t, err)
		require.Equal(t, all["a"], uid)
	}
	c.uids = map[string]string{"a": "1", "b": "2"}
	_, err := OneCluster(t.Context(), members{c}, both)
	require.ErrorContains(t, err, "not of one cluster: a has a namespace kube-system with UID 1; b has a namespace kube-system with UID 2: name those of one alone")
	c.uids = map[string]string{"b": "2"}
	_, err = OneCluster(t.Context(), members{c}, both)
	require.ErrorContains(t, err, "not of one cluster: a serves no namespaces; b has")
	c.err = errors.New("b is away")
	_, err = OneCluster(t.Context(), members{c}, both)
	require.ErrorIs(t, err, c.err)
}

func TestOneThatAnotherRunRemovedIsWrittenAgain(t *testing.T) {
	c := newCluster()
	c.removed = 2
	_, err := c.prover().Show(t.Context(), "a", secrets, stale)
	require.NoError(t, err)
	require.Zero(t, c.removed)
}

func TestOneThatAnotherRunRemovesBeforeItIsReadIsWrittenAgain(t *testing.T) {
	c := newCluster()
	times := 0
	c.found = func(key string) {
		if times++; times < attempts {
			delete(c.etcd, key)
		}
	}
	_, err := c.prover().Show(t.Context(), "a", secrets, stale)
	require.NoError(t, err)
	require.Equal(t, attempts, times)
}

func TestOneThatOthersWroteMeanwhileIsWrittenAgain(t *testing.T) {
	c := newCluster()
	times := 0
	c.after = func(key string) {
		if times++; times < attempts {
			c.put(key, old)
		}
	}
	shown, err := c.prover().Show(t.Context(), "a", secrets, stale)
	require.NoError(t, err)
	require.Equal(t, "new", shown.Form.Name)
	require.Equal(t, attempts, times)
}

// Each apiserver stores a stale object anew, and when none is left one that none
// would store otherwise.
func TestOfOtherResourcesAnObjectThatIsThereIsWritten(t *testing.T) {
	c := newCluster()
	c.put("/registry/example.com/widgets/ns/1", fresh)
	c.put("/registry/example.com/widgets/ns/2", old)
	c.put("/registry/example.com/widgetsets/ns/0", old)
	p := c.prover()
	shown, err := p.Show(t.Context(), "a", widgets, stale)
	require.NoError(t, err)
	require.Equal(t, "/registry/example.com/widgets/ns/2", shown.Key)
	require.EqualValues(t, c.revision, shown.Version, "it was stored anew")
	require.True(t, shown.Wrote)
	shown, err = p.Show(t.Context(), "b", widgets, stale)
	require.NoError(t, err)
	require.Equal(t, "/registry/example.com/widgets/ns/1", shown.Key)
	require.Equal(t, "new", shown.Form.Name)
	require.False(t, shown.Wrote)

	c = newCluster()
	c.put("/registry/example.com/widgets/of-the-cluster", old)
	shown, err = c.prover().Show(t.Context(), "a", widgets, stale)
	require.NoError(t, err)
	require.Equal(t, "of-the-cluster", shown.Name)
	require.Empty(t, shown.Namespace)
}

func TestWhereThereIsNothingToWriteThatIsSaid(t *testing.T) {
	for _, r := range []schema.GroupResource{widgets, {Group: "example.com", Resource: "gadgets"}} {
		_, err := newCluster().prover().Show(t.Context(), "a", r, stale)
		require.ErrorIs(t, err, ErrNoObject)
	}
}

func TestWhoIsExcusedAndIsNobodyIsToldOf(t *testing.T) {
	c := newCluster()
	c.others = []fleet.Other{{Name: "gone"}}
	a := aggregated{all: []migrate.Aggregated{{Service: "shop/api"}}}
	without := []string{"gone", "shop/api", AnyOther, "b", "gnoe"}
	require.Equal(t, []string{"gnoe"}, Absent(t.Context(), members{c}, a, without))
	require.Empty(t, Absent(t.Context(), members{c}, a, without[:4]))
	require.Empty(t, Absent(t.Context(), members{c}, aggregated{err: errors.New("they may not be listed")}, without), "it is not known")
	c.err = errors.New("Leases cannot be read")
	require.Empty(t, Absent(t.Context(), members{c}, a, without), "it is not known")
}

// aggregated are what a cluster tells of.
type aggregated struct {
	all []migrate.Aggregated
	err error
}

func (a aggregated) Aggregated(context.Context) ([]migrate.Aggregated, error) { return a.all, a.err }

func TestAggregatedApiserversThatMayKeepSomethingAreToldOf(t *testing.T) {
	a := aggregated{all: []migrate.Aggregated{{Service: "kube-system/metrics", Groups: []string{"metrics.k8s.io"}}, {Service: "shop/api", Groups: []string{"beta.example.com", "example.com"}}}}
	every := func(string) bool { return true }
	const shop = "the aggregated apiserver shop/api serves beta.example.com, example.com, and may keep objects of it with keys of its own, which was not asked"
	told := Beside(t.Context(), a, every, nil)
	require.Len(t, told, 2)
	require.Contains(t, told[1], shop)
	told = Beside(t.Context(), a, func(group string) bool { return group == "example.com" }, nil)
	require.Len(t, told, 1)
	require.Contains(t, told[0], shop)
	require.Len(t, Beside(t.Context(), a, every, []string{"shop/api"}), 1)
	require.Empty(t, Beside(t.Context(), a, every, []string{AnyOther}))
	require.Equal(t, []string{"it may not be listed"}, Beside(t.Context(), aggregated{err: errors.New("it may not be listed")}, every, nil))
}

func TestAnApiserverThatIsNotNamedIsAnErrorUnlessItIsExcused(t *testing.T) {
	c := newCluster()
	require.NoError(t, Named(t.Context(), members{c}, nil))
	c.others = []fleet.Other{{Name: "c", Why: "its Lease is renewed"}, {Name: "d", Why: "an endpoint"}}
	require.ErrorContains(t, Named(t.Context(), members{c}, []string{"d"}), "not named: c (its Lease is renewed): name each with --apiservers")
	require.NoError(t, Named(t.Context(), members{c}, []string{"d", "c"}))
	c.err = errors.New("Leases cannot be read")
	require.ErrorIs(t, Named(t.Context(), members{c}, []string{"c", "d"}), c.err)
	require.NoError(t, Named(t.Context(), members{c}, []string{AnyOther}))
}

// What was counted is read by all, in that form and version; else nothing is shown of it.
func TestWhatIsStoredIsReadByAll(t *testing.T) {
	const key = "/registry/example.com/widgets/shop/one"
	is := audit.Inspect([]byte(old), nil).Form
	for name, now := range map[string]struct {
		change func(*cluster)
		says   string
	}{
		"as it was counted":      {func(*cluster) {}, ""},
		"by one not":             {func(c *cluster) { c.deaf["b"] = true }, "apiserver b cannot decrypt"},
		"in an etcd of its own":  {func(c *cluster) { c.elsewhere["b"] = true }, "apiserver b finds none"},
		"written since":          {func(c *cluster) { c.put(key, fresh) }, key + " was written since it was counted"},
		"gone":                   {func(c *cluster) { delete(c.etcd, key) }, key + " was written since it was counted"},
		"written while it reads": {func(c *cluster) { c.found = func(key string) { c.put(key, fresh) } }, "another has written it since"},
	} {
		c := newCluster()
		c.put(key, old)
		now.change(c)
		if err := c.prover().Reads(t.Context(), key, is); now.says == "" {
			require.NoError(t, err, name)
		} else {
			require.ErrorContains(t, err, now.says, name)
		}
	}
}
