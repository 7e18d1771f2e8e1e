package fleet

import "k8s.io/apimachinery/pkg/runtime/schema"

// Canaries are the resources of which there are canaries: Secrets, and ConfigMaps.
func Canaries() []schema.GroupResource {
	return []schema.GroupResource{{Resource: "secrets"}, {Resource: "configmaps"}}
}

// HasCanary reports whether there is a canary of a resource, so that [Fleet.Write]
// writes one.
func HasCanary(r schema.GroupResource) bool { return canaries[r] != "" }
