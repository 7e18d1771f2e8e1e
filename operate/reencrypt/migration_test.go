package reencrypt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/internal/hashed"
	"github.com/kube-atrest/atrest/internal/stored"
	"github.com/kube-atrest/atrest/operate/audit"
	"github.com/kube-atrest/atrest/operate/fleet"
	"github.com/kube-atrest/atrest/operate/migrate"
	"github.com/kube-atrest/atrest/operate/proof"
	"github.com/kube-atrest/atrest/operate/rotation"
)

const (
	plain  = "{}"
	sealed = "k8s:enc:aesgcm:v1:new:0123456789012345678901234567"
)

// cluster is an apiserver that serves Secrets, and its etcd. A Secret that is
// patched is sealed, unless it is in stuck.
type cluster struct {
	mu      sync.Mutex
	etcd    map[string]string // by the etcd key below the prefix
	stuck   string            // the name of a Secret
	patches []string
	// migrator tells that it has a migrator, which seals all Secrets. Then left
	// is for which key_ids that was done.
	migrator bool
	left     []string
	// slow is how often the migrator is looked at before it is through.
	slow int
	made metav1.ObjectMeta
	// canary is what an apiserver stores now, and maps what if it is a ConfigMap,
	// unless that is empty.
	canary, maps string
	// others are apiservers that are not named.
	others []fleet.Other
	// unknown is why an apiserver does not say of which cluster it is.
	unknown error
	tells   func() map[string]rotation.Instance
}

// members are the apiservers, as a fleet sees them. A canary is no object of the cluster, so
// that it is not counted.
type members struct{ *cluster }

func (m members) Names() []string                               { return []string{"a"} }
func (m members) Others(context.Context) ([]fleet.Other, error) { return m.others, nil }
func (m members) Cluster(_ context.Context, apiserver string) (string, error) {
	return "uid of " + apiserver, m.unknown
}
func (m members) Observe(context.Context) map[string]rotation.Instance { return m.tells() }
func (m members) Write(_ context.Context, _ string, r schema.GroupResource) (fleet.Written, error) {
	return fleet.Written{Resource: r, Namespace: "kube-system", Name: "canary", Version: 7}, nil
}
func (m members) Touch(_ context.Context, _ string, r schema.GroupVersionResource, namespace, name string) (fleet.Written, error) {
	return fleet.Written{Resource: r.GroupResource(), Namespace: namespace, Name: name, Version: 7}, nil
}
func (m members) Read(context.Context, string, schema.GroupVersionResource, fleet.Written) error {
	return nil
}

// Find finds canaries, and what is stored.
func (c *cluster) Find(_ context.Context, key string) (audit.Entry, error) {
	if value, ok := c.etcd[strings.TrimPrefix(key, "/registry/")]; ok {
		return audit.Entry{Value: []byte(value), ModRevision: 1, Cluster: 1}, nil
	}
	if !strings.HasSuffix(key, "/kube-system/canary") {
		return audit.Entry{}, audit.ErrNotFound
	}
	value := c.canary
	if c.maps != "" && strings.Contains(key, "configmaps") {
		value = c.maps
	}
	return audit.Entry{Value: []byte(value), ModRevision: 7, Cluster: 1}, nil
}
func (c *cluster) String() string { return "etcd" }

func (c *cluster) Read(_ context.Context, prefix string) (*audit.Contents, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []audit.Object
	for _, key := range slices.Sorted(maps.Keys(c.etcd)) {
		if etcdKey := "/registry/" + key; strings.HasPrefix(etcdKey, prefix) {
			all = append(all, audit.Object{Key: etcdKey, Value: []byte(c.etcd[key])})
		}
	}
	return &audit.Contents{Revision: int64(10 + len(c.patches)), Total: int64(len(all)), Objects: func(yield func(audit.Object, error) bool) {
		for _, o := range all {
			if !yield(o, nil) {
				return
			}
		}
	}}, nil
}

func (c *cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	w.Header().Set("Content-Type", "application/json")
	switch {
	case c.migrator && strings.HasPrefix(r.URL.Path, "/apis/storagemigration.k8s.io"):
		c.migration(w, r, parts[2:])
	case r.URL.Path == "/api":
		answer(w, metav1.APIVersions{Versions: []string{"v1"}})
	case r.URL.Path == "/apis":
		answer(w, metav1.APIGroupList{})
	case r.URL.Path == "/api/v1":
		answer(w, metav1.APIResourceList{APIResources: []metav1.APIResource{{Name: "secrets", Verbs: metav1.Verbs{"list", "get", "patch"}}}})
	case len(parts) == 3:
		var list metav1.PartialObjectMetadataList
		for _, key := range slices.Sorted(maps.Keys(c.etcd)) {
			if of := strings.Split(key, "/"); of[0] == "secrets" {
				list.Items = append(list.Items, metadata(of[2], "1"))
			}
		}
		answer(w, list)
	case len(parts) < 6:
		http.NotFound(w, r)
	case r.Method == http.MethodGet && parts[5] == "canary":
		answer(w, metadata(parts[5], "7"))
	case r.Method == http.MethodGet:
		answer(w, metadata(parts[5], "1"))
	default:
		c.patches = append(c.patches, parts[5])
		if parts[5] == c.stuck {
			w.WriteHeader(http.StatusUnprocessableEntity)
			answer(w, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Code: 422, Reason: metav1.StatusReasonInvalid, Message: "refused"})
			return
		}
		c.etcd["secrets/ns/"+parts[5]] = sealed
		answer(w, metadata(parts[5], "2"))
	}
}

// migration serves StorageVersionMigrations, each of which is through at once.
func (c *cluster) migration(w http.ResponseWriter, r *http.Request, parts []string) {
	succeeded := map[string]any{"metadata": map[string]any{"name": "m", "uid": "1", "resourceVersion": "1"},
		"status": map[string]any{"conditions": []metav1.Condition{{Type: "Succeeded", Status: "True"}}}}
	if c.slow > 0 {
		succeeded["status"] = map[string]any{"conditions": []metav1.Condition{{Type: "Running", Status: "True"}}}
	}
	switch {
	case len(parts) == 0:
		answer(w, metav1.APIGroup{Name: "storagemigration.k8s.io", Versions: []metav1.GroupVersionForDiscovery{{Version: "v1beta1"}}})
	case len(parts) == 1:
		answer(w, metav1.APIResourceList{APIResources: []metav1.APIResource{{Name: "storageversionmigrations"}}})
	case r.Method == http.MethodPost:
		var o metav1.PartialObjectMetadata
		_ = json.NewDecoder(r.Body).Decode(&o)
		c.left = append(c.left, o.Name+" "+o.Annotations[migrate.KeyIDAnnotation])
		for key := range c.etcd {
			c.etcd[key] = sealed
		}
		c.made = o.ObjectMeta
		succeeded["metadata"] = c.made
		answer(w, succeeded)
	case len(c.left) == 0:
		w.WriteHeader(http.StatusNotFound)
		answer(w, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Code: 404, Reason: metav1.StatusReasonNotFound})
	default:
		c.slow--
		succeeded["metadata"] = c.made
		answer(w, succeeded)
	}
}

// What is stored of a resource that is newer than the layout is taken for another.
func TestTheGroupOfWhatIsNotServedMayBeTold(t *testing.T) {
	c := &cluster{migrator: true, etcd: map[string]string{"gears/ns/a": plain, "gone.example.com/things/ns/a": plain, "masterleases/1": plain}}
	m, _ := newMigration(t, c, parse(t, aesgcm))
	for r, told := range map[schema.GroupResource]bool{{Resource: "gears"}: true, {Group: "gone.example.com", Resource: "things"}: false, {Resource: "apiServerIPInfo"}: false} {
		for name, err := range map[string]error{"rewritten": m.Store.Rewrite(t.Context(), r, "", stale, nil), "left": m.leave(t.Context(), r, 1)} {
			require.ErrorIs(t, err, migrate.ErrNoResource, name)
			require.Equal(t, told, strings.Contains(err.Error(), "--map gears=gears.GROUP"), err)
		}
	}
}

func stale(audit.Form) bool { return true }

// hurried is a clock on which waiting takes no time.
type hurried struct{ *clocktesting.FakeClock }

func (c hurried) NewTimer(d time.Duration) clock.Timer {
	timer := c.FakeClock.NewTimer(d)
	c.Step(d)
	return timer
}

func TestWhatAMigratorTakesIsTold(t *testing.T) {
	c := &cluster{migrator: true, slow: 40, etcd: map[string]string{"secrets/ns/a": plain}}
	m, heard := newMigration(t, c, parse(t, aesgcm))
	m.Delegate = true
	server := httptest.NewServer(c)
	defer server.Close()
	var err error
	m.Store.Cluster, err = migrate.NewCluster(&rest.Config{Host: server.URL}, hurried{clocktesting.NewFakeClock(time.Unix(1795176000, 0))})
	require.NoError(t, err)
	found, err := m.Plan(t.Context())
	require.NoError(t, err)
	require.NoError(t, m.Carry(t.Context(), found))
	const name = "encryption-migration-core-secrets "
	require.Equal(t, []string{name + "30s true", name + "1m0s true"}, heard.waiting)
}

func metadata(name, version string) metav1.PartialObjectMetadata {
	return metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, ResourceVersion: version}}
}

func answer(w http.ResponseWriter, body any) { _ = json.NewEncoder(w).Encode(body) }

// ears remembers what a migration told.
type ears struct{ rewriting, failed, waiting []string }

func (e *ears) Rewriting(resource string) (show func(migrate.Progress), end func()) {
	e.rewriting = append(e.rewriting, resource)
	return func(migrate.Progress) {}, func() {}
}
func (e *ears) Left(string, string) {}
func (e *ears) Writing([]string)    {}
func (e *ears) Waiting(_, to string, waited time.Duration, running bool) {
	e.waiting = append(e.waiting, fmt.Sprint(to, " ", waited.Round(10*time.Second), " ", running))
}
func (e *ears) Failed(problem string) { e.failed = append(e.failed, problem) }

func parse(t *testing.T, provider string) *config.Configuration {
	t.Helper()
	c, err := config.Parse([]byte("apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n"+
		"- resources: [secrets, widgets.example.com]\n  providers: ["+provider+", identity: {}]\n"), config.Options{})
	require.NoError(t, err)
	return c
}

const (
	aesgcm = "aesgcm: {keys: [{name: new, secret: AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=}]}"
	kms    = "kms: {apiVersion: v2, name: kms, endpoint: 'unix:///kms.sock'}"
)

// newMigration is one of a single apiserver, which has the configuration.
func newMigration(t *testing.T, c *cluster, parsed *config.Configuration) (*Migration, *ears) {
	t.Helper()
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	through, err := migrate.NewCluster(&rest.Config{Host: server.URL}, clock.RealClock{})
	require.NoError(t, err)
	heard := &ears{}
	c.canary = sealed
	c.tells = func() map[string]rotation.Instance {
		return map[string]rotation.Instance{"a": {ConfigHash: parsed.Hash()}}
	}
	return &Migration{Checked: true, Config: parsed, File: "FILE", Watcher: heard, Clock: clocktesting.NewFakePassiveClock(time.Unix(1795176000, 0)), Fleet: members{c}, APIs: map[string]proof.API{"a": through},
		Store: &Store{From: c, Walk: audit.Run, Audit: audit.Options{Names: audit.NamesIn(parsed), Layout: audit.NewLayout("", nil)}, Cluster: through}}, heard
}

// underKMS is a value that the KMS provider "kms" stored under a key_id.
func underKMS(t *testing.T, keyID string) string {
	t.Helper()
	source, err := stored.NewDEKSource(0, keyID, []byte("sealed DEK"), nil)
	require.NoError(t, err)
	data := make([]byte, 40)
	return "k8s:enc:kms:v2:kms:" + string(append(append(stored.AppendDataHead(nil, len(data)), data...), source.Tail()...))
}

// What an apiserver stores in the etcd that is looked into has to be what all say.
func TestWhatAnApiserverStoresIsSeenBeforeAnythingIsRewritten(t *testing.T) {
	for want, change := range map[string]func(*cluster){
		"apiserver a stores /registry/secrets/kube-system/canary as plaintext, and FILE says aesgcm": func(c *cluster) { c.canary = plain },
		"there are apiservers that are not named: b (a Lease): name each with --apiservers":          func(c *cluster) { c.others = []fleet.Other{{Name: "b", Why: "a Lease"}} },
		"which cluster a is of is not known":                                                         func(c *cluster) { c.unknown = errors.New("which cluster a is of is not known") },
	} {
		c := &cluster{etcd: map[string]string{"secrets/ns/a": plain}}
		m, _ := newMigration(t, c, parse(t, aesgcm))
		change(c)
		_, err := m.Plan(t.Context())
		require.ErrorContains(t, err, want)
		m.Without = []string{"b"}
		found, err := m.Plan(t.Context())
		if c.canary = sealed; err == nil {
			c.canary = plain
			require.ErrorContains(t, m.Carry(t.Context(), found), "stores", "what it stores at the end counts")
		}
	}
}

func TestAMigrationIsDoneWhenTheCountSaysSo(t *testing.T) {
	c := &cluster{etcd: map[string]string{"secrets/ns/a": plain, "secrets/ns/b": sealed, "secrets/ns/c": plain}}
	m, heard := newMigration(t, c, parse(t, aesgcm))
	found, err := m.Plan(t.Context())
	require.NoError(t, err)
	require.Equal(t, []ToRewrite{{"secrets", 2, audit.Form{Kind: audit.Plaintext}, audit.Form{Kind: config.AESGCM, Name: "new"}}}, found.ToRewrite)
	require.Len(t, found.Left, 1)
	require.Empty(t, c.patches, "a plan changes nothing")

	require.NoError(t, m.Carry(t.Context(), found))
	require.Equal(t, []string{"a", "c"}, slices.Sorted(slices.Values(c.patches)), "what is fine is left alone")
	require.Empty(t, found.Left)
	require.Equal(t, int64(12), found.Revision)
	require.Equal(t, []string{"secrets"}, heard.rewriting, "what is through is not gone through again")
	require.Equal(t, int64(2), found.Rewritten[0].Rewritten)
	require.Equal(t, "0s", found.Rewritten[0].Took)
	require.Equal(t, 1, found.Rewritten[0].Round)
	require.Empty(t, found.Suspicion())
}

// What fails is told of once; what the other resources have left is done.
func TestAResourceThatFailsKeepsNoOtherBack(t *testing.T) {
	c := &cluster{stuck: "a", etcd: map[string]string{"secrets/ns/a": plain, "secrets/ns/b": plain, "example.com/widgets/ns/w": plain}}
	m, heard := newMigration(t, c, parse(t, aesgcm))
	found, err := m.Plan(t.Context())
	require.NoError(t, err)
	require.NoError(t, m.Carry(t.Context(), found))
	require.Len(t, heard.failed, 2)
	require.Contains(t, strings.Join(heard.failed, "\n"), "could not be rewritten")
	require.Contains(t, strings.Join(heard.failed, "\n"), migrate.ErrNoResource.Error())
	require.Len(t, found.Rewritten, 2, "neither is tried in the second round")
	require.Len(t, found.Left, 2)
	require.Empty(t, found.Beyond(), "rewriting would help")
	require.Equal(t, sealed, c.etcd["secrets/ns/b"])
}

func TestWithoutAgreementNothingIsRewritten(t *testing.T) {
	c := &cluster{etcd: map[string]string{"secrets/ns/a": plain}}
	m, _ := newMigration(t, c, parse(t, kms))
	tells := func(keyID string) map[string]rotation.Instance {
		return map[string]rotation.Instance{"a": {ConfigHash: m.Config.Hash(), Providers: map[string]rotation.Provider{"kms": {Healthy: true, KeyID: keyID}}}}
	}
	keyID := ""
	c.tells = func() map[string]rotation.Instance { return tells(keyID) }
	_, err := m.Plan(t.Context())
	var disagree *DisagreementError
	require.ErrorAs(t, err, &disagree)
	require.Len(t, disagree.Problems, 1)
	require.EqualError(t, err, "the apiservers do not agree with FILE and each other, and nothing more is rewritten: 1 problem")

	keyID = hashed.ID("one")
	c.canary = underKMS(t, "one")
	found, err := m.Plan(t.Context())
	require.NoError(t, err)
	require.Equal(t, map[string]string{"kms": keyID}, found.KeyIDs)
	keyID = "two"
	err = m.Carry(t.Context(), found)
	var changed *ChangedError
	require.ErrorAs(t, err, &changed)
	require.EqualError(t, err, "the key_id changed meanwhile, from kms "+hashed.ID("one")+" to kms two: run it again")
	require.Empty(t, c.patches)
}

func TestAnEmptyEtcdProvesNothing(t *testing.T) {
	m, _ := newMigration(t, &cluster{etcd: map[string]string{}}, parse(t, aesgcm))
	_, err := m.Plan(t.Context())
	require.ErrorContains(t, err, "nothing at all is stored below /registry/")
}

func TestWhatIsSuspectedWhenNothingWasRewritten(t *testing.T) {
	of := func(c migrate.Counts, problem string) string {
		return (&Result{Rewritten: []Rewritten{{Counts: c, Problem: problem}}}).Suspicion()
	}
	require.Contains(t, of(migrate.Counts{Seen: 2, Unchanged: 2}, ""), "takes them for current")
	require.Contains(t, of(migrate.Counts{Seen: 2, Gone: 2}, ""), "lists none of them")
	require.Empty(t, of(migrate.Counts{Seen: 2, Rewritten: 1, Unchanged: 1}, ""))
	require.Empty(t, of(migrate.Counts{Seen: 2, Unchanged: 2}, "refused"))
	require.Empty(t, of(migrate.Counts{}, ""))
}

func TestApiserversAgreeOrEachProblemIsNamed(t *testing.T) {
	c := parse(t, kms)
	with := func(p rotation.Provider) rotation.Instance {
		return rotation.Instance{ConfigHash: c.Hash(), Providers: map[string]rotation.Provider{"kms": p}}
	}
	one := with(rotation.Provider{Healthy: true, KeyID: "one"})
	for name, other := range map[string]rotation.Instance{
		"apiserver b does not tell of its encryption: away":                        {Problem: "away", ConfigHash: c.Hash(), Providers: one.Providers},
		"apiserver b has the configuration sha256:other in effect":                 {ConfigHash: "sha256:other", Providers: one.Providers},
		`apiserver b knows no key_id of provider "kms"`:                            {ConfigHash: c.Hash()},
		`apiserver b finds provider "kms" not healthy: sealed`:                     with(rotation.Provider{KeyID: "one", Problem: "sealed"}),
		`do not agree on the key_id of provider "kms": a has one; b has two: wait`: with(rotation.Provider{Healthy: true, KeyID: "two"}),
	} {
		keyIDs, problems := agreed(map[string]rotation.Instance{"a": one, "b": other}, c)
		require.Nil(t, keyIDs, name)
		require.Len(t, problems, 1, name)
		require.Contains(t, problems[0], name)
	}
	keyIDs, problems := agreed(map[string]rotation.Instance{"a": one, "b": one}, c)
	require.Empty(t, problems)
	require.Equal(t, map[string]string{"kms": "one"}, keyIDs)
}

func TestWhatCannotBeCountedIsNotDone(t *testing.T) {
	c := &cluster{etcd: map[string]string{"secrets/ns/a": plain}}
	m, _ := newMigration(t, c, parse(t, aesgcm))
	found, err := m.Plan(t.Context())
	require.NoError(t, err)
	broken := errors.New("etcd is away")
	m.Store.Walk = func(context.Context, audit.Source, audit.Options) (*audit.Report, error) { return nil, broken }
	require.ErrorIs(t, m.Carry(t.Context(), found), broken)
	require.Empty(t, c.patches, "which need it is not known")
	for _, resources := range [][]schema.GroupResource{nil, {{Resource: "secrets"}}} {
		_, err = m.Store.Count(t.Context(), resources)
		require.ErrorIs(t, err, broken)
	}
	m.Resources = []schema.GroupResource{{Resource: "secrets"}}
	_, err = m.Plan(t.Context())
	require.ErrorContains(t, err, "counting secrets: etcd is away")
}

func TestARewriteOfWhatCannotBeLookedThroughIsAnError(t *testing.T) {
	c := &cluster{etcd: map[string]string{"secrets/ns/a": plain}}
	m, _ := newMigration(t, c, parse(t, aesgcm))
	broken := errors.New("etcd is away")
	m.Store.Walk = func(context.Context, audit.Source, audit.Options) (*audit.Report, error) { return nil, broken }
	err := m.Store.Rewrite(t.Context(), schema.GroupResource{Resource: "secrets"}, "goal", func(audit.Form) bool { return true }, func(migrate.Progress) {})
	require.ErrorIs(t, err, broken)
	require.ErrorContains(t, err, "looking for what of secrets has to be rewritten")
	require.Empty(t, c.patches)
}

// That nothing is stored of a resource says nothing if etcd is away by then.
func TestWhetherAnythingIsStoredHasToBeFoundOut(t *testing.T) {
	m, _ := newMigration(t, &cluster{}, parse(t, aesgcm))
	broken := errors.New("etcd is away")
	m.Store.Walk = func(_ context.Context, _ audit.Source, o audit.Options) (*audit.Report, error) {
		if len(o.Within) == 0 {
			return nil, broken
		}
		return &audit.Report{}, nil
	}
	report, err := m.Store.Count(t.Context(), []schema.GroupResource{{Resource: "secrets"}})
	require.ErrorIs(t, err, broken)
	require.Nil(t, report)
}

func TestWhatTheConfigurationIsAboutIsCounted(t *testing.T) {
	for resources, want := range map[string][]string{
		"secrets, widgets.example.com": {"secrets", "widgets.example.com"},
		"secrets, '*.example.com'":     {"configmaps", "secrets", "widgets.example.com"},
		"'*.*'":                        {"configmaps", "secrets", "widgets.example.com"},
	} {
		c := &cluster{etcd: map[string]string{"secrets/ns/a": plain, "configmaps/ns/b": plain, "example.com/widgets/ns/c": plain}}
		parsed, err := config.Parse([]byte("apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n"+
			"- resources: ["+resources+"]\n  providers: ["+aesgcm+", identity: {}]\n"), config.Options{})
		require.NoError(t, err)
		m, _ := newMigration(t, c, parsed)
		if !strings.Contains(resources, "*.*") {
			c.maps = plain
		}
		found, err := m.Plan(t.Context())
		require.NoError(t, err)
		var counted []string
		for _, r := range found.Report.Resources {
			counted = append(counted, r.Name)
		}
		require.ElementsMatch(t, want, counted, resources)
	}
}

// What apiservers tell at the end of a context may be that end alone.
func TestAnInterruptionIsNoDisagreement(t *testing.T) {
	c := &cluster{}
	m, _ := newMigration(t, c, parse(t, aesgcm))
	c.tells = func() map[string]rotation.Instance {
		return map[string]rotation.Instance{"a": {Problem: "canceled"}}
	}
	ended, end := context.WithCancel(t.Context())
	end()
	_, err := m.Plan(ended)
	require.ErrorIs(t, err, context.Canceled)
}

func TestWhatIsLeftToTheMigratorIsNotRewrittenHere(t *testing.T) {
	c := &cluster{etcd: map[string]string{"secrets/ns/a": plain}}
	m, heard := newMigration(t, c, parse(t, aesgcm))
	m.Delegate = true
	found, err := m.Plan(t.Context())
	require.NoError(t, err)
	require.Error(t, m.Carry(t.Context(), found), "this cluster has no migrator")
	require.Empty(t, c.patches)
	require.Empty(t, heard.rewriting)
}

func TestWhatIsLeftToTheMigratorIsCountedLikeWhatIsRewrittenHere(t *testing.T) {
	c := &cluster{migrator: true, etcd: map[string]string{"secrets/ns/a": plain}}
	m, heard := newMigration(t, c, parse(t, aesgcm))
	m.Delegate = true
	found, err := m.Plan(t.Context())
	require.NoError(t, err)
	require.Empty(t, c.left, "a plan changes nothing")
	require.NoError(t, m.Carry(t.Context(), found))
	require.Len(t, c.left, 1)
	require.Contains(t, c.left[0], "encryption-migration-core-secrets ")
	require.Empty(t, c.patches)
	require.Empty(t, found.Left)
	require.Empty(t, heard.failed)
}
