package migrate

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kube-atrest/atrest/internal/kubeapi"
)

// ErrNoResource says that the objects of a resource cannot be rewritten through the
// API.
var ErrNoResource = errors.New("the apiserver serves no such resource that can be listed, read and patched: " +
	"what is stored of it, an apiserver's own controllers write again, or its API has to be turned on, or it is to be deleted")

// versionFor is for how long a resource is taken to be served in the version that it
// was: a custom resource may be in another one at any time.
const versionFor = time.Minute

// Version is in which version a resource is served, as [Cluster.Resources] lists it.
// What was found is not asked for again for a minute. The error wraps [ErrNoResource] if it is
// not served.
func (c *Cluster) Version(ctx context.Context, r schema.GroupResource) (schema.GroupVersionResource, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if version, ok := c.known(r); ok && c.clock.Since(c.looked) < versionFor {
		return version, nil
	}
	var problem error
	c.served, problem = c.Resources(ctx)
	c.looked = c.clock.Now()
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

// newestPages and newestPage bound how many objects [Cluster.Newest] looks at, in pages.
const newestPages, newestPage = 20, 500

// Newest is the object of a resource that was written last, of the first 10,000 as the
// API lists them, with its resourceVersion, which is the ModRevision of its etcd key;
// found is false if there is none.
func (c *Cluster) Newest(ctx context.Context, r schema.GroupVersionResource) (o Object, revision int64, found bool, err error) {
	query := url.Values{"limit": {strconv.Itoa(newestPage)}}
	for range newestPages {
		var list listing
		err := c.briefly(ctx, kubeapi.Request{Method: http.MethodGet, Path: pathOf(r, nil), Query: query, Accept: metadataList}, &list)
		if found && apierrors.IsResourceExpired(err) {
			break
		}
		if err != nil {
			return Object{}, 0, false, fmt.Errorf("listing %s: %w", r.GroupResource(), err)
		}
		for _, item := range list.Items {
			at, err := strconv.ParseInt(item.version().resourceVersion, 10, 64)
			if err != nil {
				return Object{}, 0, false, fmt.Errorf("%s %s has a resourceVersion that is no revision of etcd: is this a Kubernetes apiserver?", r.GroupResource(), item.version().Object)
			}
			if at > revision || !found {
				o, revision, found = item.version().Object, at, true
			}
		}
		if list.Metadata.Continue == "" {
			break
		}
		query.Set("continue", list.Metadata.Continue)
	}
	return o, revision, found, nil
}

// briefly asks an apiserver that may be busy for a moment.
func (c *Cluster) briefly(ctx context.Context, r kubeapi.Request, out any) error {
	p := persistence{clock: c.clock, patience: briefPatience, once: true}
	return p.call(ctx, func(ctx context.Context) error { return c.api.Ask(ctx, r, out) })
}

// Revision is the resourceVersion of an object as etcd has it now, which the apiserver
// has to open for that.
func (c *Cluster) Revision(ctx context.Context, r schema.GroupVersionResource, o Object) (int64, error) {
	var found meta
	if err := c.briefly(ctx, kubeapi.Request{Method: http.MethodGet, Path: pathOf(r, &o), Accept: metadata}, &found); err != nil {
		return 0, err
	}
	return strconv.ParseInt(found.version().resourceVersion, 10, 64)
}
