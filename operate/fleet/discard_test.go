package fleet_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kube-atrest/atrest/operate/fleet"
)

func TestWhatIsUnreadable(t *testing.T) {
	ready := map[string]reply{"/readyz": {200, "ok"}}
	one, other := newServer(t, ready), newServer(t, ready)
	f, _ := newFleet(t, one, other)
	const object = "/api/v1/namespaces/shop/secrets/db"
	one.store(object, nil)
	other.store(object, nil)
	unreadable := func() error { return f.Unreadable(t.Context(), secretsV1, shopDB) }
	require.EqualError(t, unreadable(), "apiserver a reads secrets shop/db: read it out of that one or have it rewritten, and do not restart that one before")
	one.refuses, one.reason = http.StatusInternalServerError, metav1.StatusReasonInternalError
	require.EqualError(t, unreadable(), "apiserver b reads secrets shop/db: read it out of that one or have it rewritten, and do not restart that one before", "all have to say so")
	one.reason = ""
	require.ErrorContains(t, unreadable(), "apiserver b reads", "whatever another one does")
	one.reason = metav1.StatusReasonInternalError
	other.refuses, other.reason = http.StatusInternalServerError, "StorageReadError"
	require.NoError(t, unreadable())
	for code, reasons := range map[int][]metav1.StatusReason{
		http.StatusInternalServerError: {metav1.StatusReasonServerTimeout, ""}, // etcd did not answer, or has no leader
		http.StatusServiceUnavailable:  {metav1.StatusReasonServiceUnavailable},
		http.StatusGatewayTimeout:      {metav1.StatusReasonTimeout},
		http.StatusTooManyRequests:     {metav1.StatusReasonTooManyRequests},
		http.StatusNotFound:            {metav1.StatusReasonNotFound},
		http.StatusForbidden:           {metav1.StatusReasonForbidden},
	} {
		for _, reason := range reasons {
			other.refuses, other.reason = code, reason
			require.ErrorContains(t, unreadable(), "whether apiserver b reads secrets shop/db is not known: ", reason)
		}
	}
	other.Close()
	require.ErrorContains(t, unreadable(), "whether apiserver b reads secrets shop/db is not known: ")
}

// An answer of somebody else than the storage, and one of an apiserver that is not well, say
// nothing of the object.
func TestWhatFailsForAnotherReasonIsNotUnreadable(t *testing.T) {
	for name, c := range map[string]struct {
		body  string
		ready reply
		want  string
	}{
		"it is not decrypted":     {`{"kind":"Status","apiVersion":"v1","status":"Failure","code":500,"reason":"InternalError","message":"no matching key"}`, reply{200, "ok"}, ""},
		"as it has not listed":    {`{"kind":"Status","apiVersion":"v1","status":"Failure","code":500,"reason":"InternalError","message":"no matching key"}`, reply{500, "[-]informer-sync failed\n[-]poststarthook/rbac/bootstrap-roles failed"}, ""},
		"etcd is away":            {`{"kind":"Status","apiVersion":"v1","status":"Failure","code":500,"reason":"InternalError"}`, reply{500, "[-]informer-sync failed\n[-]etcd failed"}, "etcd failed"},
		"it says no more":         {`{"kind":"Status","apiVersion":"v1","status":"Failure","code":500,"reason":"InternalError"}`, reply{503, ""}, "503 Service Unavailable"},
		"its webhook is away":     {`{"kind":"Status","apiVersion":"v1","status":"Failure","code":500,"reason":"InternalError","message":"conversion webhook for example.com/v1 failed"}`, reply{200, "ok"}, "conversion webhook"},
		"its plugin says so":      {`{"kind":"Status","apiVersion":"v1","status":"Failure","code":500,"reason":"InternalError","message":"failed to decrypt DEK, error: rpc error: code = NotFound desc = no key 7"}`, reply{200, "ok"}, ""},
		"its plugin is away":      {`{"kind":"Status","apiVersion":"v1","status":"Failure","code":500,"reason":"InternalError","message":"failed to decrypt DEK, error: rpc error: code = Unavailable desc = code = NotFound"}`, reply{200, "ok"}, "code = Unavailable"},
		"one of two is away":      {`{"kind":"Status","apiVersion":"v1","status":"Failure","code":500,"reason":"InternalError","message":"rpc error: code = InvalidArgument desc = no, rpc error: code = Unknown desc = no"}`, reply{200, "ok"}, "code = Unknown"},
		"its plugin is slow":      {`{"kind":"Status","apiVersion":"v1","status":"Failure","code":500,"reason":"InternalError","message":"failed to decrypt DEK, error: context deadline exceeded"}`, reply{200, "ok"}, "deadline"},
		"a proxy says so":         {`bad luck`, reply{200, "ok"}, "bad luck"},
		"it opens to no object":   {`{"kind":"Status","apiVersion":"v1","status":"Failure","code":500,"message":"illegal base64 data at input byte 0"}`, reply{200, "ok"}, ""},
		"nor to what is JSON":     {`{"kind":"Status","apiVersion":"v1","status":"Failure","code":500,"message":"couldn't get version/kind; json parse error: invalid character 'x' looking for beginning of value"}`, reply{200, "ok"}, ""},
		"nor to YAML":             {`{"kind":"Status","apiVersion":"v1","status":"Failure","code":500,"message":"yaml: control characters are not allowed"}`, reply{200, "ok"}, ""},
		"nor to what has a kind":  {`{"kind":"Status","apiVersion":"v1","status":"Failure","code":500,"message":"Object 'Kind' is missing in '{}'"}`, reply{200, "ok"}, ""},
		"what it sent is no JSON": {`{"kind":"Status","apiVersion":"v1","status":"Failure","code":400,"message":"yaml: control characters are not allowed"}`, reply{200, "ok"}, "yaml"},
		"a webhook's is no JSON":  {`{"kind":"Status","apiVersion":"v1","status":"Failure","code":500,"message":"failed calling webhook: yaml: control characters are not allowed"}`, reply{200, "ok"}, "webhook"},
		"etcd changes its leader": {`{"kind":"Status","apiVersion":"v1","status":"Failure","code":500,"message":"etcdserver: leader changed"}`, reply{200, "ok"}, "leader changed"},
	} {
		s := newServer(t, nil)
		s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/readyz" {
				w.WriteHeader(c.ready.code)
				_, _ = w.Write([]byte(c.ready.text))
				return
			}
			w.Header().Set("Content-Type", map[bool]string{true: "application/json", false: "text/plain"}[c.body[0] == '{'])
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = w.Write([]byte(c.body))
		})
		f, _ := newFleet(t, s)
		err := f.Unreadable(t.Context(), secretsV1, shopDB)
		if c.want == "" {
			require.NoError(t, err, name)
			continue
		}
		require.ErrorContains(t, err, "is not known: ", name)
		require.ErrorContains(t, err, c.want, name)
	}
}

var shopDB = fleet.Written{Resource: secrets, Namespace: "shop", Name: "db", Version: 7}

// What an apiserver has in memory alone a patch by name stores again, at any time. It changes
// something, or the apiserver would look into etcd.
func TestWhatIsInMemoryIsSaved(t *testing.T) {
	status := func(message string) string {
		return `{"kind":"Status","apiVersion":"v1","status":"Failure","code":500,"reason":"InternalError","message":"Internal error occurred: ` + message + `"}`
	}
	gone := status("no matching key")
	const cached = `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"db","ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"p","uid":"1"}]}}`
	const notFound = `{"kind":"Status","apiVersion":"v1","status":"Failure","code":404,"reason":"NotFound"}`
	const saved = "apiserver a had secrets shop/db in memory alone, and stored it again: it is not lost any more"
	type step struct {
		code int
		body string
	}
	for name, c := range map[string]struct {
		get           string // from etcd
		cached        step   // what a get from memory is answered
		first, second step
		want          string
		saved         bool
		patches       int
		warns         bool // that it changed the version that etcd has
	}{
		"its cache has it":                        {gone, step{200, cached}, step{200, cached}, step{200, cached}, saved, true, 2, false},
		"it has it, and its cache is not ready":   {gone, step{500, gone}, step{200, cached}, step{200, cached}, saved, true, 2, false},
		"it has not":                              {gone, step{404, notFound}, step{500, gone}, step{}, "", false, 1, false},
		"it has not, and has the feature gate":    {status("StorageError: corrupt object, Code: 7, Key: /secrets/shop/db, ResourceVersion: 0, AdditionalErrorMsg: no matching key"), step{500, gone}, step{500, gone}, step{}, "", false, 1, false},
		"it has it, and admission refuses":        {gone, step{500, gone}, step{500, gone}, step{}, "has it in memory, and does not store it again, as admission does not allow that", false, 1, true},
		"its cache has it, and a webhook is away": {gone, step{200, cached}, step{500, gone}, step{}, "apiserver a does not read secrets shop/db from etcd, and has it in memory, which it does not store again: ", false, 1, false},
		"its cache does not answer":               {gone, step{429, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":429,"reason":"TooManyRequests"}`}, step{}, step{}, "whether it has that in memory is not known", false, 0, false},
		"it cannot encrypt":                       {gone, step{500, gone}, step{500, status("no key to encrypt with")}, step{}, "whether it has that in memory is not known: ", false, 1, false},
		"the user may not":                        {gone, step{500, gone}, step{403, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":403,"reason":"Forbidden"}`}, step{}, "the user needs the verb patch", false, 1, false},
		"somebody wrote it":                       {gone, step{500, gone}, step{409, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":409,"reason":"Conflict"}`}, step{}, "is not known", false, 1, false},
		"the annotation does not go":              {gone, step{500, gone}, step{200, cached}, step{500, gone}, "it is stored again, with the annotation atrest/stored-from-memory, which is to be removed", false, 2, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, nil)
			var patches []string
			s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				is := step{500, c.get}
				switch {
				case r.URL.Path == "/readyz":
					is = step{200, "ok"}
				case r.URL.Query().Get("resourceVersion") == "0":
					is = c.cached
				case r.Header.Get("Content-Type") == "application/json-patch+json":
					body, err := io.ReadAll(r.Body)
					require.NoError(t, err)
					require.JSONEq(t, `[{"op":"test","path":"/metadata/resourceVersion","value":"7"},{"op":"add","path":"/metadata/atrestAsks","value":true}]`, string(body))
					require.Equal(t, "Warn", r.URL.Query().Get("fieldValidation"))
					if c.warns {
						w.Header().Set("Warning", `299 - "unknown field \"metadata.atrestAsks\""`)
					}
				case r.Method == http.MethodPatch:
					body, err := io.ReadAll(r.Body)
					require.NoError(t, err)
					patches = append(patches, string(body))
					is = []step{c.first, c.second}[len(patches)-1]
				}
				w.WriteHeader(is.code)
				_, _ = w.Write([]byte(is.body))
			})
			f, _ := newFleet(t, s)
			err := f.Unreadable(t.Context(), secretsV1, shopDB)
			require.Len(t, patches, c.patches)
			if c.patches > 0 {
				require.Contains(t, patches[0], `"resourceVersion":"7"`)
			}
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.want)
			var reads *fleet.ReadError
			require.Equal(t, c.saved, errors.As(err, &reads))
			if c.saved {
				require.True(t, reads.Saved)
				require.Equal(t, "p", reads.Owners[0].Name)
				require.JSONEq(t, `{"metadata":{"annotations":{"atrest/stored-from-memory":null}}}`, patches[1])
			}
		})
	}
}

// Nobody is had to store what another one reads.
func TestNothingIsSavedThatAnotherApiserverReads(t *testing.T) {
	ready := map[string]reply{"/readyz": {200, "ok"}}
	one, other := newServer(t, ready), newServer(t, ready)
	const object = "/api/v1/namespaces/shop/secrets/db"
	other.store(object, nil)
	one.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		require.Equal(t, http.MethodGet, r.Method)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","code":500,"reason":"InternalError","message":"no matching key"}`))
	})
	f, _ := newFleet(t, one, other)
	require.ErrorContains(t, f.Unreadable(t.Context(), secretsV1, shopDB), "apiserver b reads secrets shop/db")
}

// An apiserver that takes no notice of the option is sent no deletion that it could do.
func TestOnlyOneThatKnowsTheOptionDeletes(t *testing.T) {
	servers := map[string]*server{"a": newServer(t, nil), "b": newServer(t, nil)}
	var sent []string
	knows := map[string]int{"a": http.StatusConflict, "b": http.StatusUnprocessableEntity}
	for name, s := range servers {
		s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var options metav1.DeleteOptions
			require.NoError(t, json.NewDecoder(r.Body).Decode(&options))
			require.True(t, *options.IgnoreStoreReadErrorWithClusterBreakingPotential)
			w.Header().Set("Content-Type", "application/json")
			if options.Preconditions == nil {
				sent = append(sent, name+" deletes "+r.URL.Path)
				_, _ = w.Write([]byte("{}"))
				return
			}
			require.Equal(t, []string{metav1.DryRunAll}, options.DryRun)
			reason := map[int]metav1.StatusReason{http.StatusConflict: metav1.StatusReasonConflict, http.StatusUnprocessableEntity: metav1.StatusReasonInvalid}[knows[name]]
			w.WriteHeader(knows[name])
			_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Reason: reason, Code: int32(knows[name]),
				Message: "ignoreStoreReadErrorWithClusterBreakingPotential: Invalid value: true: cannot be set together with .preconditions"})
		})
	}
	f, _ := newFleet(t, servers["a"], servers["b"])
	asked := 0
	by, err := f.Discard(t.Context(), secretsV1, "shop", "db", func() error { asked++; return nil })
	require.NoError(t, err)
	require.Equal(t, "b", by)
	require.Equal(t, []string{"b deletes /api/v1/namespaces/shop/secrets/db"}, sent)

	not := errors.New("not kept")
	_, err = f.Discard(t.Context(), secretsV1, "shop", "db", func() error { return not })
	require.ErrorIs(t, err, not)
	for _, code := range []int{http.StatusConflict, http.StatusInternalServerError, http.StatusNotFound, http.StatusOK} {
		knows["b"] = code
		_, err = f.Discard(t.Context(), secretsV1, "shop", "db", func() error { asked++; return nil })
		require.ErrorIs(t, err, fleet.ErrKeepsUnreadable, code)
	}
	require.Len(t, sent, 1)
	require.Equal(t, 1, asked)
}
