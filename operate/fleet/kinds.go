package fleet

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kube-atrest/atrest/operate/rotation"
)

// Canaries are the resources of which there are canaries: Secrets, and ConfigMaps.
func Canaries() []schema.GroupResource {
	return []schema.GroupResource{{Resource: "secrets"}, {Resource: "configmaps"}}
}

// HasCanary reports whether there is a canary of a resource, so that [Fleet.Write]
// writes one.
func HasCanary(r schema.GroupResource) bool { return canaries[r] != "" }

// ObserveOne is [Fleet.Observe] of one apiserver, which does not see whether another
// answers for it.
func (f *Fleet) ObserveOne(ctx context.Context, instance string) rotation.Instance {
	m, err := f.named("a question", instance)
	if err != nil {
		return rotation.Instance{Problem: err.Error()}
	}
	return f.observe(ctx, m)
}
