package migrate_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/kube-atrest/atrest/operate/migrate"
)

// controlPlane is an API server with StorageVersionMigration objects, and the
// controller behind it.
type controlPlane struct {
	*httptest.Server
	t       *testing.T
	version string

	mu      sync.Mutex
	objects map[string]map[string]any
	uid     int
	log     []string
	// looked is called at every look at an object, before it is answered.
	looked func(object map[string]any)
	fault  func(w http.ResponseWriter, r *http.Request) bool
}

const migrations = "/apis/storagemigration.k8s.io/"

func newControlPlane(t *testing.T, version string) *controlPlane {
	c := &controlPlane{t: t, version: version, objects: map[string]map[string]any{}}
	c.Server = httptest.NewServer(c)
	t.Cleanup(c.Close)
	return c
}

func (c *controlPlane) delegate() (*migrate.Delegate, error) {
	cluster, err := migrate.NewCluster(&rest.Config{Host: c.URL}, newClock())
	require.NoError(c.t, err)
	return cluster.Delegate(c.t.Context())
}

func (c *controlPlane) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fault != nil && c.fault(w, r) {
		return
	}
	path, found := strings.CutPrefix(r.URL.Path+"/", migrations)
	if !found || c.version == "" {
		refuse(404, metav1.StatusReasonNotFound)(w, r)
		return
	}
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case parts[0] == "":
		answer(w, 200, metav1.APIGroup{Name: "storagemigration.k8s.io", Versions: []metav1.GroupVersionForDiscovery{{Version: "v0"}, {Version: c.version}},
			PreferredVersion: metav1.GroupVersionForDiscovery{Version: "v0"}})
	case len(parts) == 1 && parts[0] == "v0":
		answer(w, 200, metav1.APIResourceList{})
	case len(parts) == 1:
		answer(w, 200, metav1.APIResourceList{APIResources: []metav1.APIResource{{Name: "storageversionmigrations"}}})
	case r.Method == http.MethodPost:
		c.create(w, r)
	default:
		c.object(w, r, parts[2])
	}
}

func (c *controlPlane) create(w http.ResponseWriter, r *http.Request) {
	var o map[string]any
	require.NoError(c.t, json.NewDecoder(r.Body).Decode(&o))
	meta := o["metadata"].(map[string]any)
	name := meta["name"].(string)
	if c.objects[name] != nil {
		refuse(409, metav1.StatusReasonAlreadyExists)(w, r)
		return
	}
	c.uid++
	meta["uid"], meta["resourceVersion"] = strconv.Itoa(c.uid), "1"
	c.objects[name] = o
	c.log = append(c.log, "create "+meta["annotations"].(map[string]any)[migrate.KeyIDAnnotation].(string))
	answer(w, 201, o)
}

func (c *controlPlane) object(w http.ResponseWriter, r *http.Request, name string) {
	o := c.objects[name]
	switch {
	case o == nil:
		refuse(404, metav1.StatusReasonNotFound)(w, r)
	case r.Method == http.MethodDelete:
		var options metav1.DeleteOptions
		require.NoError(c.t, json.NewDecoder(r.Body).Decode(&options))
		require.Equal(c.t, o["metadata"].(map[string]any)["uid"], string(*options.Preconditions.UID))
		require.Equal(c.t, "1", *options.Preconditions.ResourceVersion)
		delete(c.objects, name)
		c.log = append(c.log, "delete")
		answer(w, 200, metav1.Status{})
	default:
		if c.looked != nil {
			c.looked(o)
		}
		answer(w, 200, o)
	}
}

func condition(name string) map[string]any {
	return map[string]any{"conditions": []metav1.Condition{{Type: "Other", Status: "True"},
		{Type: name, Status: "True", Reason: "Why", Message: "because"}}}
}

var deployments = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}

func TestAMigrationIsMadeAndAwaited(t *testing.T) {
	c := newControlPlane(t, "v1beta1")
	looks := 0
	c.looked = func(o map[string]any) {
		looks++
		o["status"] = condition([]string{"Running", "Running", "Succeeded"}[min(looks-1, 2)])
	}
	d, err := c.delegate()
	require.NoError(t, err)
	w := migrate.Wanted{Resource: deployments, KeyID: "sha256:1", Round: 3, Progress: func(time.Duration, bool) { t.Error("it is soon over") }}
	require.NoError(t, d.Migrate(t.Context(), w))
	o := c.objects["encryption-migration-apps-deployments"]
	require.Equal(t, "storagemigration.k8s.io/v1beta1", o["apiVersion"])
	require.Equal(t, map[string]any{"resource": map[string]any{"group": "apps", "resource": "deployments"}}, o["spec"])
	require.Equal(t, map[string]any{migrate.KeyIDAnnotation: "sha256:1", migrate.RoundAnnotation: "3"}, o["metadata"].(map[string]any)["annotations"])

	require.NoError(t, d.Migrate(t.Context(), w), "one that succeeded for the same is good")
	require.Equal(t, []string{"create sha256:1"}, c.log)
	w.Round = 4
	looks = 0
	require.NoError(t, d.Migrate(t.Context(), w))
	w.KeyID = "sha256:2"
	looks = 0
	require.NoError(t, d.Migrate(t.Context(), w))
	require.Equal(t, []string{"create sha256:1", "delete", "create sha256:1", "delete", "create sha256:2"}, c.log)
}

func TestTheAlphaVersionWantsTheVersionOfTheResource(t *testing.T) {
	c := newControlPlane(t, "v1alpha1")
	c.looked = func(o map[string]any) { o["status"] = condition("Succeeded") }
	d, err := c.delegate()
	require.NoError(t, err)
	require.NoError(t, d.Migrate(t.Context(), migrate.Wanted{Resource: secrets, KeyID: "k"}))
	require.Equal(t, map[string]any{"resource": map[string]any{"group": "", "resource": "secrets", "version": "v1"}}, c.objects["encryption-migration-core-secrets"]["spec"])
}

func TestAMigrationThatFailsSaysWhyAndIsMadeAgainNextTime(t *testing.T) {
	c := newControlPlane(t, "v1beta1")
	c.looked = func(o map[string]any) { o["status"] = condition("Failed") }
	d, err := c.delegate()
	require.NoError(t, err)
	for range 2 {
		err = d.Migrate(t.Context(), migrate.Wanted{Resource: secrets, KeyID: "k"})
		var failed *migrate.FailedError
		require.ErrorAs(t, err, &failed)
		require.Equal(t, migrate.FailedError{Name: "encryption-migration-core-secrets", Reason: "Why", Message: "because"}, *failed)
	}
	require.Equal(t, []string{"create k", "delete", "create k"}, c.log)
}

// Conditions that were true once stay in the list as false.
func TestAConditionThatIsFalseIsNotSo(t *testing.T) {
	for _, name := range []string{"Succeeded", "Failed"} {
		c := newControlPlane(t, "v1beta1")
		looks := 0
		c.looked = func(o map[string]any) {
			looks++
			if o["status"] = condition("Succeeded"); looks < 4 {
				o["status"] = map[string]any{"conditions": []metav1.Condition{{Type: name, Status: "False"}, {Type: "Running", Status: "True"}}}
			}
		}
		d, err := c.delegate()
		require.NoError(t, err)
		require.NoError(t, d.Migrate(t.Context(), migrate.Wanted{Resource: secrets, KeyID: "k"}), name)
		require.Equal(t, 4, looks, name)
	}
}

func TestAWaitThatIsInterruptedIsNoEnd(t *testing.T) {
	c := newControlPlane(t, "v1beta1")
	c.looked = func(o map[string]any) { o["status"] = condition("Running") }
	d, err := c.delegate()
	require.NoError(t, err)
	for range 20 { // this clock's timers are over at once, so that the end of the wait may be seen first
		ctx, interrupt := context.WithCancel(t.Context())
		w := migrate.Wanted{Resource: secrets, KeyID: "k", Progress: func(time.Duration, bool) { interrupt() }}
		require.ErrorIs(t, d.Migrate(ctx, w), context.Canceled)
	}
}

func TestAMigrationThatNobodyTakesUpIsAnError(t *testing.T) {
	c := newControlPlane(t, "v1beta1")
	d, err := c.delegate()
	require.NoError(t, err)
	require.ErrorIs(t, d.Migrate(t.Context(), migrate.Wanted{Resource: secrets, KeyID: "k"}), migrate.ErrNotTakenUp)
}

func TestAClusterWithoutMigrationsSaysSo(t *testing.T) {
	_, err := newControlPlane(t, "").delegate()
	require.ErrorIs(t, err, migrate.ErrNotServed)
	c := newControlPlane(t, "v1beta1")
	c.fault = func(w http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "v1beta1") {
			answer(w, 200, metav1.APIResourceList{})
			return true
		}
		return false
	}
	_, err = c.delegate()
	require.ErrorIs(t, err, migrate.ErrNotServed)
	c.fault = func(w http.ResponseWriter, r *http.Request) bool {
		refuse(403, metav1.StatusReasonForbidden)(w, r)
		return true
	}
	_, err = c.delegate()
	require.ErrorContains(t, err, "API group storagemigration.k8s.io: because")
}

func TestMigrationsSurviveFaultsAndMeddling(t *testing.T) {
	c := newControlPlane(t, "v1beta1")
	requests, looks := 0, 0
	c.fault = func(w http.ResponseWriter, r *http.Request) bool {
		if requests++; requests%2 == 1 {
			if r.Method == http.MethodPost { // it has its effect, and the answer is lost
				c.create(httptest.NewRecorder(), r)
			}
			refuse(503, metav1.StatusReasonServiceUnavailable)(w, r)
			return true
		}
		return false
	}
	c.looked = func(o map[string]any) {
		looks++
		switch looks {
		case 2:
			delete(c.objects, "encryption-migration-core-secrets")
		case 3:
			o["metadata"].(map[string]any)["deletionTimestamp"] = "2026-11-20T12:00:00Z"
			o["status"] = condition("Succeeded")
		case 4:
			delete(c.objects, "encryption-migration-core-secrets")
		case 6:
			o["status"] = condition("Succeeded")
		}
	}
	d, err := c.delegate()
	require.NoError(t, err)
	require.NoError(t, d.Migrate(t.Context(), migrate.Wanted{Resource: secrets, KeyID: "k"}))
	require.Equal(t, []string{"create k", "create k", "create k"}, c.log)
}

func TestAMigrationMayTakeAsLongAsItLikes(t *testing.T) {
	c := newControlPlane(t, "v1beta1")
	looks := 0
	c.looked = func(o map[string]any) {
		switch {
		case looks > 1000:
			o["status"] = condition("Succeeded")
		case looks > 20:
			o["status"] = condition("Running")
		}
		looks++
	}
	d, err := c.delegate()
	require.NoError(t, err)
	var told []time.Duration
	var taken []bool
	require.NoError(t, d.Migrate(t.Context(), migrate.Wanted{Resource: secrets, KeyID: "k", Progress: func(waited time.Duration, running bool) {
		told, taken = append(told, waited.Round(10*time.Second)), append(taken, running)
	}}))
	require.Equal(t, []time.Duration{30 * time.Second, time.Minute, 90 * time.Second}, told[:3])
	require.Equal(t, []bool{false, true, true}, taken[:3])
	require.InDelta(t, 2000/30, len(told), 5)
}

func TestResourcesAreThoseThatCanBeRewritten(t *testing.T) {
	verbs := metav1.Verbs{"get", "list", "patch"}
	served := map[string]any{
		"/api": metav1.APIVersions{Versions: []string{"v1"}},
		"/apis": metav1.APIGroupList{Groups: []metav1.APIGroup{
			{Name: "apps", Versions: []metav1.GroupVersionForDiscovery{{GroupVersion: "apps/v1beta1", Version: "v1beta1"}, {GroupVersion: "apps/v1", Version: "v1"}}, PreferredVersion: metav1.GroupVersionForDiscovery{Version: "v1"}},
			{Name: "events.k8s.io", Versions: []metav1.GroupVersionForDiscovery{{GroupVersion: "events.k8s.io/v1", Version: "v1"}}},
			{Name: "away", Versions: []metav1.GroupVersionForDiscovery{{GroupVersion: "away/v1", Version: "v1"}}},
		}},
		"/api/v1": metav1.APIResourceList{APIResources: []metav1.APIResource{{Name: "secrets", Verbs: verbs}, {Name: "events", Verbs: verbs},
			{Name: "bindings", Verbs: metav1.Verbs{"create"}}, {Name: "pods/status", Verbs: metav1.Verbs{"get", "patch"}}}},
		"/apis/apps/v1":          metav1.APIResourceList{APIResources: []metav1.APIResource{{Name: "deployments", Verbs: verbs}}},
		"/apis/apps/v1beta1":     metav1.APIResourceList{APIResources: []metav1.APIResource{{Name: "deployments", Verbs: verbs}, {Name: "old", Verbs: verbs}}},
		"/apis/events.k8s.io/v1": metav1.APIResourceList{APIResources: []metav1.APIResource{{Name: "events", Verbs: verbs}}},
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if body, ok := served[r.URL.Path]; ok {
			answer(w, 200, body)
			return
		}
		refuse(503, metav1.StatusReasonServiceUnavailable)(w, r)
	}))
	defer server.Close()
	c, err := migrate.NewCluster(&rest.Config{Host: server.URL}, newClock())
	require.NoError(t, err)
	all, err := c.Resources(t.Context())
	require.ErrorContains(t, err, "away/v1: because")
	require.ElementsMatch(t, []schema.GroupVersionResource{secrets, {Version: "v1", Resource: "events"}, deployments,
		{Group: "apps", Version: "v1beta1", Resource: "old"}}, all)
}

func TestAServerWithoutResourcesIsAnError(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/api/v1") {
			answer(w, 200, metav1.APIResourceList{APIResources: []metav1.APIResource{{Name: "bindings", Verbs: metav1.Verbs{"create"}}}})
			return
		}
		answer(w, 200, map[string]any{"/api": metav1.APIVersions{Versions: []string{"v1"}}, "/apis": metav1.APIGroupList{}}[r.URL.Path])
	}))
	defer server.Close()
	c, err := migrate.NewCluster(&rest.Config{Host: server.URL}, newClock())
	require.NoError(t, err)
	all, err := c.Resources(t.Context())
	require.ErrorContains(t, err, "lists no resources: is it one, and is it up?")
	require.Empty(t, all)
}

func TestAServerThatCannotBeReachedIsNamed(t *testing.T) {
	_, err := migrate.NewCluster(&rest.Config{Host: "https://a", TLSClientConfig: rest.TLSClientConfig{CAFile: "/none"}}, newClock())
	require.ErrorContains(t, err, "check the kubeconfig")
	_, err = migrate.NewCluster(&rest.Config{Host: "::"}, newClock())
	require.ErrorContains(t, err, "check the kubeconfig")
}
