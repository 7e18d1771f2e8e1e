package rollout

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"

	"github.com/kube-atrest/atrest/internal/hashed"
	"github.com/kube-atrest/atrest/operate/fleet"
	"github.com/kube-atrest/atrest/operate/migrate"
	"github.com/kube-atrest/atrest/operate/proof"
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
	// Cluster tells which resources are served, and has the objects rewritten.
	// Through is the same apiserver, which tells what its user may do.
	Cluster *migrate.Cluster
	Through *fleet.Fleet
	// APIs are those of Apiservers, to see what each lists.
	APIs map[string]proof.API
	// Folder keeps its state.
	Folder *Folder
	// Checked is that the plugin which is written with is known to decrypt. If there
	// is one apiserver alone, nobody else reads what it wrote, so it is asked else.
	Checked bool
	// Without are the names of apiservers that exist and are not of the rotation,
	// as they are gone for good, or another cluster's.
	Without []string
	// Replaced are apiservers that are there no more, each with the one that came
	// instead, either of which may be empty.
	Replaced []Replaced
	// Restart has an apiserver start anew that does not follow its file; nil if people do.
	Restart *RestartHook
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
var ErrAnother = errors.New("has the state of another rotation, or of one that was finished: " +
	"give the command and flags that it began with (rotate one-plugin without --from current if it was finished), or name a new folder")

// ErrOtherApiservers says that the rotation began with other apiservers.
var ErrOtherApiservers = errors.New("has the state of a rotation of other apiservers")

// Replaced is an apiserver that came instead of another while the rotation was under
// way.
type Replaced struct{ Old, New string }

// Prepared is a rotation that can be driven. Nothing was changed for it.
type Prepared struct {
	// State is that of the folder, or a new one. It is not stored yet.
	State rotation.State

	rotation *Rotation
	found    configurations
}

// Prepare reads the state and the configurations, and plans a rotation unless
// one has begun. The error wraps [ErrAnother] if that is another one.
func (r *Rotation) Prepare(ctx context.Context) (*Prepared, error) {
	s, begun, err := r.Folder.load()
	if err != nil {
		return nil, err
	}
	move, moves := r.Kind.(Move)
	if move.Fresh {
		s, begun = rotation.State{}, false
	}
	if err := r.Folder.errIfBack(s); err != nil && move.Back == nil {
		return nil, err
	}
	if begun && !r.Kind.owns(s) {
		return nil, fmt.Errorf("folder %s %w", r.Folder.Path, ErrAnother)
	}
	found, err := r.survey(ctx, r.Kind.providers(), s.Plan)
	if err != nil {
		return nil, err
	}
	if moves {
		r.Kind = move.as(found.files)
	}
	if begun {
		err = r.join(ctx, &s.Plan, found)
	} else {
		s, err = r.begin(ctx, found)
	}
	if err == nil && move.Back != nil {
		s, err = s.Abort(move.Back.With, move.Back.Keyless)
	}
	if err != nil {
		return nil, err
	}
	if err := errors.Join(r.Kind.suits(found, s), r.writable(ctx), r.allowed(ctx, found), r.known(ctx, &s), r.decrypts(ctx, found)); err != nil {
		return nil, err
	}
	r.Times(&s.Plan, begun)
	s.Plan.Restarts = r.Restart != nil
	return &Prepared{State: s, rotation: r, found: found}, s.Validate()
}

// begin makes the state of a new rotation.
func (r *Rotation) begin(ctx context.Context, found configurations) (s rotation.State, err error) {
	if err := errors.Join(found.written(r.Kind.leaving(), r.Kind.providers()), found.alone(r.Kind.leaving(), r.Kind.providers())); err != nil {
		return s, err
	}
	p := rotation.Plan{Resources: found.resources}
	if p.Configs, err = r.Kind.hashes(found.files, r.Folder.copies()); err != nil {
		return s, err
	}
	if err := r.inEffect(ctx, p, found); err != nil {
		return s, err
	}
	if err := r.readable(found); err != nil {
		return s, err
	}
	if err := found.sameKey(r.Fleet.Observe(ctx), r.Kind.leaving(), r.Kind.providers()); err != nil {
		return s, err
	}
	return r.Kind.begin(ctx, p, r.Fleet.Observe)
}

// inEffect is an error if an apiserver has a configuration that its file leads
// nowhere near: then the file is not the one that it reads.
func (r *Rotation) inEffect(ctx context.Context, p rotation.Plan, found configurations) error {
	seen := r.Fleet.Observe(ctx)
	for _, name := range slices.Sorted(maps.Keys(p.Configs)) {
		if has := seen[name].ConfigHash; has != "" && !slices.Contains(p.Configs[name], has) {
			return fmt.Errorf("configuration of %s: %w", name, notInEffect(r.Files, name, hashed.Name(found.files[name]), has))
		}
	}
	return nil
}

// writable tells why the file of an apiserver could not be replaced.
func (r *Rotation) writable(ctx context.Context) error {
	if _, changes := r.Kind.(Move); !changes {
		return nil
	}
	var problems []error
	for _, apiserver := range r.Apiservers {
		if err := r.Files.Check(ctx, apiserver); err != nil {
			problems = append(problems, fmt.Errorf("configuration of %s: %w", apiserver, err))
		}
	}
	return errors.Join(problems...)
}

// allowed tells what of all that a rotation does the user may not do. Through an
// apiserver that does not answer it is not known; that is waited for anyway.
func (r *Rotation) allowed(ctx context.Context, found configurations) error {
	samples := found.samples.Resources()
	needs := append(r.Fleet.NeedsOfCanaries(samples), fleet.Need{Verb: "list", Group: "coordination.k8s.io", Resource: "leases", Namespace: "kube-system"}, fleet.NeedOfCluster())
	for _, resource := range samples {
		if !fleet.HasCanary(resource) {
			needs = append(needs, needsOf(resource, "patch")...)
		}
	}
	var rewriting []fleet.Need
	for _, resource := range parsed(found.resources) {
		needs = append(needs, needsOf(resource, "list", "get")...) // of what each lists
		rewriting = append(rewriting, needsOf(resource, "list", "get", "patch")...)
	}
	denied, _ := r.Fleet.Denied(ctx, needs) // of what is not known nothing is said
	more, _ := r.Through.Denied(ctx, rewriting)
	for _, line := range more {
		if !slices.Contains(denied, line) { // it is one of the apiservers
			denied = append(denied, line)
		}
	}
	if len(denied) > 0 {
		return fmt.Errorf("the user may not do all that it takes: %s", strings.Join(denied, "; "))
	}
	return nil
}

func needsOf(r schema.GroupResource, verbs ...string) []fleet.Need {
	var all []fleet.Need
	for _, verb := range verbs {
		all = append(all, fleet.Need{Verb: verb, Group: r.Group, Resource: r.Resource})
	}
	return all
}

// Drive carries it out, and stores the state in the folder. The errors are those
// of [drive.Run].
func (p *Prepared) Drive(ctx context.Context, store *reencrypt.Store, w Watcher, o drive.Options) (rotation.Done, error) {
	r := p.rotation
	world := p.world(store, w)
	o.Save, o.Before, o.Tell = world.save(r.Folder.save), world.stages.telling(o.Before), world.stages.telling(o.Tell)
	return r.Kind.drive(ctx, world, p.State, o)
}

// Identify shows of each apiserver what it writes with now and that etcd is its own,
// and has objects written for that. What is not so is the error. It tells what is
// waited for, as seen here.
func (p *Prepared) Identify(ctx context.Context, store *reencrypt.Store, clk clock.PassiveClock) ([]rotation.Waiting, error) {
	w := p.world(store, nil)
	problems := []error{proof.Named(ctx, w.fleet, w.without), w.stillSo(ctx, p.State), w.met(ctx, &p.State)}
	seen, found := w.Observe(ctx), map[string]rotation.Shown{}
	running := rotation.Identities(seen)
	for _, apiserver := range p.asked(seen, clk.Now()) {
		providers := p.writing(apiserver, seen[apiserver].ConfigHash)
		if len(providers) == 0 {
			continue
		}
		began := clk.Now()
		shown, err := w.Canary(ctx, rotation.Canary{Instance: apiserver, Providers: providers})
		for _, provider := range providers {
			if named, wrote := seen[apiserver].Providers[provider].KeyID, shown.KeyIDs[provider]; err == nil && wrote != "" && wrote != named {
				err = fmt.Errorf("its plugin of provider %q names key_id %s, and it stores under %s: wait a minute or two, or see to the plugin", provider, named, wrote)
			}
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("apiserver %s: %w", apiserver, err))
			continue
		}
		shown.At, shown.Identities = began, running
		found[apiserver] = shown
	}
	o := rotation.Observation{Instances: w.Observe(ctx), Shown: found} // as they are now that they wrote
	now := clk.Now()
	_, next := rotation.Next(rotation.Resume(p.State, now), o, now)
	if err := errors.Join(problems...); err != nil {
		return next.Waiting, err
	}
	return next.Waiting, inTheWay(next)
}

// writing are the providers of the rotation that an apiserver writes with, by the
// configuration in effect, which its file may be ahead of or behind; else by its file.
func (p *Prepared) writing(apiserver, effect string) []string {
	m, moves := p.rotation.Kind.(Move)
	switch at := slices.Index(p.State.Plan.Configs[apiserver], effect); {
	case !moves || at < 0:
		return p.found.writing(apiserver, p.rotation.Kind.providers())
	case at < slices.Index(rotation.Stages[:], rotation.Swapped) && m.Back != nil:
		return m.Back.With
	case at < slices.Index(rotation.Stages[:], rotation.Swapped):
		return m.From
	case m.Back != nil: // which may be why it goes back, and need not be shown
		return nil
	default:
		return m.To
	}
}

// inTheWay are the reasons to wait that only people can see to.
func inTheWay(d rotation.Decision) error {
	var problems []error
	for _, w := range d.Waiting {
		if w.ForPeople() {
			problems = append(problems, fmt.Errorf("waiting: %s", w))
		}
	}
	return errors.Join(problems...)
}

// Beside tells of the aggregated apiservers that serve a group which a configuration is
// for: what they keep is not of the rotation.
func (p *Prepared) Beside(ctx context.Context) []string {
	return proof.Beside(ctx, p.rotation.Cluster, p.found.has, slices.Concat(p.rotation.Apiservers, p.rotation.Without))
}

func (p *Prepared) world(store *reencrypt.Store, w Watcher) *world {
	r := p.rotation
	store.Audit.Names = p.found.names
	all := &world{
		rotation: r, found: p.found, fleet: r.Fleet, store: store, watcher: w, without: r.Without, samples: maps.Clone(p.found.samples), providers: r.Kind.providers(), resources: parsed(p.State.Plan.Resources), located: map[schema.GroupResource]bool{},
		prover: &proof.Prover{Fleet: r.Fleet, Etcd: store.From, Layout: store.Audit.Layout, Names: p.found.names, API: r.Cluster, APIs: r.APIs},
		stages: stages{files: r.Files, hashes: p.State.Plan.Configs, copies: r.Folder.copies()},
	}
	all.prover.Alone = all.alone
	if _, changes := r.Kind.(Move); changes {
		all.files, all.late = map[string]onDisk{}, map[string]<-chan localFile{}
		all.stages.seen, all.stages.swapped = all.files, p.State.Move.Begun()
	}
	if p.State.Cluster != "" {
		all.cluster = &p.State.Cluster
	}
	return all
}
