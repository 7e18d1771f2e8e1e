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

// candidates are how many objects are tried, as one may be refused by a webhook, or
// be in a namespace that is gone.
const candidates = 20

// some are objects of a resource, candidates in number at most of each kind: those of
// which stale is true, and behind them, if they are fewer, others.
func (p *Prover) some(ctx context.Context, r schema.GroupResource, stale func(audit.Form) bool) ([]place, error) {
	var found, fresh []place
	for _, within := range p.Layout.Places(r) {
		contents, err := p.Etcd.Read(ctx, within)
		if err != nil {
			return nil, fmt.Errorf("looking for an object of %s: %w", r, err)
		}
		for object, err := range contents.Objects {
			if err != nil {
				return nil, fmt.Errorf("looking for an object of %s: %w", r, err)
			}
			if of, _ := p.Layout.Resource(object.Key); of != r || object.Astray != "" {
				continue // of a resource whose path begins alike, or where no apiserver looks for it
			}
			switch is := placeOf(object.Key, within); {
			case stale(audit.Inspect(object.Value, p.Names).Form):
				found = append(found, is)
			case len(fresh) < candidates:
				fresh = append(fresh, is)
			}
			if len(found) == candidates {
				return found, nil
			}
		}
	}
	if found = append(found, fresh...); len(found) == 0 {
		return nil, fmt.Errorf("%s: %w", r, ErrNoObject)
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
