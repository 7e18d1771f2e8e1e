package migrate

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kube-atrest/atrest/internal/kubeapi"
)

// ErrNoResource says that the objects of a resource cannot be rewritten through the
// API.
var ErrNoResource = errors.New("the apiserver serves no such resource that can be listed, read and patched: " +
	"what is stored of it, an apiserver's own controllers write again, or its API has to be turned on, or it is to be deleted")

// Version is in which version a resource is served, as [Cluster.Resources] lists it.
// What was found once is not asked for again. The error wraps [ErrNoResource] if it is
// not served.
func (c *Cluster) Version(ctx context.Context, r schema.GroupResource) (schema.GroupVersionResource, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if version, ok := c.known(r); ok {
		return version, nil
	}
	var problem error
	c.served, problem = c.Resources(ctx)
	version, ok := c.known(r)
	switch {
	case ok:
		return version, nil
	case problem != nil:
		return version, fmt.Errorf("%s: the apiserver does not say in which version it serves it: %w", r, problem)
	}
	return version, fmt.Errorf("%s: %w", r, ErrNoResource)
}

func (c *Cluster) known(r schema.GroupResource) (schema.GroupVersionResource, bool) {
	i := slices.IndexFunc(c.served, func(served schema.GroupVersionResource) bool { return served.GroupResource() == r })
	if i < 0 {
		return schema.GroupVersionResource{}, false
	}
	return c.served[i], true
}

// First is one object of a resource as the API lists it, with its resourceVersion,
// which is the ModRevision of its etcd key; found is false if there is none.
func (c *Cluster) First(ctx context.Context, r schema.GroupVersionResource) (o Object, revision int64, found bool, err error) {
	var list listing
	err = c.api.Ask(ctx, kubeapi.Request{Method: http.MethodGet, Path: pathOf(r, nil), Query: url.Values{"limit": {"1"}}, Accept: metadataList}, &list)
	if err != nil || len(list.Items) == 0 {
		if err != nil {
			err = fmt.Errorf("listing %s: %w", r.GroupResource(), err)
		}
		return o, 0, false, err
	}
	first := list.Items[0].version()
	if revision, err = strconv.ParseInt(first.resourceVersion, 10, 64); err != nil {
		return o, 0, false, fmt.Errorf("%s %s has a resourceVersion that is no revision of etcd: is this a Kubernetes apiserver?", r.GroupResource(), first.Object)
	}
	return first.Object, revision, true, nil
}

// Revision is the resourceVersion of an object as etcd has it now, which the apiserver
// has to open for that.
func (c *Cluster) Revision(ctx context.Context, r schema.GroupVersionResource, o Object) (int64, error) {
	var found meta
	if err := c.api.Ask(ctx, kubeapi.Request{Method: http.MethodGet, Path: pathOf(r, &o), Accept: metadata}, &found); err != nil {
		return 0, err
	}
	return strconv.ParseInt(found.version().resourceVersion, 10, 64)
}

// Own is [Cluster.Resources] without those that aggregated apiservers serve, which
// keep their objects where they like.
func (c *Cluster) Own(ctx context.Context) ([]schema.GroupVersionResource, error) {
	served, err := c.Resources(ctx)
	if err != nil {
		return nil, err
	}
	var services struct {
		Items []struct {
			Spec struct {
				Group   string    `json:"group"`
				Service *struct{} `json:"service"`
			} `json:"spec"`
		} `json:"items"`
	}
	err = c.api.Ask(ctx, kubeapi.Request{Method: http.MethodGet, Path: []string{"apis", "apiregistration.k8s.io", "v1", "apiservices"}}, &services)
	if err != nil && !apierrors.IsNotFound(err) { // there are none
		return nil, fmt.Errorf("which APIs are of aggregated apiservers is not known: %w: the user needs the verb list for apiservices (apiregistration.k8s.io)", err)
	}
	aggregated := map[string]bool{}
	for _, s := range services.Items {
		aggregated[s.Spec.Group] = aggregated[s.Spec.Group] || s.Spec.Service != nil
	}
	return slices.DeleteFunc(served, func(r schema.GroupVersionResource) bool { return aggregated[r.Group] }), nil
}
