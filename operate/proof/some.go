package proof

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kube-atrest/atrest/operate/audit"
)

// place is where an object is.
type place struct{ key, namespace, name string }

// some is one object of a resource: one of which stale is true, else any.
func (p *Prover) some(ctx context.Context, r schema.GroupResource, stale func(audit.Form) bool) (found place, err error) {
	for _, path := range p.Layout.Paths(r) {
		within := p.Layout.Prefix() + path
		contents, err := p.Etcd.Read(ctx, within)
		if err != nil {
			return place{}, fmt.Errorf("looking for an object of %s: %w", r, err)
		}
		for object, err := range contents.Objects {
			if err != nil {
				return place{}, fmt.Errorf("looking for an object of %s: %w", r, err)
			}
			if of, _ := p.Layout.Resource(object.Key); of != r || object.Astray != "" {
				continue // of a resource whose path begins alike, or where no apiserver looks for it
			}
			is := placeOf(object.Key, within)
			if stale(audit.Inspect(object.Value, p.Names).Form) {
				return is, nil
			}
			if found.key == "" {
				found = is
			}
		}
	}
	if found.key == "" {
		return place{}, fmt.Errorf("%s: %w", r, ErrNoObject)
	}
	return found, nil
}

// placeOf reads an etcd key, which below the path of its resource is
// namespace/name, or a name alone.
func placeOf(key, within string) place {
	namespace, name, namespaced := strings.Cut(strings.TrimPrefix(key, within), "/")
	if !namespaced {
		namespace, name = "", namespace
	}
	return place{key: key, namespace: namespace, name: name}
}
