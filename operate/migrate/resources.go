package migrate

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	"github.com/kube-atrest/atrest/internal/kubeapi"
)

// rewritable are the verbs that it takes to rewrite a resource.
var rewritable = discovery.SupportsAllVerbs{Verbs: []string{"list", "get", "patch"}}

// collectable are those without which the garbage collector takes none of it.
var collectable = discovery.SupportsAllVerbs{Verbs: []string{"list", "delete"}}

// Resources lists what the cluster serves and [Cluster.Rewrite] can rewrite,
// each resource once, in the version that its group prefers if that has it. Events
// are listed in the core group alone, where they are stored. Groups that cannot be
// looked into, such as those of an aggregated apiserver that is away, are named in the
// error; the list then has all others.
func (c *Cluster) Resources(ctx context.Context) ([]schema.GroupVersionResource, error) {
	return c.with(ctx, rewritable)
}

// with is Resources of those that have certain verbs.
func (c *Cluster) with(ctx context.Context, verbs discovery.SupportsAllVerbs) ([]schema.GroupVersionResource, error) {
	ctx, cancel := context.WithTimeout(ctx, c.api.Timeout)
	defer cancel()
	client, err := kubeapi.Discovery(ctx, c.config)
	if err != nil {
		return nil, err
	}
	lists, err := client.ServerPreferredResources()
	if err != nil && len(lists) == 0 {
		return nil, fmt.Errorf("list of resources: %w", err)
	}
	var all []schema.GroupVersionResource
	problems := []error{err}
	for _, list := range discovery.FilteredBy(verbs, lists) {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		for _, r := range list.APIResources {
			if version.Group != "events.k8s.io" {
				all = append(all, version.WithResource(r.Name))
			}
		}
	}
	if err := errors.Join(problems...); err != nil || len(all) > 0 {
		return all, err
	}
	return nil, errors.New("the apiserver lists no resources: is it one, and is it up?")
}

// root is the path of a version.
func root(of schema.GroupVersion) []string {
	if of.Group == "" {
		return []string{"api", of.Version}
	}
	return []string{"apis", of.Group, of.Version}
}

// pathOf is the path of a resource, or of an object of it.
func pathOf(r schema.GroupVersionResource, o *Object) []string {
	path := root(r.GroupVersion())
	if o != nil && o.Namespace != "" {
		path = append(path, "namespaces", o.Namespace)
	}
	path = append(path, r.Resource)
	if o != nil {
		path = append(path, o.Name)
	}
	return path
}
