package proof

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kube-atrest/atrest/operate/audit"
	"github.com/kube-atrest/atrest/operate/migrate"
)

// Stranded is an error for each of the resources of which there are objects that no
// apiserver lists, and what to do: nothing could rewrite them.
func (p *Prover) Stranded(ctx context.Context, resources []schema.GroupResource) error {
	var problems []error
	for _, r := range resources {
		why := p.unlisted(ctx, r, resources)
		if why == nil {
			continue
		}
		some, err := p.some(ctx, r, func(audit.Form) bool { return true })
		switch {
		case errors.Is(err, ErrNoObject):
		case err != nil:
			problems = append(problems, err)
		default:
			problems = append(problems, fmt.Errorf("%s is stored, and no apiserver lists %s, so that nothing could rewrite it: "+
				"have its API served again, by its CustomResourceDefinition or by starting its apiserver; if it is of another resource, say so with --map %s=RESOURCE.GROUP; "+
				"if nobody needs it, delete it from etcd, and leave %s out of the configuration: %w",
				some[0].key, r, strings.Trim(strings.TrimPrefix(p.Layout.Places(r)[0], p.Layout.Prefix()), "/"), r, why))
		}
	}
	return errors.Join(problems...)
}

// unlisted is why no apiserver lists a resource, or nil if one does, or one may that tells of
// none of them.
func (p *Prover) unlisted(ctx context.Context, r schema.GroupResource, all []schema.GroupResource) (why error) {
	for _, apiserver := range p.Fleet.Names() {
		api, ok := p.APIs[apiserver]
		if !ok {
			return nil
		}
		_, err := api.Version(ctx, r)
		tells := func(other schema.GroupResource) bool {
			_, err := api.Version(ctx, other)
			return err == nil || errors.Is(err, migrate.ErrNoResource)
		}
		if err == nil || !slices.ContainsFunc(all, tells) {
			return nil
		}
		why = errors.Join(why, fmt.Errorf("apiserver %s: %w", apiserver, err))
	}
	return why
}
