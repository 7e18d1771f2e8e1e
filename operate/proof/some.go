package proof

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kube-atrest/atrest/operate/audit"
	"github.com/kube-atrest/atrest/operate/fleet"
	"github.com/kube-atrest/atrest/operate/migrate"
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

// Stored has every apiserver read an object of a resource in the version that etcd has:
// one that is stored in a form, or any if there is none of that. That is what an apiserver
// shows which can write none, as its plugin does not encrypt: where its objects are, and
// that all read them.
func (p *Prover) Stored(ctx context.Context, r schema.GroupResource, is func(audit.Form) bool) (Shown, error) {
	version, err := p.version(ctx, r)
	if err != nil {
		return Shown{}, err
	}
	all, err := p.some(ctx, r, is)
	if err != nil {
		return Shown{}, err
	}
	failed := fmt.Errorf("%s: %w", r, ErrNoObject)
	some := false // of that form
	for _, at := range all {
		entry, err := p.Etcd.Find(ctx, at.key)
		if err != nil {
			failed = err
			continue
		}
		if is(audit.Inspect(entry.Value, p.Names).Form) {
			some = true
		} else if some {
			break
		}
		s := Shown{Written: fleet.Written{Resource: r, Namespace: at.namespace, Name: at.name, Version: entry.ModRevision},
			Key: at.key, Cluster: entry.Cluster, Form: audit.Inspect(entry.Value, p.Names).Form}
		if failed = p.readByAll(ctx, version, s); failed == nil {
			return s, nil
		}
	}
	return Shown{}, failed
}

// Reads is an error unless every apiserver reads an object, by its etcd key, in the version
// that etcd has, which is stored in that form: so is then what else is of its resource and
// in its form.
func (p *Prover) Reads(ctx context.Context, key string, is audit.Form) error {
	r, _ := p.Layout.Resource(key)
	version, err := p.version(ctx, r)
	if err != nil {
		return err
	}
	entry, err := p.Etcd.Find(ctx, key)
	if err != nil && !errors.Is(err, audit.ErrNotFound) {
		return err
	}
	if err != nil || audit.Inspect(entry.Value, p.Names).Form != is {
		return fmt.Errorf("%s was written since it was counted: %w", key, fleet.ErrAnotherVersion)
	}
	for _, within := range p.Layout.Places(r) {
		if strings.HasPrefix(key, within) {
			at := placeOf(key, within)
			return p.readByAll(ctx, version, Shown{Written: fleet.Written{Resource: r, Namespace: at.namespace, Name: at.name, Version: entry.ModRevision}})
		}
	}
	return fmt.Errorf("%s is where no apiserver looks for %s", key, r)
}

func (p *Prover) readByAll(ctx context.Context, r schema.GroupVersionResource, s Shown) error {
	for _, name := range p.Fleet.Names() {
		if err := p.Fleet.Read(ctx, name, r, s.Written); err != nil {
			return err
		}
	}
	now, err := p.API.Revision(ctx, r, migrate.Object{Namespace: s.Namespace, Name: s.Name})
	if err == nil && now != s.Version {
		return fmt.Errorf("%w: %w", errOvertaken, fleet.ErrAnotherVersion)
	}
	return err
}
