package proof

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kube-atrest/atrest/operate/fleet"
)

// Samples are, by what they are written with, the resources of which objects show
// what is written with it: Secrets and ConfigMaps, or else the others, of which one
// with an object is enough.
type Samples map[string][]schema.GroupResource

// Offer adds a resource that is written with something, if that is not shown better already.
func (s Samples) Offer(with string, r schema.GroupResource) {
	had := s[with]
	switch {
	case slices.Contains(had, r):
	case fleet.HasCanary(r) && len(had) > 0 && !fleet.HasCanary(had[0]):
		s[with] = []schema.GroupResource{r}
	case fleet.HasCanary(r), len(had) == 0, !fleet.HasCanary(had[0]):
		s[with] = append(had, r)
	}
}

// Resources are all of them, each once.
func (s Samples) Resources() []schema.GroupResource {
	var all []schema.GroupResource
	for _, with := range slices.Sorted(maps.Keys(s)) {
		for _, r := range s[with] {
			if !slices.Contains(all, r) {
				all = append(all, r)
			}
		}
	}
	return all
}
