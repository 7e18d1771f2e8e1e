package fleet

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Canaries are the resources of which there are canaries: Secrets, and ConfigMaps.
func Canaries() []schema.GroupResource {
	return []schema.GroupResource{{Resource: "secrets"}, {Resource: "configmaps"}}
}

// HasCanary reports whether there is a canary of a resource, so that [Fleet.Write]
// writes one.
func HasCanary(r schema.GroupResource) bool { return canaries[r] != "" }

// IsCanary reports whether an object of a resource is one, of whichever Fleet.
func IsCanary(r schema.GroupResource, name string) bool {
	return HasCanary(r) && strings.HasPrefix(name, canaryPrefix)
}

// NeedsOfCanaries are what a user needs to have canaries of some of the resources
// written, read and removed.
func (f *Fleet) NeedsOfCanaries(of []schema.GroupResource) []Need {
	var needs []Need
	for _, r := range of {
		for _, verb := range []string{"get", "create", "patch", "delete"} {
			if HasCanary(r) {
				needs = append(needs, Need{Verb: verb, Resource: r.Resource, Namespace: f.namespace})
			}
		}
	}
	return needs
}
