package fleet

import (
	"context"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kube-atrest/atrest/internal/kubeapi"
)

// clusterNamespace is there in every cluster, and has another UID in each that is not a
// copy of another.
const clusterNamespace = "kube-system"

// NeedOfCluster is what a user needs for [Fleet.Cluster].
func NeedOfCluster() Need {
	return Need{Verb: "get", Resource: "namespaces", Namespace: clusterNamespace}
}

// Cluster is the UID of the namespace kube-system as an apiserver reads it, by which
// clusters are told apart whose etcds have the same id. It is empty if the apiserver
// serves no namespaces, as an aggregated one.
func (f *Fleet) Cluster(ctx context.Context, instance string) (string, error) {
	m, err := f.named("asking for the cluster", instance)
	if err != nil {
		return "", err
	}
	var namespace struct {
		Metadata struct {
			UID string `json:"uid"`
		} `json:"metadata"`
	}
	err = m.send(ctx, kubeapi.Request{Method: http.MethodGet, Path: []string{"api", "v1", "namespaces", clusterNamespace}, Accept: metadata}, &namespace)
	switch {
	case apierrors.IsNotFound(err):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("which cluster apiserver %s is of is not known: %w", instance,
			forbidden(err, "the user needs the verb get for the namespace "+clusterNamespace))
	case namespace.Metadata.UID == "":
		return "", fmt.Errorf("apiserver %s has a namespace %s without a UID: is this a Kubernetes apiserver?", instance, clusterNamespace)
	}
	return namespace.Metadata.UID, nil
}
