package migrate_test

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kube-atrest/atrest/operate/migrate"
)

// inMemory is an apiserver that has one object in its watch cache, or not, and reads none from
// etcd until it was changed. Each answer to a patch may be another one.
type inMemory struct {
	t         *testing.T
	cached    bool
	stored    bool
	patches   []string // what they change
	answers   map[int]func(http.ResponseWriter, *http.Request)
	annotated bool
}

func (m *inMemory) serve(w http.ResponseWriter, r *http.Request) bool {
	object := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db", ResourceVersion: "1"}}
	if m.stored {
		object.ResourceVersion = "2"
	}
	if m.annotated {
		object.Annotations = map[string]string{"atrest/stored-from-memory": "true"}
	}
	switch {
	case r.Method == http.MethodGet && r.URL.Query().Has("limit"):
		answer(w, 200, metav1.PartialObjectMetadataList{Items: []metav1.PartialObjectMetadata{object}})
		return true
	case r.Method == http.MethodPatch:
		var body struct {
			Metadata struct {
				ResourceVersion string             `json:"resourceVersion"`
				Annotations     map[string]*string `json:"annotations"`
			} `json:"metadata"`
		}
		require.NoError(m.t, json.NewDecoder(r.Body).Decode(&body))
		what := "nothing"
		if value, changed := body.Metadata.Annotations["atrest/stored-from-memory"]; changed && value == nil {
			what = "takes the annotation"
		} else if changed {
			what = "annotates"
		}
		m.patches = append(m.patches, what+" at "+body.Metadata.ResourceVersion)
		if other := m.answers[len(m.patches)]; other != nil {
			other(w, r)
			return true
		}
		if what == "annotates" && m.cached {
			m.stored, m.annotated, object.ResourceVersion = true, true, "2"
		}
		if m.stored && what == "takes the annotation" {
			m.annotated, object.ResourceVersion, object.Annotations = false, "3", nil
		}
	}
	if !m.stored {
		refuse(500, metav1.StatusReasonInternalError)(w, r)
		return true
	}
	answer(w, 200, object)
	return true
}

func (m *inMemory) rewrite() (migrate.Counts, error) {
	a := newAPI(m.t, 0)
	a.fault = m.serve
	at, err := rewrite(m.t, a, migrate.Checkpoint{}, migrate.Options{})
	return at.Counts, err
}

func TestWhatOnlyAWatchCacheHasIsStoredAgain(t *testing.T) {
	m := &inMemory{t: t, cached: true}
	counts, err := m.rewrite()
	require.NoError(t, err)
	require.Equal(t, migrate.Counts{Seen: 1, Rewritten: 1, Retries: 4}, counts)
	require.Equal(t, []string{"nothing at 1", "annotates at 1", "takes the annotation at "}, slices.Compact(m.patches))
	require.False(t, m.annotated)
}

func TestWhatNobodyHasInMemoryFails(t *testing.T) {
	m := &inMemory{t: t}
	counts, err := m.rewrite()
	require.ErrorContains(t, err, "because")
	require.Equal(t, migrate.Counts{Seen: 1, Failed: 1, Retries: 4}, counts)
}

// Its answer is lost, so that it is sent again, and finds that the version is another one.
func TestAnAnnotationOfALostAnswerIsRemoved(t *testing.T) {
	m := &inMemory{t: t, cached: true}
	m.answers = map[int]func(http.ResponseWriter, *http.Request){6: func(w http.ResponseWriter, r *http.Request) {
		m.stored, m.annotated = true, true
		refuse(409, metav1.StatusReasonConflict)(w, r)
	}}
	counts, err := m.rewrite()
	require.NoError(t, err)
	require.Equal(t, migrate.Counts{Seen: 1, Rewritten: 1, Retries: 4}, counts)
	require.False(t, m.annotated)
}

func TestAnAnnotationThatStaysIsTold(t *testing.T) {
	m := &inMemory{t: t, cached: true, answers: map[int]func(http.ResponseWriter, *http.Request){7: refuse(403, metav1.StatusReasonForbidden)}}
	_, err := m.rewrite()
	require.ErrorContains(t, err, "has the annotation atrest/stored-from-memory still")
}

// An apiserver that reads the object fails for another reason, such as a webhook.
func TestNothingIsAnnotatedThatEtcdHas(t *testing.T) {
	m := &inMemory{t: t, stored: true, answers: map[int]func(http.ResponseWriter, *http.Request){}}
	for n := range 5 {
		m.answers[n+1] = refuse(500, metav1.StatusReasonInternalError)
	}
	_, err := m.rewrite()
	require.ErrorContains(t, err, "because")
	require.Equal(t, []string{"nothing at 2"}, slices.Compact(m.patches))
}

// The patch that takes the annotation meets somebody else's.
func TestAnAnnotationIsTakenThoughSomebodyUpdatesTheObject(t *testing.T) {
	m := &inMemory{t: t, cached: true, answers: map[int]func(http.ResponseWriter, *http.Request){7: refuse(409, metav1.StatusReasonConflict)}}
	_, err := m.rewrite()
	require.NoError(t, err)
	require.False(t, m.annotated)
}

func TestTheNextMigrationTakesAnAnnotationThatIsLeft(t *testing.T) {
	m := &inMemory{t: t, cached: true, stored: true, annotated: true}
	counts, err := m.rewrite()
	require.NoError(t, err)
	require.Equal(t, migrate.Counts{Seen: 1, Rewritten: 1}, counts)
	require.False(t, m.annotated)
}

func TestAnInterruptedMigrationTakesItsAnnotation(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	m := &inMemory{t: t, cached: true}
	m.answers = map[int]func(http.ResponseWriter, *http.Request){6: func(_ http.ResponseWriter, r *http.Request) {
		m.stored, m.annotated = true, true // the apiserver goes on
		cancel()
		<-r.Context().Done()
	}}
	a := newAPI(t, 0)
	a.fault = m.serve
	_, err := a.cluster(newClock()).Rewrite(ctx, secrets, migrate.Checkpoint{}, migrate.Options{})
	require.ErrorIs(t, err, context.Canceled)
	require.False(t, m.annotated)
}

// As those do before Kubernetes 1.34: a list with a limit, or what comes after its first page.
func TestAListThatOneObjectKeepsFromEtcdIsRescued(t *testing.T) {
	m := &inMemory{t: t, cached: true}
	a := newAPI(t, 0)
	a.fault = func(w http.ResponseWriter, r *http.Request) bool {
		switch query := r.URL.Query(); {
		case query.Has("limit") && !m.stored:
			refuse(500, metav1.StatusReasonInternalError)(w, r)
			return true
		case query.Get("resourceVersion") == "0":
			query.Set("limit", "0")
			r.URL.RawQuery = query.Encode()
		}
		return m.serve(w, r)
	}
	at, err := rewrite(t, a, migrate.Checkpoint{}, migrate.Options{PageSize: 1})
	require.NoError(t, err)
	require.Equal(t, migrate.Counts{Seen: 1, Rewritten: 1, Retries: 4}, at.Counts)
	require.False(t, m.annotated)

	m.stored, m.cached = false, false
	_, err = rewrite(t, a, migrate.Checkpoint{}, migrate.Options{PageSize: 1})
	require.ErrorIs(t, err, migrate.ErrUnreadable)
}
