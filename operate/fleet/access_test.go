package fleet_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/operate/fleet"
)

// deciding is an apiserver that decides with a status, by the spec of the question.
func deciding(t *testing.T, decide func(spec string) string) *server {
	s := newServer(t, nil)
	s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review map[string]any
		require.Equal(t, "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews", r.Method+" "+r.URL.Path)
		require.NoError(t, json.NewDecoder(r.Body).Decode(&review))
		require.Equal(t, []any{"authorization.k8s.io/v1", "SelfSubjectAccessReview"}, []any{review["apiVersion"], review["kind"]})
		spec, err := json.Marshal(review["spec"])
		require.NoError(t, err)
		_, _ = w.Write([]byte(decide(string(spec))))
	})
	return s
}

const (
	specOfMetrics = `{"nonResourceAttributes":{"path":"/metrics","verb":"get"}}`
	specOfSecrets = `{"resourceAttributes":{"group":"","namespace":"kube-system","resource":"secrets","verb":"patch"}}`
	specOfWidgets = `{"resourceAttributes":{"group":"example.com","namespace":"","resource":"widgets","verb":"list"}}`
)

var needs = []fleet.Need{
	{Verb: "get", Path: "/metrics"},
	{Verb: "patch", Resource: "secrets", Namespace: "kube-system"},
	{Verb: "list", Group: "example.com", Resource: "widgets"},
}

const allowed = `{"status":{"allowed":true}}`

func TestWhatIsDeniedIsToldWithTheRemedy(t *testing.T) {
	one := deciding(t, func(spec string) string {
		return map[string]string{specOfMetrics: `{"status":{"allowed":false,"reason":"no\nrule"}}`, specOfSecrets: allowed, specOfWidgets: `{"status":{"allowed":true,"denied":true}}`}[spec]
	})
	other := deciding(t, func(spec string) string {
		return map[string]string{specOfMetrics: `{}`, specOfSecrets: `{"status":{"evaluationError":"webhook is away"}}`, specOfWidgets: allowed}[spec]
	})
	f, _ := newFleet(t, one, other)
	denied, err := f.Denied(t.Context(), needs)
	require.NoError(t, err)
	require.Equal(t, []string{
		`through apiserver a, b the user may not get /metrics (no rule): give it a ClusterRole with nonResourceURLs ["/metrics"], verbs ["get"]`,
		`through apiserver b the user may not patch secrets in namespace kube-system (webhook is away): give it a Role in namespace kube-system with apiGroups [""], resources ["secrets"], verbs ["patch"]`,
		`through apiserver a the user may not list widgets.example.com: give it a ClusterRole with apiGroups ["example.com"], resources ["widgets"], verbs ["list"]`,
	}, denied)
}

func TestWhereAllIsAllowedNothingIsDenied(t *testing.T) {
	f, _ := newFleet(t, deciding(t, func(string) string { return allowed }))
	denied, err := f.Denied(t.Context(), needs)
	require.NoError(t, err)
	require.Empty(t, denied)
}

func TestOneThatDoesNotSayWhatIsAllowedIsAnError(t *testing.T) {
	mute, well := newServer(t, nil), deciding(t, func(string) string { return `{}` })
	mute.refuses = http.StatusNotFound
	f, _ := newFleet(t, mute, well)
	denied, err := f.Denied(t.Context(), needs)
	require.ErrorContains(t, err, "what the user may do through apiserver a is not known: because")
	require.Len(t, denied, 3, "what the other one denies")
	require.Contains(t, denied[0], "through apiserver b the")
	mute.Close()
	_, err = f.Denied(t.Context(), needs)
	require.ErrorContains(t, err, "is it up, and can it be reached from here?")
}
