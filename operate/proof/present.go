package proof

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kube-atrest/atrest/operate/audit"
	"github.com/kube-atrest/atrest/operate/migrate"
)

// API is the apiserver that objects are listed and rewritten through:
// [migrate.Cluster].
type API interface {
	Version(context.Context, schema.GroupResource) (schema.GroupVersionResource, error)
	Newest(context.Context, schema.GroupVersionResource) (o migrate.Object, revision int64, found bool, err error)
	Revision(context.Context, schema.GroupVersionResource, migrate.Object) (int64, error)
}

// Present is an error if of one of the resources the API lists an object, the one that
// was written last, that etcd does not have in that very version: then its objects are
// where nobody looks, whatever else etcd has of it. Revisions of two etcds cannot be
// compared, so that a later one is no better than an earlier one. What is not served is
// passed over.
func (p *Prover) Present(ctx context.Context, resources []schema.GroupResource) error {
	for _, r := range resources {
		err := errOvertaken
		for range attempts { // it may be deleted meanwhile
			if err = p.present(ctx, r); !errors.Is(err, errOvertaken) {
				break
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (p *Prover) present(ctx context.Context, r schema.GroupResource) error {
	version, err := p.API.Version(ctx, r)
	if errors.Is(err, migrate.ErrNoResource) {
		return nil
	}
	if err != nil {
		return err
	}
	newest, revision, found, err := p.API.Newest(ctx, version)
	switch {
	case apierrors.IsNotFound(err), err == nil && !found:
		return nil
	case err != nil && p.known(ctx, version): // one that does not open is enough for that
		return nil
	case err != nil:
		return fmt.Errorf("whether there are objects of %s is not known: %w", r, err)
	}
	keys := p.keys(r, newest.Namespace, newest.Name)
	for _, key := range keys {
		entry, err := p.Etcd.Find(ctx, key)
		if err == nil && entry.ModRevision == revision {
			return nil
		}
		if err != nil && !errors.Is(err, audit.ErrNotFound) {
			return err
		}
	}
	if now, err := p.API.Revision(ctx, version, newest); err != nil || now != revision {
		return fmt.Errorf("%s %s: %w", r, newest, errOvertaken)
	}
	return fmt.Errorf("the apiserver lists %s %s, and %s does not have it as %s: if its objects are kept in an etcd of their own, name that with --etcd-servers-overrides; "+
		"else name the etcd of this apiserver with --endpoints, and its --etcd-prefix with --prefix", r, newest, p.Etcd, strings.Join(keys, " or "))
}

// knownTries are how many objects are looked at for one that can be read.
const knownTries = 20

// known reports whether the API has one of the first objects that are in etcd in the
// version that it has there.
func (p *Prover) known(ctx context.Context, r schema.GroupVersionResource) bool {
	tries := 0
	for _, within := range p.Layout.Places(r.GroupResource()) {
		contents, err := p.Etcd.Read(ctx, within)
		if err != nil {
			return false
		}
		for object, err := range contents.Objects {
			if tries++; err != nil || tries > knownTries {
				return false
			}
			is := placeOf(object.Key, within)
			entry, err := p.Etcd.Find(ctx, object.Key)
			if err != nil {
				continue
			}
			if now, err := p.API.Revision(ctx, r, migrate.Object{Namespace: is.namespace, Name: is.name}); err == nil && now == entry.ModRevision {
				return true
			}
		}
	}
	return false
}

// keys are where an object may be in etcd.
func (p *Prover) keys(r schema.GroupResource, namespace, name string) []string {
	var all []string
	for _, within := range p.Layout.Places(r) {
		all = append(all, within+objectPath(namespace, name))
	}
	return all
}
