package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/healthz"
	"github.com/kube-atrest/atrest/internal/etcdtest"
	"github.com/kube-atrest/atrest/internal/faultplugin"
	"github.com/kube-atrest/atrest/internal/hashed"
	"github.com/kube-atrest/atrest/providers"
)

// served are the resources of the apiservers in the scripts, by group and version.
var served = map[string][]string{
	"v1":             {"secrets", "configmaps", "serviceaccounts", "services", "endpoints"},
	"example.com/v1": {"widgets"},
}

// apiserver is one on the etcd of a script, which encrypts with this library. It
// follows its configuration file and its plugins at once, at the next request.
type apiserver struct {
	*httptest.Server
	w      *world
	id     string
	file   string // path of its configuration
	prefix string // in etcd

	mu           sync.Mutex
	inUse        *providers.Transformers
	stamp        string           // of what inUse was made from
	holds        bool             // it does not follow
	polls        bool             // it keeps what it built, and asks its plugins of that
	asks         bool             // it follows when it is had to ask its plugins, and only then
	forbids      string           // a method or a resource
	busy         int              // how many patches in steps are answered by too many requests
	refuses      string           // the name of an object that cannot be updated, or NAMESPACE/
	updates      string           // an etcd key that somebody else writes before the next patch
	cluster      string           // the UID of its namespace kube-system
	main         bool             // it knows nothing of the etcd of "etcd override"
	undiscovered bool             // its discovery does not have example.com (yet)
	lame         bool             // an aggregated API of it is away
	discards     bool             // it deletes what it cannot read
	apart        *etcdtest.Server // has the Secrets of this one alone
	unconverted  string           // a resource whose objects no webhook converts any more
	builds       string           // the hash of a file that waits for its plugins
	fixed        bool             // it does not follow: who makes FILE.start has it start anew
	unready      bool             // /readyz says so
	stock        bool             // it is a kube-apiserver that is not of this project
	migrator     string           // what becomes of StorageVersionMigrations; "" if they are not served
	migration    map[string]map[string]any
	patches      int
	stops        int                   // the patch that waits, and all that come after it
	goOn         chan struct{}         // closed when they may
	held         bool                  // one does
	memory       map[string]remembered // what the watch cache has
	behind       *apiserver            // an aggregated apiserver that serves example.com
}

// api NAME start CONFIG [PREFIX]|away|holds|follows|asks|forbids METHOD|RESOURCE|refuses OBJECT|NAMESPACE/|builds HASH|updates
// KEY|migrator works|ignores|fails|lies|counts|stops N|goes|drops|main|apart|writes KEY|of CLUSTER|lame|discards|unconverted RESOURCE|stock|undiscovers|fixed|unfixed|unready|ready|listed|unlisted|serves|awaits N: an apiserver, to
// which the context NAME of $KUBECONFIG leads. The first one is that of the current context.
// Its address is in $URL_NAME, without http:// in $AT_NAME, and one that "serves" is an endpoint of the Service kubernetes.
// "awaits" returns when N objects were patched since "counts". After "stops N" the patches behind the Nth wait for "goes",
// or for who asked to go after "drops", and "awaits" returns when one does: nothing is under way then.
func api(ts *testscript.TestScript, _ bool, args []string) {
	w := worldOf(ts)
	name, verb, rest := args[0], args[1], append(args[2:], "", "")
	if verb == "start" {
		ts.Check(w.startAPI(ts, name, ts.MkAbs(rest[0]), rest[1]))
		return
	}
	a, ok := w.apis[name]
	if !ok {
		ts.Fatalf("apiserver %s was not started", name)
	}
	if verb == "awaits" {
		n := numberIn(ts, rest[0])
		require.Eventually(w.t, func() bool { return a.patched() >= n }, time.Minute, 10*time.Millisecond)
		return
	}
	change, ok := map[string]func(){
		"holds":       func() { a.holds = true },
		"remembers":   func() { a.remembers(rest[0], rest[1]) },
		"follows":     func() { a.holds = false },
		"polls":       func() { a.holds, a.polls = true, true },
		"restarts":    func() { a.holds, a.polls, a.stamp = false, false, "" },
		"asks":        func() { a.asks = true },
		"forbids":     func() { a.forbids = rest[0] },
		"refuses":     func() { a.refuses = rest[0] },
		"busy":        func() { a.busy, _ = strconv.Atoi(rest[0]) },
		"updates":     func() { a.updates = rest[0] },
		"migrator":    func() { a.migrator = rest[0] },
		"counts":      func() { a.patches = 0 },
		"stops":       func() { a.stops, a.goOn, a.held = numberIn(ts, rest[0]), make(chan struct{}), false },
		"goes":        a.goes,
		"drops":       func() { a.goOn = nil },
		"main":        func() { a.main = true },
		"undiscovers": func() { a.undiscovered = true },
		"aggregates":  func() { a.behind = w.apis[rest[0]] },
		"of":          func() { a.cluster = rest[0] },
		"lame":        func() { a.lame = true },
		"discards":    func() { a.discards = true },
		"apart":       func() { a.apart = etcdtest.Start(w.t) },
		"writes":      func() { ts.Check(a.writes(rest[0])) },
		"unconverted": func() { a.unconverted = rest[0] },
		"stock":       func() { a.stock = true },
		"builds":      func() { a.builds = rest[0] },
		"fixed":       func() { a.fixed = true },
		"unfixed":     func() { a.fixed = false },
		"unready":     func() { a.unready = true },
		"ready":       func() { a.unready = false },
		"away":        a.leaves,
		"listed":      func() { w.list(a.id, true) },
		"unlisted":    func() { w.list(a.id, false) },
		"serves":      func() { w.serve(a.URL) },
	}[verb]
	if !ok {
		ts.Fatalf("api cannot %s", verb)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	change()
}

func (w *world) startAPI(ts *testscript.TestScript, name, file, prefix string) error {
	a := &apiserver{w: w, id: "apiserver-" + name, file: file, prefix: cmp.Or(prefix, "/registry"), migration: map[string]map[string]any{}}
	if err := a.follow(w.t.Context()); err != nil {
		return err
	}
	a.Server = httptest.NewServer(a)
	w.t.Cleanup(func() {
		a.Close()
		a.inUse.Close()
	})
	w.apis[name] = a
	w.list(a.id, true)
	path := filepath.Join(ts.Getenv("WORK"), "kubeconfig")
	ts.Setenv("KUBECONFIG", path)
	kubeconfig, err := clientcmd.LoadFromFile(path)
	if errors.Is(err, os.ErrNotExist) {
		kubeconfig, err = clientcmdapi.NewConfig(), nil
		kubeconfig.CurrentContext = name
	}
	if err != nil {
		return err
	}
	ts.Setenv("URL_"+strings.ReplaceAll(name, "-", "_"), a.URL)
	ts.Setenv("AT_"+strings.ReplaceAll(name, "-", "_"), a.Listener.Addr().String())
	kubeconfig.Clusters[name] = &clientcmdapi.Cluster{Server: a.URL}
	kubeconfig.Contexts[name] = &clientcmdapi.Context{Cluster: name}
	return clientcmd.WriteToFile(*kubeconfig, path)
}

func (a *apiserver) patched() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.goOn != nil && !a.held {
		return 0
	}
	return a.patches
}

func numberIn(ts *testscript.TestScript, text string) int {
	n, err := strconv.Atoi(text)
	ts.Check(err)
	return n
}

// waits has a patch wait that is one too many, and reports whether it may go on.
func (a *apiserver) waits(r *http.Request) bool {
	a.mu.Lock()
	goOn, tooMany := a.goOn, r.Method == http.MethodPatch && a.goOn != nil && a.patches >= a.stops
	a.held = a.held || tooMany
	a.mu.Unlock()
	if !tooMany {
		return true
	}
	body, err := io.ReadAll(r.Body) // else it is not seen that who asks has gone
	require.NoError(a.w.t, err)
	r.Body = io.NopCloser(bytes.NewReader(body))
	select {
	case <-goOn:
		return true
	case <-r.Context().Done():
		return false
	}
}

// goes has those go on that wait.
func (a *apiserver) goes() {
	if a.goOn != nil {
		close(a.goOn)
		a.goOn = nil
	}
}

// leaves takes no connection any more, from now on, and ends when all is answered.
func (a *apiserver) leaves() {
	_ = a.Listener.Close()
	a.goes()
	go a.Close()
}

// follow takes the file and the plugins into use as they are now.
func (a *apiserver) follow(ctx context.Context) error {
	data, err := os.ReadFile(a.file)
	if err != nil {
		return err
	}
	stamp := string(data)
	for _, name := range slices.Sorted(maps.Keys(a.w.plugins)) {
		a.w.plugins[name].Set(func(b *faultplugin.Behaviour) { stamp += fmt.Sprintf("%s %+v", name, *b) })
	}
	if stamp == a.stamp || a.holds || a.fixed && os.Remove(a.file+".start") != nil {
		return nil
	}
	c, err := config.Parse(data, config.Options{KMSv1: true, File: a.file})
	if err != nil {
		return err
	}
	next, err := providers.Build(c, providers.Options{})
	if err != nil {
		return err
	}
	next.Commit(func() {})
	_ = next.Prepare(ctx) // if it is not ready, the status says so
	if a.inUse != nil {
		a.inUse.Close()
	}
	a.inUse, a.stamp = next, stamp
	return nil
}

func (a *apiserver) status() healthz.Status {
	s := healthz.Status{ConfigFile: a.file, APIServerIDHash: hashed.ID(a.id), ConfigHash: a.inUse.Configuration().Hash(), Providers: a.inUse.Health()}
	if !a.fixed {
		s.Reload = &healthz.Reload{Outcome: healthz.Loaded}
	}
	if a.builds != "" {
		s.Reload = &healthz.Reload{LoadedAt: time.Now().Add(-time.Hour), Outcome: healthz.Building, BuildingHash: a.builds}
	}
	return s.Told(time.Now())
}

func (a *apiserver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !a.waits(r) {
		return
	}
	if a.behind != nil && strings.HasPrefix(r.URL.Path, "/apis/example.com/") {
		to, _ := url.Parse(a.behind.URL)
		httputil.NewSingleHostReverseProxy(to).ServeHTTP(w, r)
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	ask := a.asks && r.Method == http.MethodPost && r.URL.Path == healthz.AskPath
	if a.asks == ask {
		if err := a.follow(r.Context()); err != nil {
			fmt.Fprintln(os.Stderr, "the apiserver keeps its configuration:", err)
		}
	}
	if a.polls {
		a.inUse.Ask(r.Context())
	}
	path := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case a.forbids != "" && (r.Method == a.forbids || strings.HasSuffix(r.URL.Path, "/"+a.forbids)):
		refuse(w, http.StatusForbidden, metav1.StatusReasonForbidden, "is not allowed")
	case a.stock && (r.URL.Path == "/metrics" || r.URL.Path == "/readyz/"+healthz.Name):
		a.measured(w, r)
	case !a.stock && (r.URL.Path == healthz.Path || ask):
		answer(w, http.StatusOK, a.status())
	case r.URL.Path == "/readyz" && a.unready:
		http.Error(w, "[+]ping ok\n[-]poststarthook/rbac failed: reason withheld\nreadyz check failed", http.StatusInternalServerError)
	case r.URL.Path == "/readyz":
	case path[0] == "apis" && len(path) > 1 && path[1] == "storagemigration.k8s.io":
		a.migrations(w, r, path[2:])
	case r.URL.Path == "/apis/apiregistration.k8s.io/v1/apiservices" && a.unreadAt("/registry/apiregistration.k8s.io/apiservices/"),
		r.URL.Path == "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases" && a.unreadAt("/registry/leases/kube-system/"):
		refuse(w, http.StatusInternalServerError, metav1.StatusReasonInternalError, "Internal error occurred: no matching prefix found")
	case r.URL.Path == "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases":
		answer(w, http.StatusOK, a.w.leases())
	case r.URL.Path == "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices":
		a.w.mu.Lock()
		defer a.w.mu.Unlock()
		answer(w, http.StatusOK, map[string]any{"items": a.w.endpoints})
	case r.URL.Path == "/apis/apiregistration.k8s.io/v1/apiservices":
		answer(w, http.StatusOK, a.aggregated())
	case r.URL.Path == "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews":
		answer(w, http.StatusCreated, map[string]any{"status": map[string]any{"allowed": true}})
	case r.URL.Path == "/api/v1/namespaces/kube-system":
		answer(w, http.StatusOK, map[string]any{"metadata": map[string]any{"uid": cmp.Or(a.cluster, "one")}})
	case r.URL.Path == "/api":
		answer(w, http.StatusOK, metav1.APIVersions{Versions: []string{"v1"}})
	case path[0] == "apis" && len(path) == 1:
		answer(w, http.StatusOK, a.groups())
	case path[0] == "apis" && path[1] == lameGroup:
		refuse(w, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "the server is currently unable to handle the request")
	case a.serves()[strings.Join(path[1:], "/")] != nil:
		answer(w, http.StatusOK, a.resources(strings.Join(path[1:], "/")))
	case path[0] == "api":
		a.objects(w, r, path[2:], "")
	case path[0] == "apis" && len(path) > 2:
		a.objects(w, r, path[3:], path[1])
	default:
		refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound, "no "+r.URL.Path)
	}
}

// measured answers for the metrics and the check of a kube-apiserver that is not of this
// project.
func (a *apiserver) measured(w http.ResponseWriter, r *http.Request) {
	s, now := a.status(), time.Now().Unix()
	if r.URL.Path != "/metrics" {
		if s.Line() != "" && slices.ContainsFunc(s.Providers, func(p healthz.Provider) bool { return p.State != healthz.Ready }) {
			w.WriteHeader(http.StatusInternalServerError)
		}
		fmt.Fprint(w, s.Line())
		return
	}
	fmt.Fprintf(w, "apiserver_encryption_config_controller_last_config_info{apiserver_id_hash=%q,hash=%q} 1\n", s.APIServerIDHash, s.ConfigHash)
	for _, p := range s.Providers {
		labels := fmt.Sprintf("key_id_hash=%q,provider_name=%q", p.KeyIDHash, p.Names[0])
		if p.KeyIDHash != "" {
			fmt.Fprintf(w, "apiserver_envelope_encryption_key_id_hash_status_last_timestamp_seconds{%s} %d\n", labels, now)
		}
		if p.DEKWrites > 0 {
			fmt.Fprintf(w, "apiserver_envelope_encryption_key_id_hash_last_timestamp_seconds{%s,transformation_type=\"to_storage\"} %d\n", labels, now)
		}
	}
}

// list has an apiserver be one that the cluster knows of by its Lease, or not.
func (w *world) list(id string, there bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.listed[id] = true; !there {
		delete(w.listed, id)
	}
}

// serve has an apiserver be an endpoint of the Service kubernetes.
func (w *world) serve(address string) {
	u, err := url.Parse(address)
	require.NoError(w.t, err)
	port, err := strconv.Atoi(u.Port())
	require.NoError(w.t, err)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.endpoints = append(w.endpoints, map[string]any{"endpoints": []any{map[string]any{"addresses": []string{u.Hostname()}}},
		"ports": []any{map[string]any{"name": "https", "port": port}}})
}

func (w *world) leases() map[string]any {
	w.mu.Lock()
	defer w.mu.Unlock()
	items := []any{}
	for _, id := range slices.Sorted(maps.Keys(w.listed)) {
		items = append(items, map[string]any{"metadata": map[string]any{"name": id, "labels": map[string]string{"kubernetes.io/hostname": strings.TrimPrefix(id, "apiserver-")}}})
	}
	return map[string]any{"items": items}
}

// lameGroup is the API group of an aggregated apiserver that is away.
const lameGroup = "custom.metrics.k8s.io"

// aggregated are the APIServices of other apiservers.
func (a *apiserver) aggregated() map[string]any {
	items := []any{}
	add := func(group, version, namespace, name string) {
		items = append(items, map[string]any{"spec": map[string]any{"group": group, "version": version, "service": map[string]any{"namespace": namespace, "name": name}}})
	}
	if a.lame {
		add(lameGroup, "v1beta1", "monitoring", "metrics")
	}
	if a.behind != nil {
		add("example.com", "v1", "widgets", "api")
	}
	if a.prefix == openShift {
		add("route.openshift.io", "v1", "openshift-apiserver", "api")
		add("oauth.openshift.io", "v1", "openshift-oauth-apiserver", "api")
	}
	return map[string]any{"items": items}
}

// unreadAt reports whether it cannot decrypt something below a prefix, as a list does not then.
func (a *apiserver) unreadAt(prefix string) bool {
	for _, kv := range a.read(&pb.RangeRequest{Key: []byte(prefix), RangeEnd: []byte(prefix[:len(prefix)-1] + "0")}) {
		if _, _, err := a.open(kv); err != nil {
			return true
		}
	}
	return false
}

func (a *apiserver) groups() (list metav1.APIGroupList) {
	if a.lame {
		version := metav1.GroupVersionForDiscovery{GroupVersion: lameGroup + "/v1beta1", Version: "v1beta1"}
		list.Groups = append(list.Groups, metav1.APIGroup{Name: lameGroup, Versions: []metav1.GroupVersionForDiscovery{version}})
	}
	for version := range a.serves() {
		if a.undiscovered && version == "example.com/v1" {
			continue
		}
		if group, v, ok := strings.Cut(version, "/"); ok {
			list.Groups = append(list.Groups, metav1.APIGroup{Name: group, Versions: []metav1.GroupVersionForDiscovery{{GroupVersion: version, Version: v}}})
		}
	}
	return list
}

func (a *apiserver) resources(version string) metav1.APIResourceList {
	list := metav1.APIResourceList{GroupVersion: version}
	for _, name := range a.serves()[version] {
		list.APIResources = append(list.APIResources, metav1.APIResource{Name: name, Namespaced: !strings.HasPrefix(name, "oauth"), Verbs: []string{"list", "get", "patch", "delete"}})
	}
	return list
}

// objects answers for RESOURCE[/NAME] or namespaces/NAMESPACE/RESOURCE[/NAME].
func (a *apiserver) objects(w http.ResponseWriter, r *http.Request, path []string, group string) {
	var at string
	switch {
	case a.unconverted != "" && slices.Contains(path, a.unconverted):
		refuse(w, http.StatusInternalServerError, metav1.StatusReasonInternalError,
			`conversion webhook for example.com/v1, Kind=Widget failed: Post "https://widgets.operators.svc:443/convert?timeout=30s": service "widgets" not found`)
		return
	case len(path) == 1 && r.Method == http.MethodGet:
		a.list(w, r, a.place(group, path[0]))
		return
	case len(path) == 2:
		at = a.place(group, path[0]) + path[1]
	case len(path) == 3 && r.Method == http.MethodPost:
		var object map[string]any
		require.NoError(a.w.t, json.NewDecoder(r.Body).Decode(&object))
		at = a.place(group, path[2]) + path[1] + "/" + object["metadata"].(map[string]any)["name"].(string)
		a.store(w, at, object)
		return
	case len(path) == 4:
		at = a.place(group, path[2]) + path[1] + "/" + path[3]
	}
	found := a.read(&pb.RangeRequest{Key: []byte(at)})
	switch {
	case len(found) == 0:
		refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound, "no "+at)
	case r.Method == http.MethodGet:
		if m, is := a.memory[at]; is && !a.w.broken && r.URL.Query().Get("resourceVersion") == "0" && m.revision == found[0].ModRevision {
			answer(w, http.StatusOK, metadataOf(found[0]))
			return
		}
		if _, _, err := a.open(found[0]); err != nil {
			a.unread(w, err)
			return
		}
		answer(w, http.StatusOK, a.withOwners(found[0]))
	case r.Method == http.MethodDelete:
		a.discard(w, r, found[0])
	default:
		a.patch(w, r, found[0])
	}
}

// discard deletes an object as kube-apiserver does, with and without the feature gate
// AllowUnsafeMalformedObjectDeletion.
func (a *apiserver) discard(w http.ResponseWriter, r *http.Request, kv *mvccpb.KeyValue) {
	const ignoring = "ignoreStoreReadErrorWithClusterBreakingPotential"
	var options map[string]any
	_ = json.NewDecoder(r.Body).Decode(&options) // there may be none
	ignores := a.discards && options[ignoring] == true
	_, _, err := a.open(kv)
	switch {
	case ignores && options["preconditions"] != nil:
		refuse(w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, ignoring+": Invalid value: true: cannot be set together with .preconditions")
	case ignores && a.forbids == "unsafe-delete-ignore-read-errors":
		refuse(w, http.StatusForbidden, metav1.StatusReasonForbidden, `not permitted to do "unsafe-delete-ignore-read-errors"`)
	case ignores && err == nil:
		refuse(w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, ignoring+": Invalid value: true: is exclusively used to delete corrupt object(s)")
	case !ignores && err != nil:
		a.unread(w, err)
	case !ignores && options["preconditions"] != nil:
		refuse(w, http.StatusConflict, metav1.StatusReasonConflict, "the UID in the precondition")
	default:
		a.storeOf(string(kv.Key)).Delete(string(kv.Key))
		// The event of that deletion has an old object that no apiserver decrypts, which ends its watch (etcd3/watcher.go
		// prepareObjs), and a list fails while anything else is unreadable: no watch cache is ready (cacher.go startCaching),
		// a get with resourceVersion=0 goes to etcd (delegator.go Get), and an update by name still begins with memory.
		a.w.broken = a.w.broken || err != nil
		answer(w, http.StatusOK, metav1.Status{Status: "Success"})
	}
}

// refused reports whether it does not have an object updated.
func (a *apiserver) refused(key string) bool {
	return strings.HasSuffix(key, "/"+a.refuses) || strings.HasSuffix(a.refuses, "/") && strings.Contains(key, "/"+a.refuses)
}

// storeOf is the store in which it has an etcd key.
func (a *apiserver) storeOf(key string) *etcdtest.Server {
	switch {
	case a.apart != nil && strings.HasPrefix(key, "/registry/secrets/"):
		return a.apart
	case a.main:
		return a.w.etcd
	}
	return a.w.storeOf(key)
}

// writes has it store an object.
func (a *apiserver) writes(key string) error {
	sealed, err := a.transformer(key).TransformToStorage(context.Background(), []byte(`{"metadata":{}}`), value.DefaultContext(key))
	if err == nil {
		a.storeOf(key).Store(key, sealed)
	}
	return err
}

func (a *apiserver) read(r *pb.RangeRequest) []*mvccpb.KeyValue {
	r.Serializable = true // tells it from the tool
	store := a.storeOf(string(r.Key))
	if store == nil {
		return nil // the script does without
	}
	found, err := store.Range(context.Background(), r)
	require.NoError(a.w.t, err)
	return found.Kvs
}

// list opens all objects, as an apiserver does. A token is the last key.
func (a *apiserver) list(w http.ResponseWriter, r *http.Request, prefix string) {
	from := prefix
	if token := r.URL.Query().Get("continue"); token != "" {
		from = token + "\x00"
	}
	limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
	var list metav1.PartialObjectMetadataList
	found := a.read(&pb.RangeRequest{Key: []byte(from), RangeEnd: []byte(prefix[:len(prefix)-1] + "0")})
	if rest := int64(len(found) - limit); limit > 0 && rest > 0 {
		found = found[:limit]
		list.RemainingItemCount, list.Continue = &rest, string(found[limit-1].Key)
	}
	for _, kv := range found {
		if _, _, err := a.open(kv); err != nil {
			a.unread(w, err)
			return
		}
		list.Items = append(list.Items, a.withOwners(kv))
	}
	answer(w, http.StatusOK, list)
}

func metadataOf(kv *mvccpb.KeyValue) metav1.PartialObjectMetadata {
	parts := strings.Split(string(kv.Key), "/")
	if strings.HasPrefix(string(kv.Key), openShiftTokens) {
		parts[len(parts)-2] = ""
	}
	return metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: parts[len(parts)-2], Name: parts[len(parts)-1], ResourceVersion: fmt.Sprint(kv.ModRevision)}}
}

// withOwners is the metadata of an object that opens, with who owns it.
func (a *apiserver) withOwners(kv *mvccpb.KeyValue) metav1.PartialObjectMetadata {
	is, stored := metadataOf(kv), metav1.PartialObjectMetadata{}
	plaintext, _, _ := a.open(kv)
	_ = json.Unmarshal(plaintext, &stored) // of anything else nothing is known
	is.OwnerReferences = stored.OwnerReferences
	return is
}

func (a *apiserver) transformer(key string) value.Transformer {
	return a.inUse.TransformerForResource(resourceOf(key))
}

// open gives what is stored, which is JSON here.
func (a *apiserver) open(kv *mvccpb.KeyValue) (plaintext []byte, stale bool, err error) {
	plaintext, stale, err = a.transformer(string(kv.Key)).TransformFromStorage(context.Background(), kv.Value, value.DefaultContext(kv.Key))
	if err == nil && !json.Valid(plaintext) {
		err = errUndecoded
	}
	return plaintext, stale, err
}

// errUndecoded is what kube-apiserver's last decoder says of garbage (storage_codec.go NewStorageCodec).
var errUndecoded = base64.CorruptInputError(0)

// unread answers that what etcd has is not to be read. What the decoder says is handed on without a
// reason (store.go Get, InterpretGetError, ErrorToAPIStatus), and wrapped with the feature gate
// (corruptObjErrorInterpretingDecoder).
func (a *apiserver) unread(w http.ResponseWriter, err error) {
	if errors.Is(err, errUndecoded) && !a.discards {
		refuse(w, http.StatusInternalServerError, metav1.StatusReasonUnknown, err.Error())
		return
	}
	refuse(w, http.StatusInternalServerError, metav1.StatusReasonInternalError, "Internal error occurred: "+err.Error())
}

// remembered is an object in a watch cache.
type remembered struct {
	object   string
	revision int64
	sealed   []byte // as it stores it under the DEK that it has now
}

// remembers has the watch cache have an object as it is in etcd now.
func (a *apiserver) remembers(key, object string) {
	if a.memory == nil {
		a.memory = map[string]remembered{}
	}
	sealed, err := a.transformer(key).TransformToStorage(context.Background(), []byte(object), value.DefaultContext(key))
	require.NoError(a.w.t, err)
	a.memory[key] = remembered{object, a.read(&pb.RangeRequest{Key: []byte(key)})[0].ModRevision, sealed}
}

// step changes an object in steps (RFC 6902), as far as atrest does: it changes nothing in the end, and
// looks into etcd then. It warns of a field that there is not, once it has changed the version that it
// has in memory, current or not.
func (a *apiserver) step(w http.ResponseWriter, r *http.Request, kv *mvccpb.KeyValue) {
	var steps []struct{ Op, Path, Value any }
	require.NoError(a.w.t, json.NewDecoder(r.Body).Decode(&steps))
	_, _, err := a.open(kv)
	is := kv.ModRevision
	if m, had := a.memory[string(kv.Key)]; had {
		is = m.revision
	} else if err != nil {
		is = 0
	}
	if steps[0].Op == "test" && steps[0].Value == fmt.Sprint(is) && r.URL.Query().Get("fieldValidation") == "Warn" {
		w.Header().Set("Warning", `299 - "unknown field \"metadata.atrestAsks\""`)
	}
	if err != nil {
		a.unread(w, err)
		return
	}
	answer(w, http.StatusOK, metadataOf(kv))
}

// patch stores what is changed or stale.
func (a *apiserver) patch(w http.ResponseWriter, r *http.Request, kv *mvccpb.KeyValue) {
	a.patches++
	if r.Header.Get("Content-Type") == string(types.JSONPatchType) {
		if a.busy > 0 {
			a.busy--
			refuse(w, http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, "too many requests")
			return
		}
		a.step(w, r, kv)
		return
	}
	var patch, object map[string]any
	require.NoError(a.w.t, json.NewDecoder(r.Body).Decode(&patch))
	if key := a.updates; key != "" {
		a.updates = ""
		a.storeOf(key).Store(key, a.read(&pb.RangeRequest{Key: []byte(key)})[0].Value)
		kv = a.read(&pb.RangeRequest{Key: kv.Key})[0]
	}
	meta, _ := patch["metadata"].(map[string]any)
	plaintext, stale, err := a.open(kv)
	if m, is := a.memory[string(kv.Key)]; is && m.revision == kv.ModRevision && err != nil {
		if a.refuses != "" && a.refused(string(kv.Key)) { // store.go GuaranteedUpdate: it reads etcd anew after any refusal
			a.unread(w, err)
			return
		}
		plaintext, stale, err = []byte(m.object), true, nil
	}
	if err != nil { // as kube-apiserver answers when it reads what it is to change
		a.unread(w, err)
		return
	}
	if version, ok := meta["resourceVersion"]; ok && version != fmt.Sprint(kv.ModRevision) {
		refuse(w, http.StatusConflict, metav1.StatusReasonConflict, "was updated")
		return
	}
	delete(meta, "resourceVersion")
	if a.refuses != "" && a.refused(string(kv.Key)) {
		refuse(w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "a webhook does not allow it")
		return
	}
	require.NoError(a.w.t, json.Unmarshal(plaintext, &object))
	if merge(object, patch) || stale {
		a.store(w, string(kv.Key), object)
		return
	}
	answer(w, http.StatusOK, metadataOf(kv))
}

// store writes an object under its key.
func (a *apiserver) store(w http.ResponseWriter, key string, object map[string]any) {
	plaintext, err := json.Marshal(object)
	require.NoError(a.w.t, err)
	sealed, err := a.transformer(key).TransformToStorage(context.Background(), plaintext, value.DefaultContext(key))
	if m, is := a.memory[key]; is && err != nil && a.stock {
		sealed, err = m.sealed, nil // kube-apiserver writes on with the DEK that it has, while the key_id stays
	}
	if err != nil {
		refuse(w, http.StatusInternalServerError, metav1.StatusReasonInternalError, "Internal error occurred: "+err.Error())
		return
	}
	a.storeOf(key).Store(key, sealed)
	answer(w, http.StatusOK, metadataOf(a.read(&pb.RangeRequest{Key: []byte(key)})[0]))
}

// merge is RFC 7386 without deletions; it reports whether anything changed.
func merge(into, patch map[string]any) (changed bool) {
	for name, v := range patch {
		below, isMap := v.(map[string]any)
		if isMap && len(below) == 0 {
			continue
		}
		if there, ok := into[name].(map[string]any); ok && isMap {
			changed = merge(there, below) || changed
			continue
		}
		changed = changed || !reflect.DeepEqual(into[name], v)
		into[name] = v
	}
	return changed
}

func refuse(w http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	answer(w, code, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Code: int32(code), Reason: reason, Message: message})
}

func answer(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body)
}

// The fake of the scripts patches as it should.
func TestMerge(t *testing.T) {
	object := map[string]any{"metadata": map[string]any{"name": "a"}}
	require.False(t, merge(object, map[string]any{"metadata": map[string]any{}}))
	require.True(t, merge(object, map[string]any{"metadata": map[string]any{"annotations": map[string]any{"b": "c"}}}))
	require.Equal(t, map[string]any{"metadata": map[string]any{"name": "a", "annotations": map[string]any{"b": "c"}}}, object)
	require.False(t, merge(object, map[string]any{"metadata": map[string]any{"annotations": map[string]any{"b": "c"}}}))
}
