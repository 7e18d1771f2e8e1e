package migrate_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/storage"

	"github.com/kube-atrest/atrest/operate/migrate"
)

// etcd was restored from a backup while a run was interrupted: the token of its checkpoint
// is of a revision that etcd does not have yet. kube-apiserver v1.36 answers with
// storage.NewTooLargeResourceVersionError (etcd3/store.go, GetList), older ones with 500.
func TestATokenOfARevisionToComeIsNotTrusted(t *testing.T) {
	for name, refusal := range map[string]func(w http.ResponseWriter, r *http.Request){
		"v1.36": func(w http.ResponseWriter, _ *http.Request) {
			status := storage.NewTooLargeResourceVersionError(5000, 1100, 0).(interface{ Status() metav1.Status }).Status()
			status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"} // as a server writes it
			answer(w, int(status.Code), status)
		},
		"older": refuse(500, metav1.StatusReasonInternalError),
	} {
		t.Run(name, func(t *testing.T) {
			a := newAPI(t, 25)
			a.fault = func(w http.ResponseWriter, r *http.Request) bool {
				if r.URL.Query().Get("continue") != "5000@ns-0/s-003" {
					return false
				}
				refusal(w, r)
				return true
			}
			from := migrate.Checkpoint{Resource: secrets, Goal: "g", Continue: "5000@ns-0/s-003", Last: migrate.Object{Namespace: "ns-0", Name: "s-003"}}
			at, err := rewrite(t, a, from, migrate.Options{Goal: "g"})
			require.NoError(t, err)
			require.EqualValues(t, 25, at.Counts.Rewritten, "also those before the last one of another etcd")
		})
	}
}
