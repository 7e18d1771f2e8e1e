package migrate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	"github.com/kube-atrest/atrest/internal/kubeapi"
)

// Own is [Cluster.Resources] without what aggregated apiservers serve, which keep their
// objects where they like, and may be away.
func (c *Cluster) Own(ctx context.Context) ([]schema.GroupResource, error) {
	services, err := c.services(ctx)
	if err != nil {
		return nil, err
	}
	aggregated := map[schema.GroupVersion]bool{}
	for _, s := range services {
		aggregated[schema.GroupVersion{Group: s.Spec.Group, Version: s.Spec.Version}] = s.Spec.Service != nil
	}
	served, err := c.Resources(ctx)
	var failed *discovery.ErrGroupDiscoveryFailed
	if errors.As(err, &failed) && !slices.ContainsFunc(slices.Collect(maps.Keys(failed.Groups)), func(v schema.GroupVersion) bool { return !aggregated[v] }) {
		err = nil
	}
	if err != nil {
		return nil, err
	}
	var own []schema.GroupResource
	for _, r := range served {
		if !aggregated[r.GroupVersion()] {
			own = append(own, r.GroupResource())
		}
	}
	return own, nil
}

// Dependents tells of each object that aggregated apiservers serve and that has owners, by
// which Service: the garbage collector may delete it after them, wherever it is kept. Those
// of the Services in without are not asked.
func (c *Cluster) Dependents(ctx context.Context, without []string, each func(by string, r schema.GroupResource, o Object, owners []metav1.OwnerReference)) error {
	services, err := c.services(ctx)
	if err != nil {
		return err
	}
	by := map[schema.GroupVersion]string{}
	for _, s := range services {
		if at := s.Spec.Service; at != nil && !slices.Contains(without, at.Namespace+"/"+at.Name) {
			by[schema.GroupVersion{Group: s.Spec.Group, Version: s.Spec.Version}] = at.Namespace + "/" + at.Name
		}
	}
	if err := c.discovers(ctx, by); err != nil {
		return err
	}
	served, problem := c.with(ctx, collectable)
	var failed *discovery.ErrGroupDiscoveryFailed
	if errors.As(problem, &failed) {
		for version, err := range failed.Groups {
			if by[version] != "" {
				return fmt.Errorf("what the aggregated apiserver %s serves cannot be listed: %w: %s", by[version], err, excuse(by[version]))
			}
		}
	} else if problem != nil {
		return problem
	}
	for _, r := range served {
		if with := by[r.GroupVersion()]; with != "" {
			if err := c.dependents(ctx, r, func(o Object, owners []metav1.OwnerReference) { each(with, r.GroupResource(), o, owners) }); err != nil {
				return fmt.Errorf("what the aggregated apiserver %s has of %s cannot be listed: %w: the user needs the verb list for it; %s", with, r.GroupResource(), err, excuse(with))
			}
		}
	}
	return nil
}

// discovers is an error if the discovery does not list a group of an aggregated apiserver, as
// of one that is new or away.
func (c *Cluster) discovers(ctx context.Context, by map[schema.GroupVersion]string) error {
	var all metav1.APIGroupList
	if err := c.briefly(ctx, kubeapi.Request{Method: http.MethodGet, Path: []string{"apis"}}, &all); err != nil {
		return fmt.Errorf("list of API groups: %w", err)
	}
	for version, service := range by {
		served := slices.ContainsFunc(all.Groups, func(g metav1.APIGroup) bool {
			return slices.ContainsFunc(g.Versions, func(v metav1.GroupVersionForDiscovery) bool { return v.GroupVersion == version.String() })
		})
		if !served {
			return fmt.Errorf("what the aggregated apiserver %s serves is not known, as the discovery lacks %s: %s", service, version, excuse(service))
		}
	}
	return nil
}

func excuse(service string) string {
	return "see to that one, or, if it keeps nothing that has owners, excuse it with --without-apiservers " + service
}

func (c *Cluster) dependents(ctx context.Context, r schema.GroupVersionResource, each func(Object, []metav1.OwnerReference)) error {
	query := url.Values{"limit": {strconv.Itoa(newestPage)}}
	for {
		var list metav1.PartialObjectMetadataList
		if err := c.briefly(ctx, kubeapi.Request{Method: http.MethodGet, Path: pathOf(r, nil), Query: query, Accept: metadataList}, &list); err != nil {
			return err
		}
		for _, item := range list.Items {
			if len(item.OwnerReferences) > 0 {
				each(Object{item.Namespace, item.Name}, item.OwnerReferences)
			}
		}
		if list.Continue == "" {
			return nil
		}
		query.Set("continue", list.Continue)
	}
}

// Aggregated is an aggregated apiserver: the namespace and the name of the Service that
// leads to it, and the API groups that it serves.
type Aggregated struct {
	Service string
	Groups  []string
}

// Aggregated are those that there are, in the order of their names.
func (c *Cluster) Aggregated(ctx context.Context) ([]Aggregated, error) {
	services, err := c.services(ctx)
	if err != nil {
		return nil, err
	}
	groups := map[string][]string{}
	for _, s := range services {
		if s.Spec.Service == nil {
			continue
		}
		name := s.Spec.Service.Namespace + "/" + s.Spec.Service.Name
		if !slices.Contains(groups[name], s.Spec.Group) {
			groups[name] = append(groups[name], s.Spec.Group)
		}
	}
	var all []Aggregated
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		slices.Sort(groups[name])
		all = append(all, Aggregated{name, groups[name]})
	}
	return all, nil
}

// service is an APIService, which says who serves a version of an API: this apiserver, if
// it has no Service.
type service struct {
	Spec struct {
		Group   string `json:"group"`
		Version string `json:"version"`
		Service *struct {
			Namespace string `json:"namespace"`
			Name      string `json:"name"`
		} `json:"service"`
	} `json:"spec"`
}

func (c *Cluster) services(ctx context.Context) ([]service, error) {
	var all struct {
		Items []service `json:"items"`
	}
	err := c.api.Ask(ctx, kubeapi.Request{Method: http.MethodGet, Path: []string{"apis", "apiregistration.k8s.io", "v1", "apiservices"}}, &all)
	if err != nil && !apierrors.IsNotFound(err) { // there are none
		next := "see that the apiserver is up"
		switch {
		case apierrors.IsForbidden(err):
			next = "the user needs the verb list for apiservices (apiregistration.k8s.io)"
		case apierrors.IsInternalError(err):
			next = "if an APIService itself cannot be read, keep what etcd has of it (etcdctl get KEY --print-value-only), delete it there (etcdctl del KEY), and make it again"
		}
		return nil, fmt.Errorf("which APIs are of aggregated apiservers is not known: %w: %s", err, next)
	}
	return all.Items, nil
}
