package fleet_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestAClusterIsKnownByItsNamespace(t *testing.T) {
	const path = "/api/v1/namespaces/kube-system"
	s := newServer(t, map[string]reply{path: {http.StatusOK, `{"metadata":{"uid":"5d9f"}}`}})
	f, _ := newFleet(t, s)
	uid, err := f.Cluster(t.Context(), "a")
	require.NoError(t, err)
	require.Equal(t, "5d9f", uid)

	s.answer(path, reply{http.StatusOK, `{}`})
	_, err = f.Cluster(t.Context(), "a")
	require.ErrorContains(t, err, "apiserver a has a namespace kube-system without a UID")
	_, err = f.Cluster(t.Context(), "z")
	require.ErrorContains(t, err, `asking for the cluster through apiserver "z": there is no such apiserver`)
}

func TestAnApiserverThatServesNoNamespacesHasNoCluster(t *testing.T) {
	s := newServer(t, nil)
	f, _ := newFleet(t, s)
	s.refuses, s.reason = http.StatusNotFound, metav1.StatusReasonNotFound
	uid, err := f.Cluster(t.Context(), "a")
	require.NoError(t, err)
	require.Empty(t, uid)
}

func TestWhyItIsNotKnownOfWhichClusterAnApiserverIs(t *testing.T) {
	s := newServer(t, nil)
	f, _ := newFleet(t, s)
	s.refuses, s.reason = http.StatusForbidden, metav1.StatusReasonForbidden
	_, err := f.Cluster(t.Context(), "a")
	require.ErrorContains(t, err, "which cluster apiserver a is of is not known: because: the user needs the verb get for the namespace kube-system")
	s.Close()
	_, err = f.Cluster(t.Context(), "a")
	require.ErrorContains(t, err, "is it up, and can it be reached from here?")
}
