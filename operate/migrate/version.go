package migrate

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"

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

// Any reports whether the API lists an object of a resource.
func (c *Cluster) Any(ctx context.Context, r schema.GroupVersionResource) (bool, error) {
	var list listing
	err := c.api.Ask(ctx, kubeapi.Request{Method: http.MethodGet, Path: pathOf(r, nil), Query: url.Values{"limit": {"1"}}, Accept: metadataList}, &list)
	if err != nil {
		return false, fmt.Errorf("listing %s: %w", r.GroupResource(), err)
	}
	return len(list.Items) > 0, nil
}
