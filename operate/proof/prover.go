package proof

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kube-atrest/atrest/operate/audit"
	"github.com/kube-atrest/atrest/operate/fleet"
	"github.com/kube-atrest/atrest/operate/migrate"
	"github.com/kube-atrest/atrest/operate/rotation"
)

// Fleet are the apiservers of a cluster: [fleet.Fleet].
type Fleet interface {
	Names() []string
	Others(context.Context) ([]fleet.Other, error)
	Cluster(ctx context.Context, instance string) (string, error)
	Observe(context.Context) map[string]rotation.Instance
	Write(ctx context.Context, instance string, r schema.GroupResource) (fleet.Written, error)
	Touch(ctx context.Context, instance string, r schema.GroupVersionResource, namespace, name string) (fleet.Written, error)
	Read(ctx context.Context, instance string, r schema.GroupVersionResource, w fleet.Written) error
}

// Prover shows what apiservers write with. It is for one goroutine.
type Prover struct {
	Fleet Fleet
	Etcd  audit.Store
	// Layout says where the etcd keys are, and Names are the providers' names that
	// contain ':'.
	Layout audit.Layout
	Names  audit.Names
	// Alone, if set, tells whether what an apiserver that is the only one stores in a form
	// can be read again, which nobody else shows.
	Alone func(ctx context.Context, instance string, f audit.Form) error
	// API is the apiserver that objects are rewritten through, which has to read what
	// the others write too.
	API API
	// APIs are all apiservers of the fleet by their names, to see what each lists.
	APIs map[string]API
	// Unread are resources of which each apiserver was seen not to read an object that etcd
	// has, and which need not be listed for that.
	Unread []schema.GroupResource
}

// Shown is what was found in etcd of an object.
type Shown struct {
	fleet.Written
	// Key is its etcd key, and Cluster the id of the etcd cluster that has it.
	Key     string
	Cluster uint64
	// Form is how it is stored, which is how the apiserver stores such an object
	// now: it wrote it, or it was told to and found that there is nothing to
	// change, neither in the object nor in what it is stored under. Wrote reports
	// which.
	Form  audit.Form
	Wrote bool
}

// ErrNoObject says that of a resource there is no object to write, and that none can
// be made here.
var ErrNoObject = errors.New("there is no object of it to write")

// attempts are how often an object that others write meanwhile is tried. Other runs of
// these commands have the same canaries.
const attempts = 20

// errOvertaken says that somebody else wrote the object meanwhile.
var errOvertaken = errors.New("others write it again and again")

// Show has one apiserver store an object of a resource, finds it in etcd, and has
// every other apiserver read it. Of a resource without canaries it is one of which
// stale says that it is to be stored anew, else any. The error names the apiserver
// or the etcd that is not as it should be, and wraps [ErrNoObject] if there is
// none of such a resource.
func (p *Prover) Show(ctx context.Context, instance string, r schema.GroupResource, stale func(audit.Form) bool) (Shown, error) {
	err := errOvertaken
	for range attempts {
		var shown Shown
		if shown, err = p.once(ctx, instance, r, stale); !errors.Is(err, errOvertaken) {
			return shown, err
		}
	}
	return Shown{}, fmt.Errorf("%s through apiserver %s: %w: try it again", r, instance, err)
}

func (p *Prover) once(ctx context.Context, instance string, r schema.GroupResource, stale func(audit.Form) bool) (Shown, error) {
	version, err := p.version(ctx, r)
	switch {
	case errors.Is(err, migrate.ErrNoResource):
		return Shown{}, fmt.Errorf("%w: %w", ErrNoObject, err)
	case err != nil:
		return Shown{}, err
	}
	shown, err := p.write(ctx, instance, version, stale)
	if err != nil {
		return Shown{}, err
	}
	if err := p.find(ctx, instance, version, &shown); err != nil {
		return Shown{}, err
	}
	if err := p.read(ctx, instance, version, shown); err != nil {
		return Shown{}, err
	}
	return shown, nil
}

func (p *Prover) version(ctx context.Context, r schema.GroupResource) (schema.GroupVersionResource, error) {
	if fleet.HasCanary(r) {
		return r.WithVersion("v1"), nil
	}
	return p.API.Version(ctx, r)
}

// write stores a canary, or an object that is there.
func (p *Prover) write(ctx context.Context, instance string, r schema.GroupVersionResource, stale func(audit.Form) bool) (Shown, error) {
	if fleet.HasCanary(r.GroupResource()) {
		written, err := p.Fleet.Write(ctx, instance, r.GroupResource())
		return Shown{Written: written, Wrote: true}, err
	}
	all, err := p.some(ctx, r.GroupResource(), stale)
	if err != nil {
		return Shown{}, err
	}
	for _, is := range all {
		var shown Shown
		if shown, err = p.touch(ctx, instance, r, is); err == nil || !refused(err) {
			return shown, err
		}
	}
	return Shown{}, err // of the last one that was tried
}

// refused reports whether an apiserver will not write this object, and may another.
func refused(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsConflict(err)
}

// touch has an apiserver store an object anew.
func (p *Prover) touch(ctx context.Context, instance string, r schema.GroupVersionResource, is place) (Shown, error) {
	before, err := p.Etcd.Find(ctx, is.key)
	switch {
	case errors.Is(err, audit.ErrNotFound):
		return Shown{}, errOvertaken
	case err != nil:
		return Shown{}, err
	}
	written, err := p.Fleet.Touch(ctx, instance, r, is.namespace, is.name)
	return Shown{Written: written, Wrote: written.Version > before.ModRevision}, err
}

// find looks for what was written in etcd.
func (p *Prover) find(ctx context.Context, instance string, r schema.GroupVersionResource, s *Shown) error {
	keys := p.keys(s.Resource, s.Namespace, s.Name)
	for _, key := range keys {
		entry, err := p.Etcd.Find(ctx, key)
		switch {
		case errors.Is(err, audit.ErrNotFound):
			continue
		case err != nil:
			return err
		case entry.ModRevision > s.Version:
			return errOvertaken
		case entry.ModRevision == s.Version:
			s.Key, s.Cluster, s.Form = key, entry.Cluster, audit.Inspect(entry.Value, p.Names).Form
			return nil
		}
		return fmt.Errorf("%s has an older %s than apiserver %s wrote, of revision %d instead of %d: it is not the etcd of that apiserver: name that one, or its members alone, with --endpoints",
			p.Etcd, key, instance, entry.ModRevision, s.Version)
	}
	if p.changed(ctx, instance, r, *s) {
		return errOvertaken
	}
	return fmt.Errorf("what apiserver %s wrote is not in %s as %s: name the etcd of the apiservers with --endpoints, their --etcd-prefix with --prefix, "+
		"and what they keep elsewhere with --etcd-servers-overrides", instance, p.Etcd, strings.Join(keys, " or "))
}

// read has every other apiserver read what one wrote, but those that serve no canaries.
func (p *Prover) read(ctx context.Context, instance string, r schema.GroupVersionResource, s Shown) error {
	if len(p.Fleet.Names()) == 1 && p.Alone != nil {
		if err := p.Alone(ctx, instance, s.Form); err != nil {
			return err
		}
	}
	for _, other := range p.Fleet.Names() {
		if other == instance || fleet.HasCanary(s.Resource) && p.Lacks(ctx, other, s.Resource) {
			continue
		}
		switch err := p.Fleet.Read(ctx, other, r, s.Written); {
		case errors.Is(err, fleet.ErrAnotherVersion), apierrors.IsNotFound(err) && p.changed(ctx, instance, r, s):
			return errOvertaken
		case err != nil:
			return fmt.Errorf("%s was written through apiserver %s, and cannot be read: %w", s.Key, instance, err)
		}
	}
	switch now, err := p.API.Revision(ctx, r, migrate.Object{Namespace: s.Namespace, Name: s.Name}); {
	case apierrors.IsNotFound(err) && p.changed(ctx, instance, r, s):
		return errOvertaken
	case err != nil:
		return fmt.Errorf("%s was written through apiserver %s, and cannot be read through the apiserver that objects are rewritten through: %w: name that one with --context", s.Key, instance, err)
	case now != s.Version:
		return errOvertaken
	}
	return nil
}

// Lacks reports whether an apiserver is known not to serve a resource, as an aggregated one
// no Secrets.
func (p *Prover) Lacks(ctx context.Context, instance string, r schema.GroupResource) bool {
	api := p.APIs[instance]
	if api == nil {
		return false
	}
	_, err := api.Version(ctx, r)
	return errors.Is(err, migrate.ErrNoResource)
}

// changed reports whether the apiserver that wrote an object does not find it any more, or
// in another version: another run removed it.
func (p *Prover) changed(ctx context.Context, instance string, r schema.GroupVersionResource, s Shown) bool {
	err := p.Fleet.Read(ctx, instance, r, s.Written)
	return apierrors.IsNotFound(err) || errors.Is(err, fleet.ErrAnotherVersion)
}

// objectPath is what comes behind the path of a resource.
func objectPath(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}
