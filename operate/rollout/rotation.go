package rollout

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kube-atrest/atrest/operate/fleet"
	"github.com/kube-atrest/atrest/operate/migrate"
	"github.com/kube-atrest/atrest/operate/reencrypt"
	"github.com/kube-atrest/atrest/operate/rotation"
	"github.com/kube-atrest/atrest/operate/rotation/drive"
)

// Rotation is a rotation of a real cluster.
type Rotation struct {
	Kind Kind
	// Apiservers are the names of all there are, which Fleet asks and whose
	// configurations are Files.
	Apiservers []string
	Fleet      *fleet.Fleet
	Files      Files
	// Cluster tells which resources are served.
	Cluster *migrate.Cluster
	// Folder keeps its state.
	Folder *Folder
	// Times sets those of a plan, which may have begun already.
	Times func(p *rotation.Plan, begun bool)
}

// Watcher is told how a rotation goes. It has to be safe for concurrent use, and
// to return soon.
type Watcher interface {
	Rewriting(resource string, p migrate.Progress)
	Rewrote(resource string, done migrate.Counts)
	// Finished is called again and again at the end of a rotation that others
	// may follow.
	Finished(done rotation.Done)
}

// ErrAnother says that the folder is of a rotation that is not this one.
var ErrAnother = errors.New("has the state of another rotation, or of one that was finished, or of other apiservers: " +
	"give the flags that it began with (without --from current if it was finished), or name a new folder")

// Prepared is a rotation that can be driven. Nothing was changed for it.
type Prepared struct {
	// State is that of the folder, or a new one. It is not stored yet.
	State rotation.State

	rotation *Rotation
	canaries map[string]schema.GroupResource
}

// Prepare reads the state and the configurations, and plans a rotation unless
// one has begun. The error wraps [ErrAnother] if that is another one.
func (r *Rotation) Prepare(ctx context.Context) (*Prepared, error) {
	s, begun, err := r.Folder.load()
	if err != nil {
		return nil, err
	}
	if begun && !(r.Kind.owns(s) && slices.Equal(slices.Sorted(maps.Keys(s.Plan.Configs)), slices.Sorted(slices.Values(r.Apiservers)))) {
		return nil, fmt.Errorf("folder %s %w", r.Folder.Path, ErrAnother)
	}
	found, err := r.survey(ctx, r.Kind.providers(), s.Plan.Configs)
	if err != nil {
		return nil, err
	}
	if !begun {
		if s, err = r.begin(ctx, found); err != nil {
			return nil, err
		}
	}
	r.Times(&s.Plan, begun)
	return &Prepared{State: s, rotation: r, canaries: found.canaries}, s.Validate()
}

// begin makes the state of a new rotation.
func (r *Rotation) begin(ctx context.Context, found configurations) (s rotation.State, err error) {
	if err := found.check(r.Kind.leaving(), r.Kind.providers()); err != nil {
		return s, err
	}
	p := rotation.Plan{Resources: found.resources}
	if p.Configs, err = r.Kind.hashes(found.files, r.Folder.copies()); err != nil {
		return s, err
	}
	return r.Kind.begin(ctx, p, r.Fleet.Observe)
}

// Drive carries it out, and stores the state in the folder. The errors are those
// of [drive.Run].
func (p *Prepared) Drive(ctx context.Context, store *reencrypt.Store, w Watcher, o drive.Options) (rotation.Done, error) {
	r := p.rotation
	o.Save = r.Folder.save
	return r.Kind.drive(ctx, &world{
		fleet: r.Fleet, store: store, watcher: w, canaries: maps.Clone(p.canaries), providers: r.Kind.providers(),
		stages: stages{files: r.Files, hashes: p.State.Plan.Configs, copies: r.Folder.copies()},
	}, p.State, o)
}
