package rollout

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kube-atrest/atrest/config"
)

// configurations is what the configuration files say of a rotation.
type configurations struct {
	// files are those of the apiservers, as they are, and parsed what they say.
	files  map[string][]byte
	parsed map[string]*config.Configuration
	// resources are those that are, or were, written with the providers.
	resources []string
	// canaries has, by provider, a resource that can be written to see what an
	// apiserver writes with.
	canaries map[string]schema.GroupResource
}

// survey reads the configuration file of every apiserver. Of a rotation that has
// begun, with the hashes of its plan, a write may have been cut off: what it was
// to leave counts then, as it is written again.
func (r *Rotation) survey(ctx context.Context, providers []string, plan map[string][]string) (configurations, error) {
	found := configurations{files: map[string][]byte{}, parsed: map[string]*config.Configuration{}, canaries: map[string]schema.GroupResource{}}
	resources := map[string]bool{}
	for _, apiserver := range r.Apiservers {
		file, err := r.Files.Read(ctx, apiserver)
		if err != nil {
			return found, fmt.Errorf("configuration of %s: %w", apiserver, err)
		}
		if whole := r.Folder.copies().whole(apiserver, plan[apiserver], file); whole != nil {
			file = whole
		}
		c, err := config.Parse(file, config.Options{KMSv1: true, Reload: true, File: "configuration of " + apiserver})
		if err != nil {
			return found, err
		}
		found.files[apiserver], found.parsed[apiserver] = file, c
		covered, err := r.coveredBy(ctx, c)
		if err != nil {
			return found, err
		}
		for _, resource := range covered {
			if by := among(c.For(resource), providers); by != nil {
				resources[resource.String()] = true
				found.offer(by, resource)
			}
		}
	}
	if len(resources) == 0 {
		return found, fmt.Errorf("no resource is encrypted with KMS provider %s: name one that the configuration has", quoted(providers))
	}
	found.resources = slices.Sorted(maps.Keys(resources))
	return found, nil
}

// check tells why providers cannot be rotated: nothing is written with one, or
// another is on the same plugin, whose key would be taken for one that may go.
// With one of the new providers in the file the rotation has begun already.
func (s *configurations) check(leaving, all []string) error {
	for _, apiserver := range slices.Sorted(maps.Keys(s.parsed)) {
		at, begun := map[string]string{}, false
		for _, p := range s.parsed[apiserver].Providers() {
			if slices.Contains(leaving, p.KMS().Name) {
				at[p.KMS().Address] = p.KMS().Name
			} else if slices.Contains(all, p.KMS().Name) {
				begun = true
			}
		}
		for _, p := range s.parsed[apiserver].Providers() {
			name, address := p.KMS().Name, p.KMS().Address
			switch left, shared := at[address]; {
			case slices.Contains(leaving, name) && !p.Writes() && !begun:
				return fmt.Errorf("configuration of %s: nothing is written with KMS provider %q: make it the first one of its resources, or name another", apiserver, name)
			case shared && !slices.Contains(all, name) && name != "":
				return fmt.Errorf("configuration of %s: KMS provider %q is on the same plugin as %q, and what is stored with it needs the same key: name both", apiserver, name, left)
			}
		}
	}
	return nil
}

// coveredBy lists the resources that a configuration is about: those it names,
// and where it has a wildcard those that the cluster serves.
func (r *Rotation) coveredBy(ctx context.Context, c *config.Configuration) ([]schema.GroupResource, error) {
	var all []schema.GroupResource
	wild := false
	for _, rule := range c.Rules() {
		if rule.Resource.Resource == "*" {
			wild = true
			continue
		}
		all = append(all, rule.Resource)
	}
	if wild {
		served, err := r.Cluster.Resources(ctx)
		if err != nil {
			return nil, fmt.Errorf("the configuration has a wildcard, and what it is for cannot be listed: %w", err)
		}
		for _, version := range served {
			all = append(all, version.GroupResource())
		}
	}
	return all, nil
}

// among are the names of the KMS providers that are among the given ones.
func among(providers []*config.Provider, names []string) []string {
	var found []string
	for _, p := range providers {
		if name := p.KMS().Name; name != "" && slices.Contains(names, name) {
			found = append(found, name)
		}
	}
	return found
}

// offer remembers the best resource to write a canary of: a Secret, else a
// ConfigMap, else what there is.
func (s *configurations) offer(providers []string, resource schema.GroupResource) {
	worth := func(r schema.GroupResource) int {
		return slices.Index([]schema.GroupResource{{Resource: "configmaps"}, {Resource: "secrets"}}, r)
	}
	for _, name := range providers {
		if had, ok := s.canaries[name]; !ok || worth(resource) > worth(had) {
			s.canaries[name] = resource
		}
	}
}
