package migrate

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Resources lists what the cluster serves and [Cluster.Rewrite] can rewrite,
// each resource once, in the version that its group prefers. Events are listed
// in the core group alone, where they are stored. Groups that cannot be looked
// into, such as those of an aggregated apiserver that is away, are named in the
// error; the list then has all others.
func (c *Cluster) Resources(ctx context.Context) ([]schema.GroupVersionResource, error) {
	var groups metav1.APIGroupList
	if err := c.do(ctx, request{method: http.MethodGet, path: []string{"apis"}}, &groups); err != nil {
		return nil, fmt.Errorf("list of API groups: %w", err)
	}
	groups.Groups = append([]metav1.APIGroup{{Versions: []metav1.GroupVersionForDiscovery{{Version: "v1"}}}}, groups.Groups...)
	var all []schema.GroupVersionResource
	var problems []error
	for _, group := range groups.Groups {
		if group.Name == "events.k8s.io" {
			continue
		}
		seen := map[string]bool{}
		for _, version := range preferredFirst(group) {
			found, err := c.served(ctx, schema.GroupVersion{Group: group.Name, Version: version})
			if err != nil {
				problems = append(problems, err)
			}
			for _, resource := range found {
				if !seen[resource.Resource] {
					seen[resource.Resource] = true
					all = append(all, resource)
				}
			}
		}
	}
	return all, errors.Join(problems...)
}

func preferredFirst(group metav1.APIGroup) []string {
	var versions []string
	for _, v := range group.Versions {
		versions = append(versions, v.Version)
	}
	slices.SortStableFunc(versions, func(a, b string) int {
		preferred := group.PreferredVersion.Version
		switch {
		case a == preferred && b != preferred:
			return -1
		case b == preferred && a != preferred:
			return 1
		}
		return 0
	})
	return versions
}

// served lists what of a version can be listed, read and patched.
func (c *Cluster) served(ctx context.Context, of schema.GroupVersion) ([]schema.GroupVersionResource, error) {
	var list metav1.APIResourceList
	if err := c.do(ctx, request{method: http.MethodGet, path: root(of)}, &list); err != nil {
		return nil, fmt.Errorf("resources of %s: %w", of, err)
	}
	var all []schema.GroupVersionResource
	for _, r := range list.APIResources {
		if slices.Contains(r.Verbs, "list") && slices.Contains(r.Verbs, "get") && slices.Contains(r.Verbs, "patch") {
			all = append(all, of.WithResource(r.Name))
		}
	}
	return all, nil
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
