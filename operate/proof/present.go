package proof

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kube-atrest/atrest/operate/audit"
	"github.com/kube-atrest/atrest/operate/fleet"
	"github.com/kube-atrest/atrest/operate/migrate"
)

// API is an apiserver that objects are listed and rewritten through: [migrate.Cluster].
type API interface {
	Version(context.Context, schema.GroupResource) (schema.GroupVersionResource, error)
	Newest(context.Context, schema.GroupVersionResource) (o migrate.Object, revision int64, found bool, err error)
	Revision(context.Context, schema.GroupVersionResource, migrate.Object) (int64, error)
}

// Present is an error if of one of the resources an apiserver lists an object, the one
// that was written last, that etcd does not have in that very version: then its objects
// are where nobody looks, whatever else etcd has of it. Revisions of two etcds cannot be
// compared, so that a later one is no better than an earlier one. Each apiserver is
// asked, as one may have an etcd of its own for a resource. What one does not serve is
// passed over.
func (p *Prover) Present(ctx context.Context, resources []schema.GroupResource) error {
	for _, r := range resources {
		met := map[seen]bool{}
		for _, apiserver := range p.Fleet.Names() {
			err := errOvertaken
			for range attempts { // it may be deleted meanwhile
				if err = p.present(ctx, apiserver, r, met); !errors.Is(err, errOvertaken) {
					break
				}
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// seen is an object of a resource in a version.
type seen struct {
	migrate.Object
	revision int64
}

// present is Present through one apiserver. met are those that were found in etcd
// already, as another lists them.
func (p *Prover) present(ctx context.Context, apiserver string, r schema.GroupResource, met map[seen]bool) error {
	api, ok := p.APIs[apiserver]
	if !ok {
		return fmt.Errorf("apiserver %s is not asked what it lists: this is a mistake in this program", apiserver)
	}
	version, err := api.Version(ctx, r)
	if errors.Is(err, migrate.ErrNoResource) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("apiserver %s: %w", apiserver, err)
	}
	newest, revision, found, err := api.Newest(ctx, version)
	var outage *migrate.OutageError
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("apiserver %s does not serve %s any more, or in another version than %s: it is asked for that anew in a minute", apiserver, r, version.Version)
	case err == nil && !found, met[seen{newest, revision}]:
		return nil
	case errors.As(err, &outage):
		return fmt.Errorf("whether apiserver %s has objects of %s is not known: it is away or busy: %w", apiserver, r, outage.Err)
	case err != nil && slices.Contains(p.Unread, r):
		return p.alike(ctx, apiserver, version)
	case err != nil && p.readable(ctx, api, version) == same: // one that does not open is enough for that
		return nil
	case unconverted(err) && p.has(ctx, r):
		return nil
	case unconverted(err):
		return fmt.Errorf("whether apiserver %s has objects of %s is not known: %w: have the webhook answer again, or delete the CustomResourceDefinition %s", apiserver, r, err, r)
	case err != nil && p.lister(ctx, version) != "":
		return fmt.Errorf("whether apiserver %s has objects of %s is not known: %w: apiserver %s lists them, so nothing is lost: have this one get the providers in its configuration that the other has, and a plugin that decrypts", apiserver, r, err, p.lister(ctx, version))
	case err != nil:
		return fmt.Errorf("whether apiserver %s has objects of %s is not known: %w: see with atrest audit --config FILE --decrypt which of them does not open, and restore or delete it", apiserver, r, err)
	}
	keys := p.keys(r, newest.Namespace, newest.Name)
	for _, key := range keys {
		entry, err := p.Etcd.Find(ctx, key)
		if err == nil && entry.ModRevision == revision {
			met[seen{newest, revision}] = true
			return nil
		}
		if err != nil && !errors.Is(err, audit.ErrNotFound) {
			return err
		}
	}
	if now, err := api.Revision(ctx, version, newest); err != nil || now != revision {
		return fmt.Errorf("%s %s through apiserver %s: %w", r, newest, apiserver, errOvertaken)
	}
	return fmt.Errorf("apiserver %s lists %s %s, and %s does not have it as %s: %s%s", apiserver, r, newest, p.Etcd, strings.Join(keys, " or "), elsewhere, p.newer(r))
}

// elsewhere is what to do about objects that are not in this etcd.
const elsewhere = "if its objects are kept in an etcd of their own, name that with --etcd-servers-overrides, " +
	"and have all apiservers keep them there; else name the etcd of this apiserver with --endpoints, and its --etcd-prefix with --prefix"

// alike is an error if an apiserver reads objects that etcd has, and none in the version
// that it has there: what it does not read either may be one of the same name. Where it reads
// none, a canary shows where it stores them.
func (p *Prover) alike(ctx context.Context, apiserver string, r schema.GroupVersionResource) error {
	switch is := p.readable(ctx, p.APIs[apiserver], r); {
	case is == untold && fleet.HasCanary(r.GroupResource()):
		_, err := p.Show(ctx, apiserver, r.GroupResource(), nil)
		return err
	case is == another:
		return fmt.Errorf("apiserver %s has none of the first objects of %s in the version that %s has: %s", apiserver, r.GroupResource(), p.Etcd, elsewhere)
	}
	return nil
}

// lister is an apiserver that lists the objects of a resource, or empty.
func (p *Prover) lister(ctx context.Context, r schema.GroupVersionResource) string {
	for _, name := range p.Fleet.Names() {
		if api, ok := p.APIs[name]; ok {
			if _, _, _, err := api.Newest(ctx, r); err == nil {
				return name
			}
		}
	}
	return ""
}

// unconverted reports whether objects are not listed as the webhook that converts them to
// another version does not answer, which may be gone for good. An apiserver has such a
// webhook for custom resources alone, and keeps those in the etcd of everything that no
// override names: with objects of it there, they are where they belong.
func unconverted(err error) bool {
	return err != nil && strings.Contains(err.Error(), "conversion webhook for ")
}

// has reports whether etcd has an object of a resource.
func (p *Prover) has(ctx context.Context, r schema.GroupResource) bool {
	_, err := p.some(ctx, r, func(audit.Form) bool { return false })
	return err == nil
}

// newer says what else to do about a resource that may be one of Kubernetes' own which
// the layout does not know yet: it is taken for a custom resource, which is stored below
// its group. Other groups are of custom resources alone.
func (p *Prover) newer(r schema.GroupResource) string {
	asCustom := slices.Equal(p.Layout.Places(r), []string{p.Layout.Prefix() + r.Group + "/" + r.Resource + "/"})
	if own := strings.HasSuffix(r.Group, ".k8s.io") || !strings.Contains(r.Group, "."); !asCustom || !own {
		return ""
	}
	return fmt.Sprintf("; if it is a resource of Kubernetes' own that is newer than this program, say where it is stored: --map %s=%s", r.Resource, r)
}

// knownTries are how many objects are looked at for one that can be read.
const knownTries = 20

// likeness tells in which version an apiserver has what is in etcd.
type likeness int

const (
	untold likeness = iota // it reads none, or not all could be asked
	same
	another
)

// readable tells whether an apiserver has one of the first objects that are in etcd in
// the version that it has there.
func (p *Prover) readable(ctx context.Context, api API, r schema.GroupVersionResource) likeness {
	tries, is := 0, untold
	for _, within := range p.Layout.Places(r.GroupResource()) {
		contents, err := p.Etcd.Read(ctx, within)
		if err != nil {
			return untold
		}
		for object, err := range contents.Objects {
			if tries++; err != nil || tries > knownTries {
				return is
			}
			if of, _ := p.Layout.Resource(object.Key); of != r.GroupResource() || object.Astray != "" {
				continue
			}
			at := placeOf(object.Key, within)
			entry, err := p.Etcd.Find(ctx, object.Key)
			if err != nil {
				continue
			}
			switch now, err := api.Revision(ctx, r, migrate.Object{Namespace: at.namespace, Name: at.name}); {
			case err == nil && now == entry.ModRevision:
				return same
			case err == nil, apierrors.IsNotFound(err):
				is = another
			}
		}
	}
	return is
}

// keys are where an object may be in etcd.
func (p *Prover) keys(r schema.GroupResource, namespace, name string) []string {
	var all []string
	for _, within := range p.Layout.Places(r) {
		all = append(all, within+objectPath(namespace, name))
	}
	return all
}
