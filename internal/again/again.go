// Package again has an apiserver store an object again as it is, without what an update
// costs: no patch is applied to it, no field is given a manager, and no admission is
// asked, as nothing changes that it could be about. What is left is that the storage finds
// the object stale, and encrypts it anew.
//
// Whoever asks for it may update the object, and says so with [kubeapi.StoreAgain]. Servers
// without this package take the same request for what it is besides, a patch that
// changes nothing.
package again

import (
	"context"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage"

	"github.com/kube-atrest/atrest/internal/kubeapi"
)

type askedKey struct{}

// Handler lets the storage know, behind next, of the patches that ask for it. It stands behind
// authentication and authorization.
func Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPatch && r.Header.Get(kubeapi.StoreAgain) != "" {
			r = r.WithContext(context.WithValue(r.Context(), askedKey{}, true))
		}
		next.ServeHTTP(w, r)
	})
}

// Update is what a storage updates an object of a resource at a key with: update, or nothing
// if that is what was asked for.
func Update(ctx context.Context, of schema.GroupResource, key string, update storage.UpdateFunc) storage.UpdateFunc {
	if ctx.Value(askedKey{}) == nil || !keeps(of) {
		return update
	}
	return func(is runtime.Object, at storage.ResponseMeta) (runtime.Object, *uint64, error) {
		if at.ResourceVersion == 0 {
			return nil, nil, storage.NewKeyNotFoundError(key, 0)
		}
		return is, nil, nil
	}
}

// keeps reports whether objects of a resource stay until they are deleted. Others, as Events,
// get the time that they have left from the update.
func keeps(of schema.GroupResource) bool {
	return of == schema.GroupResource{Resource: "secrets"} || of == schema.GroupResource{Resource: "configmaps"}
}
