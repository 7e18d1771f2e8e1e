package migrate_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
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

	"github.com/kube-atrest/atrest/internal/kubeapi"
	"github.com/kube-atrest/atrest/operate/migrate"
)

var secrets = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}

// hurried is a clock on which every wait is over at once, and took its time.
type hurried struct {
	*clocktesting.FakeClock
	mu sync.Mutex
}

func newClock() *hurried {
	return &hurried{FakeClock: clocktesting.NewFakeClock(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))}
}

func (c *hurried) NewTimer(d time.Duration) clock.Timer {
	c.mu.Lock()
	defer c.mu.Unlock()
	timer := c.FakeClock.NewTimer(d)
	c.Step(d)
	return timer
}

// stored is an object of the API server below. It is stale until it is written.
type stored struct {
	version int
	stale   bool
}

// api is an API server with secrets, as far as it matters here. Objects have
// keys as in etcd: namespace/name.
type api struct {
	*httptest.Server
	t *testing.T

	mu       sync.Mutex
	objects  map[string]*stored
	revision int
	// compacted is the oldest revision that a list can be continued at.
	compacted int
	// renews tells that an expired token is answered with another.
	renews bool
	// mirrored lists objects in an order that is not that of their names.
	mirrored bool
	patches  []string // keys, in their order
	lists    []string // tokens
	// fault may answer a request in place of the server.
	fault func(w http.ResponseWriter, r *http.Request) bool
}

func newAPI(t *testing.T, n int) *api {
	a := &api{t: t, objects: map[string]*stored{}, revision: 1000}
	for i := range n {
		a.revision++
		a.objects[fmt.Sprintf("ns-%d/s-%03d", i%3, i)] = &stored{a.revision, true}
	}
	a.Server = httptest.NewServer(a)
	t.Cleanup(a.Close)
	return a
}

func (a *api) cluster(clk clock.Clock) *migrate.Cluster {
	c, err := migrate.NewCluster(&rest.Config{Host: a.URL}, clk)
	require.NoError(a.t, err)
	return c
}

func (a *api) stale() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := 0
	for _, o := range a.objects {
		if o.stale {
			n++
		}
	}
	return n
}

// update is a write by somebody else.
func (a *api) update(key string, stale bool) {
	a.revision++
	a.objects[key] = &stored{a.revision, stale}
}

// faults lets a fault happen to the first n requests that match.
func (a *api) faults(n int, method, path string, do func(w http.ResponseWriter, r *http.Request)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fault = func(w http.ResponseWriter, r *http.Request) bool {
		if n == 0 || r.Method != method || !strings.Contains(r.URL.Path, path) {
			return false
		}
		n--
		do(w, r)
		return true
	}
}

func refuse(code int, reason metav1.StatusReason) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		answer(w, code, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Code: int32(code), Reason: reason, Message: "because"})
	}
}

func answer(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body)
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	if a.fault != nil && a.fault(w, r) {
		a.mu.Unlock()
		return
	}
	a.mu.Unlock()
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case r.Method == http.MethodGet && len(parts) == 3:
		a.list(w, r)
	case len(parts) == 6 && r.Method == http.MethodGet:
		a.get(w, r, parts[3]+"/"+parts[5])
	case len(parts) == 6 && r.Method == http.MethodPatch:
		a.patch(w, r, parts[3]+"/"+parts[5])
	default:
		refuse(404, metav1.StatusReasonNotFound)(w, r)
	}
}

func (a *api) list(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	require.Contains(a.t, r.Header.Get("Accept"), "as=PartialObjectMetadataList", "no object leaves the server whole")
	token := r.URL.Query().Get("continue")
	a.lists = append(a.lists, token)
	at, from, _ := strings.Cut(token, "@")
	revision, _ := strconv.Atoi(at)
	if token == "" || revision == -1 {
		revision = a.revision
	}
	if revision < a.compacted {
		status := metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Code: 410, Reason: metav1.StatusReasonExpired}
		if a.renews {
			status.Continue = "-1@" + from
		}
		answer(w, 410, status)
		return
	}
	limit, err := strconv.Atoi(r.URL.Query().Get("limit"))
	require.NoError(a.t, err)
	keys := slices.Sorted(maps.Keys(a.objects))
	if a.mirrored {
		slices.SortFunc(keys, func(x, y string) int { return strings.Compare(mirror(x), mirror(y)) })
	}
	keys = keys[slices.Index(keys, from)+1:]
	var list metav1.PartialObjectMetadataList
	if len(keys) > limit {
		rest := int64(len(keys) - limit)
		list.RemainingItemCount, keys = &rest, keys[:limit]
		list.Continue = fmt.Sprintf("%d@%s", revision, keys[limit-1])
	}
	for _, key := range keys {
		list.Items = append(list.Items, *a.metadata(key))
	}
	answer(w, 200, list)
}

func (a *api) metadata(key string) *metav1.PartialObjectMetadata {
	namespace, name, _ := strings.Cut(key, "/")
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name,
		ResourceVersion: strconv.Itoa(a.objects[key].version)}}
}

func (a *api) get(w http.ResponseWriter, r *http.Request, key string) {
	require.Contains(a.t, r.Header.Get("Accept"), "as=PartialObjectMetadata;", "no object leaves the server whole")
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.objects[key] == nil {
		refuse(404, metav1.StatusReasonNotFound)(w, nil)
		return
	}
	answer(w, 200, a.metadata(key))
}

// patch checks the version, and stores what is stale.
func (a *api) patch(w http.ResponseWriter, r *http.Request, key string) {
	var body struct {
		Metadata map[string]string `json:"metadata"`
	}
	require.NoError(a.t, json.NewDecoder(r.Body).Decode(&body))
	require.Equal(a.t, "application/strategic-merge-patch+json", r.Header.Get("Content-Type"))
	require.Equal(a.t, "atrest", r.URL.Query().Get("fieldManager"))
	require.Contains(a.t, r.Header.Get("Accept"), "as=PartialObjectMetadata;", "nor when it has been stored")
	require.Len(a.t, body.Metadata, 1, "the patch changes nothing")
	a.mu.Lock()
	defer a.mu.Unlock()
	require.NotEmpty(a.t, r.Header.Get(kubeapi.StoreAgain), "a server with the library has less to do")
	a.patches = append(a.patches, key)
	o := a.objects[key]
	switch {
	case o == nil:
		refuse(404, metav1.StatusReasonNotFound)(w, r)
	case body.Metadata["resourceVersion"] != strconv.Itoa(o.version):
		refuse(409, metav1.StatusReasonConflict)(w, r)
	default:
		if o.stale {
			a.update(key, false)
		}
		answer(w, 200, a.metadata(key))
	}
}

func mirror(s string) string {
	b := []byte(s)
	slices.Reverse(b)
	return string(b)
}
