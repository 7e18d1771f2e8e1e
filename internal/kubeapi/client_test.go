package kubeapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/kube-atrest/atrest/internal/kubeapi"
)

// serve is a client of a server that answers so.
func serve(t *testing.T, answer http.HandlerFunc) *kubeapi.Client {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	c, err := kubeapi.New(&rest.Config{Host: server.URL + "/behind", BearerToken: "token"}, time.Minute)
	require.NoError(t, err)
	return c
}

func get(path ...string) kubeapi.Request { return kubeapi.Request{Method: http.MethodGet, Path: path} }

func TestARequestIsSentAsItIs(t *testing.T) {
	var seen *http.Request
	var sent map[string]any
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		seen = r
		_ = json.NewDecoder(r.Body).Decode(&sent)
		_, _ = io.WriteString(w, `{"metadata": {"name": "n"}}`)
	})
	var got metav1.PartialObjectMetadata
	require.NoError(t, c.Ask(t.Context(), kubeapi.Request{Method: http.MethodPatch, Path: []string{"api", "v1", "a b%2f"}, Accept: "application/x",
		Query: url.Values{"limit": {"5"}}, Body: map[string]string{"a": "b"}, Patch: types.MergePatchType}, &got))
	require.Equal(t, "n", got.Name)
	require.Equal(t, "PATCH /behind/api/v1/a%20b%252f?limit=5", seen.Method+" "+seen.RequestURI)
	require.Equal(t, "Bearer token", seen.Header.Get("Authorization"))
	require.Equal(t, "application/x", seen.Header.Get("Accept"))
	require.Equal(t, "application/merge-patch+json", seen.Header.Get("Content-Type"))
	require.Equal(t, map[string]any{"a": "b"}, sent)

	require.NoError(t, c.Ask(t.Context(), kubeapi.Request{Method: http.MethodGet, Path: []string{"api"}, Query: url.Values{"a": {"1", "2"}}}, nil))
	require.Equal(t, url.Values{"a": {"1", "2"}}, seen.URL.Query())
	require.ErrorContains(t, c.Ask(t.Context(), kubeapi.Request{Method: http.MethodPost, Path: []string{"api"}, Body: func() {}}, nil), "unsupported type")
	require.NoError(t, c.Ask(t.Context(), kubeapi.Request{Method: http.MethodPost, Path: []string{"api"}, Body: 1}, nil))
	require.Equal(t, "application/json", seen.Header.Get("Accept"))
	require.Equal(t, "application/json", seen.Header.Get("Content-Type"))
}

func TestARefusalIsTheApiserversAndIsNotAskedForAgain(t *testing.T) {
	asked := 0
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked++
		w.Header().Set("Retry-After", "1")
		if r.URL.Path == "/behind/text" {
			http.Error(w, "slow down", http.StatusTooManyRequests)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusServiceUnavailable)
		_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Code: 503,
			Message: "because", Reason: metav1.StatusReasonServiceUnavailable, Details: &metav1.StatusDetails{RetryAfterSeconds: 7}})
	})
	err := c.Ask(t.Context(), get("status"), nil)
	require.True(t, apierrors.IsServiceUnavailable(err))
	require.ErrorContains(t, err, "because")
	seconds, _ := apierrors.SuggestsClientDelay(err)
	require.Equal(t, 7, seconds)

	err = c.Ask(t.Context(), get("text"), nil)
	require.True(t, apierrors.IsTooManyRequests(err), "%v", err)
	seconds, _ = apierrors.SuggestsClientDelay(err)
	require.Equal(t, 1, seconds)
	require.Equal(t, 2, asked)
}

func TestWhatIsNoAnswerIsNoRefusal(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/behind/garbage":
			_, _ = io.WriteString(w, "<html>")
		case "/behind/long":
			for err := error(nil); err == nil; {
				_, err = w.Write(make([]byte, 1<<20))
			}
		case "/behind/hangs":
			<-r.Context().Done()
		case "/behind/cut":
			w.Header().Set("Content-Length", "100")
		}
	})
	for path, says := range map[string]string{"garbage": "is not what an apiserver says", "long": "answer to GET /behind/long: the answer is over 268435456 bytes long: ask for smaller pages", "cut": "unexpected EOF"} {
		var refused apierrors.APIStatus
		err := c.Ask(t.Context(), get(path), &struct{}{})
		require.ErrorContains(t, err, says)
		require.False(t, errors.As(err, &refused), path)
	}
	c.Timeout = 10 * time.Millisecond
	require.ErrorIs(t, c.Ask(t.Context(), get("hangs"), nil), context.DeadlineExceeded)
}

// An apiserver that has no protobuf of it answers in JSON.
func TestAMessageIsReadInWhateverItComes(t *testing.T) {
	object := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "n", ResourceVersion: "7"}}
	raw, err := object.Marshal()
	require.NoError(t, err)
	envelope, err := (&runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"}, Raw: raw}).Marshal()
	require.NoError(t, err)
	for path, says := range map[string]string{"protobuf": "", "json": "", "naked": "is not what an apiserver says", "broken": "is not what an apiserver says"} {
		c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1")
			switch path {
			case "protobuf":
				_, _ = w.Write(append([]byte("k8s\x00"), envelope...))
			case "naked":
				_, _ = w.Write(raw)
			case "broken":
				_, _ = w.Write(append([]byte("k8s\x00"), envelope[:len(envelope)-3]...))
			default:
				w.Header().Set("Content-Type", "application/json")
				_ = json.NewEncoder(w).Encode(object)
			}
		})
		var got metav1.PartialObjectMetadata
		err := c.Ask(t.Context(), get("object"), &got)
		if says != "" {
			require.ErrorContains(t, err, says, path)
			continue
		}
		require.NoError(t, err, path)
		require.Equal(t, object.ObjectMeta, got.ObjectMeta, path)
	}
}

func TestTheShorterTimeoutHolds(t *testing.T) {
	for given, want := range map[time.Duration]time.Duration{0: time.Minute, time.Second: time.Second, time.Hour: time.Minute} {
		c, err := kubeapi.New(&rest.Config{Host: "a", Timeout: given}, time.Minute)
		require.NoError(t, err)
		require.Equal(t, want, c.Timeout)
	}
}

func TestWhatIsNoObjectIsReadAsItComes(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Method+" "+r.URL.Path) })
	resp, err := c.Open(t.Context(), http.MethodPost, "/metrics")
	require.NoError(t, err)
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, "POST /behind/metrics", string(data))
	_, err = c.Open(t.Context(), "no method", "/metrics")
	require.ErrorContains(t, err, "invalid method")

	for most, whole := range map[int64]bool{3: true, 2: false} {
		data, err := io.ReadAll(kubeapi.Bound(io.NopCloser(&oneByOne{left: 3}), most))
		require.Equal(t, whole, err == nil, "%d of 3 bytes: %q", most, data)
	}
}

type oneByOne struct{ left int }

func (o *oneByOne) Read(p []byte) (int, error) {
	if o.left == 0 {
		return 0, io.EOF
	}
	o.left--
	return copy(p, "x"), nil
}

func TestDiscoveryEndsWithItsContext(t *testing.T) {
	asked := make(chan struct{}, 1)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-r.Context().Done()
	}))
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	c, err := kubeapi.Discovery(ctx, &rest.Config{Host: server.URL})
	require.NoError(t, err)
	go func() { <-asked; cancel() }()
	_, err = c.ServerPreferredResources()
	require.ErrorIs(t, err, context.Canceled)
}

// cancelling is a transport that is told of each request that is given up.
type cancelling struct {
	http.RoundTripper
	given chan struct{}
}

func (c cancelling) CancelRequest(*http.Request) { close(c.given) }

// A request that takes too long is given up by the transport itself: where client-go does
// not find that, it says so in the midst of what the command prints.
func TestARequestThatTakesTooLongIsGivenUpByTheTransport(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	t.Cleanup(server.Close)
	given := make(chan struct{})
	config := &rest.Config{Host: server.URL, Timeout: 50 * time.Millisecond, BearerToken: "token"}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return cancelling{next, given} })
	c, err := kubeapi.Discovery(t.Context(), config)
	require.NoError(t, err)
	_, err = c.ServerVersion()
	require.Error(t, err)
	select {
	case <-given:
	case <-time.After(10 * time.Second):
		require.Fail(t, "nobody gave it up")
	}
}
