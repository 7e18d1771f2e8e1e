package rollout

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/internal/hashed"
	"github.com/kube-atrest/atrest/operate/audit"
	"github.com/kube-atrest/atrest/operate/fleet"
	"github.com/kube-atrest/atrest/operate/migrate"
	"github.com/kube-atrest/atrest/operate/proof"
	"github.com/kube-atrest/atrest/operate/reencrypt"
	"github.com/kube-atrest/atrest/operate/rotation"
	"github.com/kube-atrest/atrest/operate/rotation/drive"
	"github.com/kube-atrest/atrest/operate/rotation/edit"
)

// inMemory are the files of apiservers.
type inMemory map[string]string

func (f inMemory) Check(context.Context, string) error { return nil }

func (f inMemory) Read(_ context.Context, apiserver string) ([]byte, error) {
	return []byte(f[apiserver]), nil
}

func (f inMemory) Write(_ context.Context, apiserver string, _, content []byte) error {
	f[apiserver] = string(content)
	return nil
}

var exchanging = Move{From: []string{"old"}, To: []string{"new"}, Changes: toNew}

// newRotation is that of two apiservers, which nobody reaches.
func newRotation(t *testing.T, kind Kind, file string) *Rotation {
	t.Helper()
	away := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(away.Close)
	cluster, err := migrate.NewCluster(&rest.Config{Host: away.URL}, clock.RealClock{})
	require.NoError(t, err)
	all, err := fleet.New([]fleet.Member{{Name: "cp-1", Config: &rest.Config{Host: away.URL}}, {Name: "cp-2", Config: &rest.Config{Host: away.URL + "/2"}}}, clock.RealClock{})
	require.NoError(t, err)
	folder := &Folder{Path: t.TempDir()}
	return &Rotation{Kind: kind, Apiservers: []string{"cp-1", "cp-2"}, Fleet: all, Through: all, Cluster: cluster, Folder: folder,
		Files: inMemory{"cp-1": file, "cp-2": file},
		Times: func(p *rotation.Plan, begun bool) {
			if !begun {
				p.Hold, p.MaxAge, p.RetryAfter = rotation.DefaultHold, rotation.DefaultMaxAge, rotation.DefaultRetryAfter
			}
		}}
}

func TestARotationIsPlannedFromTheFiles(t *testing.T) {
	r := newRotation(t, exchanging, encryption)
	p, err := r.Prepare(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"secrets"}, p.State.Plan.Resources)
	require.Equal(t, rotation.DefaultHold, p.State.Plan.Hold)
	for apiserver, hashes := range p.State.Plan.Configs {
		want, err := plannedHashes([]byte(encryption), toNew(apiserver))
		require.NoError(t, err)
		require.Equal(t, want, hashes)
	}
	require.Equal(t, []string{"cp-1", "cp-2"}, slices.Sorted(maps.Keys(p.State.Plan.Configs)))
	require.Equal(t, inMemory{"cp-1": encryption, "cp-2": encryption}, r.Files, "nothing was changed for it")
}

func TestARotationGoesOnWithItsOwnStateAlone(t *testing.T) {
	r := newRotation(t, exchanging, encryption)
	p, err := r.Prepare(t.Context())
	require.NoError(t, err)
	p.State.Plan.Hold = rotation.Duration(time.Hour)
	require.NoError(t, r.Folder.save(p.State))
	again, err := r.Prepare(t.Context())
	require.NoError(t, err)
	require.Equal(t, p.State, again.State)

	r.Apiservers = []string{"cp-1"}
	_, err = r.Prepare(t.Context())
	require.ErrorIs(t, err, ErrOtherApiservers)
	require.ErrorContains(t, err, "it began with cp-1, cp-2, and cp-1 are named")
	r.Apiservers, r.Kind = []string{"cp-2", "cp-1"}, Move{From: []string{"old"}, To: []string{"other"}, Changes: toNew}
	_, err = r.Prepare(t.Context())
	require.ErrorIs(t, err, ErrAnother, "with another goal")
}

// Of several entries that are written with one key, each shows what it is to be written with.
func TestAnObjectShowsWhatItsEntryIsWrittenWith(t *testing.T) {
	file := listed + listing("events", asPlain) + listing("secrets", aKey) + listing("configmaps", aKey)
	kind, err := toKind(config.KMSv2, "a", "b").of(t, everywhere(file), &Folder{Path: t.TempDir()})
	require.NoError(t, err)
	for _, stage := range []rotation.Stage{rotation.Before, rotation.Added, rotation.Swapped} {
		files := kind.at(t, everywhere(file), map[string]rotation.Stage{"cp-1": stage, "cp-2": stage})
		r := newRotation(t, kind, files["cp-1"])
		r.Files = files
		found, err := r.survey(t.Context(), kind.providers(), rotation.Plan{})
		require.NoError(t, err)
		secrets, configmaps := schema.GroupResource{Resource: "secrets"}, schema.GroupResource{Resource: "configmaps"}
		require.Equal(t, proof.Samples{"aescbc:a": {secrets, configmaps}, "a": {secrets}, "b": {configmaps}}, found.samples, stage)
	}
}

func TestWhichSocketsAreApart(t *testing.T) {
	one, two, link := t.TempDir()+"/1.sock", t.TempDir()+"/2.sock", t.TempDir()+"/link.sock"
	require.NoError(t, os.WriteFile(one, nil, 0o600))
	require.NoError(t, os.WriteFile(two, nil, 0o600))
	require.NoError(t, os.Symlink(one, link))
	require.True(t, apart(one, two))
	for _, other := range []string{one, link, one + ".absent", ""} {
		require.False(t, apart(one, other))
		require.False(t, apart(other, one))
	}
}

// Two names of one socket are no two plugins.
func TestAProviderThatStaysWithTheKeyOfOneThatLeavesIsRefused(t *testing.T) {
	const other = "  - kms: {apiVersion: v2, name: other, endpoint: \"unix:///run/link.sock\"}\n"
	reads := strings.Replace(encryption, "  - identity: {}\n", other+"  - identity: {}\n", 1)
	writes := encryption + "- resources: [configmaps]\n  providers:\n" + other
	seen := func(old, other string) map[string]rotation.Instance {
		return map[string]rotation.Instance{"cp-1": {Providers: map[string]rotation.Provider{"old": {KeyID: old}, "other": {KeyID: other}}}}
	}
	for file, want := range map[string]string{
		reads:  `needs the same key: have everything rewritten with atrest migrate, and take "other" out when`,
		writes: "needs the same key: name both",
	} {
		c, err := config.Parse([]byte(file), config.Options{})
		require.NoError(t, err)
		found := configurations{parsed: map[string]*config.Configuration{"cp-1": c}}
		err = found.sameKey(seen("a", "a"), []string{"old"}, []string{"old", "new"})
		require.ErrorContains(t, err, `configuration of cp-1: KMS provider "other" has the key_id of "old", as on the same plugin by another name of its socket, and what is stored`)
		require.ErrorContains(t, err, want)
		require.NoError(t, found.sameKey(seen("a", "b"), []string{"old"}, []string{"old", "new"}))
		require.NoError(t, found.sameKey(seen("", ""), []string{"old"}, []string{"old", "new"}), "nobody knows yet")
		require.NoError(t, found.sameKey(seen("a", "a"), []string{"old"}, []string{"old", "other"}), "it is of the rotation")
		require.NoError(t, found.sameKey(nil, []string{"old"}, []string{"old"}))
	}
}

func TestAFileThatCannotBeRotatedIsRefused(t *testing.T) {
	const shared = "  - kms: {apiVersion: v2, name: second, endpoint: \"unix:///run/old.sock\"}\n  - identity: {}\n"
	reader := "  - identity: {}\n  - kms: {apiVersion: v2, name: old, endpoint: \"unix:///run/old.sock\"}\n"
	head, tail := encryption[:len(encryption)-len("  - identity: {}\n")], encryption[len(encryption)-len("  - identity: {}\n"):]
	require.Equal(t, "  - identity: {}\n", tail)
	before := head[:len(head)-len("  - kms: {apiVersion: v2, name: old, endpoint: \"unix:///run/old.sock\"}\n")]
	for problem, c := range map[string]struct {
		kind Kind
		file string
	}{
		`no resource is stored with provider "absent"`: {OnePlugin{Providers: []string{"absent"}}, encryption},
		`nothing is written with KMS provider "old"`:   {exchanging, before + reader},
		`"second" is on the same plugin as "old", and what is stored with it, if anything is, needs the same key: have everything rewritten with atrest migrate, and take "second" out`: {exchanging, head + shared},
		`"second" is on the same plugin as "old", and what is stored with it needs the same key: name both`:                                                                             {exchanging, encryption + "- resources: [configmaps]\n  providers:\n" + shared},
	} {
		_, err := newRotation(t, c.kind, c.file).Prepare(t.Context())
		require.ErrorContains(t, err, problem)
	}
}

// A rotation that is found is of a key_id; what is finished is not begun again
// by --from current.
func TestWhichStateARotationOwns(t *testing.T) {
	from := func(keyID string, proven time.Time) rotation.State {
		return rotation.State{OnePlugin: &rotation.OnePlugin{Providers: []string{"kms"}, From: hashed.ID(keyID), ProvenAt: proven}}
	}
	open, done, again := from("one", time.Time{}), from("one", time.Unix(1, 0)), from("one", time.Time{})
	again.OnePlugin.Finished = true // and was looked at since
	for _, c := range []struct {
		name string
		kind OnePlugin
		s    rotation.State
		want bool
	}{
		{"any", OnePlugin{Providers: []string{"kms"}}, done, true},
		{"by the key_id", OnePlugin{Providers: []string{"kms"}, From: "one"}, open, true},
		{"by its hash", OnePlugin{Providers: []string{"kms"}, From: hashed.ID("one")}, open, true},
		{"of another key_id", OnePlugin{Providers: []string{"kms"}, From: "two"}, open, false},
		{"from current, on its way", OnePlugin{Providers: []string{"kms"}, From: current}, open, true},
		{"from current, finished", OnePlugin{Providers: []string{"kms"}, From: current}, done, false},
		{"from current, finished and begun again", OnePlugin{Providers: []string{"kms"}, From: current}, again, false},
		{"from current, without end", OnePlugin{Providers: []string{"kms"}, From: current, Watch: true}, done, true},
		{"of other providers", OnePlugin{Providers: []string{"other"}}, open, false},
		{"of another kind", OnePlugin{Providers: []string{"kms"}}, rotation.State{}, false},
	} {
		require.Equal(t, c.want, c.kind.owns(c.s), c.name)
	}
}

func TestAFolderIsForOneProcess(t *testing.T) {
	one := &Folder{Path: t.TempDir() + "/new"}
	_, begun, err := one.load()
	require.NoError(t, err)
	require.False(t, begun)
	require.NoError(t, one.Hold())
	other := &Folder{Path: one.Path}
	require.EqualError(t, other.Hold(), "folder of the rotation "+one.Path+": another process works with it: wait for its end")
	require.NoError(t, one.Release())
	require.NoError(t, other.Hold())
	require.NoError(t, other.Release())
}

func TestAStateThatCannotBeReadIsNotTakenForNone(t *testing.T) {
	f := &Folder{Path: t.TempDir()}
	_, begun, err := f.load()
	require.NoError(t, err)
	require.False(t, begun)
	require.NoError(t, os.Mkdir(f.file(), 0o700))
	_, _, err = f.load()
	require.ErrorIs(t, err, syscall.EISDIR)
	require.NoError(t, os.Remove(f.file()))
	require.NoError(t, os.Symlink(f.file(), f.file()))
	_, _, err = f.load()
	require.ErrorIs(t, err, syscall.ELOOP)
}

func TestAWildcardCoversWhatTheClusterServesBesideWhatIsNamed(t *testing.T) {
	served := map[string]any{
		"/api":    metav1.APIVersions{Versions: []string{"v1"}},
		"/apis":   metav1.APIGroupList{},
		"/api/v1": metav1.APIResourceList{APIResources: []metav1.APIResource{{Name: "pods", Verbs: metav1.Verbs{"list", "get", "patch"}}}},
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(served[r.URL.Path])
	}))
	defer server.Close()
	cluster, err := migrate.NewCluster(&rest.Config{Host: server.URL}, clock.RealClock{})
	require.NoError(t, err)
	for resources, want := range map[string][]string{
		"secrets, widgets.example.com": {"secrets", "widgets.example.com"},
		"secrets, '*.apps', nodes":     {"secrets", "pods", "nodes"},
	} {
		file, err := config.Parse([]byte(strings.Replace(encryption, "[secrets]", "["+resources+"]", 1)), config.Options{})
		require.NoError(t, err)
		covered, err := (&Rotation{Cluster: cluster}).coveredBy(t.Context(), file, nil)
		require.NoError(t, err)
		var names []string
		for _, r := range covered {
			names = append(names, r.String())
		}
		require.ElementsMatch(t, want, names, resources)
	}
}

// What each apiserver lists is looked at through it, so it has to be allowed there.
func TestWhatTheUserMayNotDoIsToldBeforeAnything(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"status":{"allowed":%t}}`, !strings.Contains(string(body), `"verb":"list"`) || !strings.Contains(string(body), "widgets"))
	}))
	defer server.Close()
	r := newRotation(t, exchanging, encryption)
	var err error
	r.Through, err = fleet.New([]fleet.Member{{Name: "cp-2", Config: &rest.Config{Host: server.URL}}}, clock.RealClock{})
	require.NoError(t, err)
	r.Fleet = r.Through
	require.NoError(t, r.allowed(t.Context(), configurations{resources: []string{"secrets"}}))
	err = r.allowed(t.Context(), configurations{resources: []string{"secrets", "widgets.example.com"}})
	const line = "through apiserver cp-2 the user may not list widgets.example.com: give it"
	require.ErrorContains(t, err, line)
	require.Equal(t, 1, strings.Count(err.Error(), line))
	r.Through = newRotation(t, exchanging, encryption).Fleet // another, of which it is not known
	require.ErrorContains(t, r.allowed(t.Context(), configurations{resources: []string{"widgets.example.com"}}), line)
}

// finished counts what a Watcher is told.
type finished struct {
	Watcher
	times int
}

func (f *finished) Finished(rotation.Done) { f.times++ }

// To watch is to go on when nothing is left to do, and until then to tell.
func TestAWatchedRotationIsToldOfAndNotFinishedBeforeItIs(t *testing.T) {
	kind := OnePlugin{Providers: []string{"old"}, Watch: true}
	r := newRotation(t, kind, encryption)
	p, err := r.Prepare(t.Context())
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	turns, heard := 0, &finished{}
	_, err = kind.drive(ctx, &world{fleet: r.Fleet, watcher: heard}, p.State, drive.Options{
		Clock: clock.RealClock{}, Save: func(rotation.State) error { return nil },
		Tell: func(drive.Turn) { turns++; cancel() }})
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, 1, turns)
	require.Zero(t, heard.times, "no apiserver answers")
}

// store is what a walk over anything finds.
func store(resources ...audit.Resource) *reencrypt.Store {
	report := &audit.Report{Prefix: "/registry/", Resources: resources, Objects: 1}
	return &reencrypt.Store{Audit: audit.Options{Layout: audit.NewLayout("", nil)},
		Walk: func(context.Context, audit.Source, audit.Options) (*audit.Report, error) { return report, nil }}
}

func TestAnAuditThatProvesNothingIsAnError(t *testing.T) {
	count := func(kind config.Kind, name string) audit.Count {
		return audit.Count{Form: audit.Form{Kind: kind, Name: name, KeyIDHash: "sha256:1"}, Objects: 2}
	}
	of := func(all ...audit.Resource) ([]rotation.Count, error) {
		w := &world{store: store(all...), providers: []string{"old", "new"}}
		a, err := w.Audit(t.Context(), []string{"secrets"})
		return a.Counts, err
	}
	counts, err := of(audit.Resource{Name: "secrets", Objects: 2, Forms: []audit.Count{count(config.KMSv2, "new"), count(config.AESGCM, "old")}})
	require.NoError(t, err)
	require.Equal(t, []rotation.Count{{Resource: "secrets", Provider: "new", KeyID: "sha256:1", Objects: 2}, {Resource: "secrets", Objects: 2}}, counts)
	_, err = of(audit.Resource{Name: "secrets", Objects: 2, Forms: []audit.Count{count(config.AESGCM, "old")}})
	require.ErrorContains(t, err, `no object below /registry/ is stored with "old", "new", which proves nothing`)
	_, err = of(audit.Resource{Name: audit.Rest, Forms: []audit.Count{count(config.KMSv2, "new")}})
	require.ErrorContains(t, err, "are not told apart")
}

func TestCanariesAreToldApartInACount(t *testing.T) {
	under := func(name, keyID string) audit.Form {
		return audit.Form{Kind: config.KMSv2, Name: name, KeyIDHash: keyID}
	}
	s := store(audit.Resource{Name: "secrets", Objects: 7, Forms: []audit.Count{{Form: under("new", "2"), Objects: 1}, {Form: under("new", "2"), Objects: 5}, {Form: under("new", "1"), Objects: 1}}},
		audit.Resource{Name: "pods", Objects: 1, Forms: []audit.Count{{Form: under("new", "2"), Objects: 1}}})
	walk := s.Walk
	s.Walk = func(ctx context.Context, from audit.Source, o audit.Options) (*audit.Report, error) {
		for _, key := range []string{"secrets/kube-system/atrest-canary-cp-1", "secrets/kube-system/atrest-canary-cp-2", "secrets/atrest-canary-/mine", "pods/default/atrest-canary-pod"} {
			resource, _, _ := strings.Cut(key, "/")
			o.Each(schema.GroupResource{Resource: resource}, "/registry/"+key, under("new", "2"))
		}
		return walk(ctx, from, o)
	}
	a, err := (&world{store: s, providers: []string{"new"}}).Audit(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, []rotation.Count{
		{Resource: "secrets", Provider: "new", KeyID: "2", Objects: 1, Canaries: 1},
		{Resource: "secrets", Provider: "new", KeyID: "2", Objects: 5, Canaries: 1},
		{Resource: "secrets", Provider: "new", KeyID: "1", Objects: 1},
		{Resource: "pods", Provider: "new", KeyID: "2", Objects: 1},
	}, a.Counts)
}

func TestWhatARotationRewrites(t *testing.T) {
	stale := outside(rotation.Goal{KeyID: "sha256:2", Round: 1}, []string{"new"})
	for name, c := range map[string]struct {
		form audit.Form
		want bool
	}{
		"under the key_id":                     {audit.Form{Kind: config.KMSv2, Name: "new", KeyIDHash: "sha256:2"}, false},
		"under another key_id":                 {audit.Form{Kind: config.KMSv2, Name: "new", KeyIDHash: "sha256:1"}, true},
		"under the key_id of another provider": {audit.Form{Kind: config.KMSv2, Name: "old", KeyIDHash: "sha256:2"}, true},
		"by KMS v1, which names no key_id":     {audit.Form{Kind: config.KMSv1, Name: "new"}, true},
		"in the clear":                         {audit.Form{Kind: audit.Plaintext}, true},
		"so that nobody can read it":           {audit.Form{Kind: audit.Undecodable}, false},
		"by nobody knows what":                 {audit.Form{Kind: audit.Unknown}, false},
	} {
		require.Equal(t, c.want, stale(c.form), name)
	}
}

// A rotation whose state is lost is found again by the files.
func TestARotationThatHasBegunIsPlannedAsBefore(t *testing.T) {
	first, err := newRotation(t, exchanging, encryption).Prepare(t.Context())
	require.NoError(t, err)
	for _, stage := range []rotation.Stage{rotation.Added, rotation.Swapped} {
		r := newRotation(t, exchanging, "")
		for _, apiserver := range r.Apiservers {
			file, err := edit.Advance([]byte(encryption), rotation.Before, stage, toNew(apiserver)...)
			require.NoError(t, err)
			require.NoError(t, r.Files.Write(t.Context(), apiserver, nil, file))
		}
		again, err := r.Prepare(t.Context())
		require.NoError(t, err)
		for apiserver, hashes := range again.State.Plan.Configs {
			require.Equal(t, first.State.Plan.Configs[apiserver][1:], hashes[1:], stage)
		}
	}
	require.False(t, exchanging.owns(rotation.State{}))
}
