package migrate

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kube-atrest/atrest/internal/kubeapi"
)

// Options say how a resource is rewritten. The zero value rewrites every object
// as fast as the apiserver answers.
type Options struct {
	// Needs tells which objects to rewrite, from what an audit found; nil for
	// all. It is called by several goroutines at once.
	Needs func(Object) bool
	// Expected is how many objects need it, if that is known. It makes the time
	// left exact.
	Expected int64
	// PerSecond bounds the patches a second; unbounded if it is 0.
	PerSecond float64
	// Workers is how many patches are under way at once: 4 if it is 0, and at
	// most 64.
	Workers int
	// PageSize is how many objects are listed at once: 500 if it is 0. Memory
	// grows with two pages, by some kilobytes for each object.
	PageSize int64
	// Patience is for how long an apiserver that is away or busy is waited for: 2
	// minutes if it is 0.
	Patience time.Duration
	// Goal is written into checkpoints, for the caller to tell them apart.
	Goal string
	// Progress, if set, is told how it goes some times a second, and at the end.
	// It must return soon. Save, if set, is given a checkpoint after every page; an
	// error of it ends the run. Neither is called twice at once.
	Progress func(Progress)
	Save     func(Checkpoint) error
}

// minPerSecond is one patch in a quarter of an hour.
const minPerSecond = 0.001

func (o Options) withDefaults() (Options, error) {
	if o.Workers < 0 || o.Workers > 64 || o.PageSize < 0 || o.PageSize > 10_000 || o.Patience < 0 ||
		o.PerSecond != 0 && !(o.PerSecond >= minPerSecond) || o.Expected < 0 {
		return o, fmt.Errorf("options of a migration: %d workers (0 to 64), pages of %d (0 to 10000), %v patches a second (0, or at least %v), patience %s: "+
			"use others", o.Workers, o.PageSize, o.PerSecond, minPerSecond, o.Patience)
	}
	if o.Workers == 0 {
		o.Workers = 4
	}
	if o.PageSize == 0 {
		o.PageSize = 500
	}
	if o.Patience == 0 {
		o.Patience = defaultPatience
	}
	return o, nil
}

// run is one call of Rewrite.
type run struct {
	cluster  *Cluster
	resource schema.GroupVersionResource
	options  Options
	pace     pace
	persist  persistence

	// Of the goroutine that pages.
	at    Checkpoint
	paged bool // there was a page
	ahead ahead

	mu       sync.Mutex // of what is below
	page     Checkpoint // what was done of the present page
	progress progress
	waiting  string // what is waited for
}

// Rewrite has all objects of a resource rewritten that need it, beginning at a
// checkpoint. It returns where it came to, also with an error, and that
// checkpoint says what was done.
//
// The error is an [*IncompleteError] when single objects failed and the others
// did not, an [*OutageError] when the apiserver was away for too long, wraps
// [ErrUnreadable] when listing failed for what is stored, or is that of the
// context.
func (c *Cluster) Rewrite(ctx context.Context, resource schema.GroupVersionResource, from Checkpoint, o Options) (Checkpoint, error) {
	o, err := o.withDefaults()
	if err != nil {
		return from, err
	}
	r := &run{cluster: c, resource: resource, options: o, at: from, pace: pace{clock: c.clock, perSecond: o.PerSecond}}
	if err := r.at.belongsTo(resource, o.Goal); err != nil {
		return from, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // of what is listed ahead
	r.persist = persistence{clock: c.clock, patience: o.Patience, retried: r.waits}
	r.progress = newProgress(c.clock.Now(), from.Counts.handled())
	defer r.tell(true)
	for !r.at.Done {
		if err := r.nextPageDone(ctx); err != nil {
			return r.at, fmt.Errorf("rewriting %s: %w", resource.GroupResource(), err)
		}
	}
	return r.at, r.incomplete()
}

// nextPageDone does a page and saves where that leads.
func (r *run) nextPageDone(ctx context.Context) error {
	p, err := r.nextPage(ctx)
	if kindOf(ctx, err) == broken {
		return fmt.Errorf("%w (%w)", ErrUnreadable, err)
	}
	if err != nil {
		return err
	}
	var last Object
	if len(p.objects) > 0 {
		last = p.objects[len(p.objects)-1].Object
	}
	objects := r.at.undone(p.objects)
	r.expect(len(objects), p)
	r.lookAhead(ctx, p.next)
	if err := r.all(ctx, objects); err != nil {
		return err
	}
	r.mu.Lock()
	r.at.Counts.add(r.page.Counts)
	r.at.Failures = append(r.at.Failures, r.page.Failures...)
	r.page = Checkpoint{}
	r.mu.Unlock()
	r.at.passed(last, p.next)
	if r.options.Save != nil {
		if err := r.options.Save(r.at); err != nil {
			return fmt.Errorf("checkpoint cannot be saved: %w", err)
		}
	}
	return nil
}

func (r *run) incomplete() error {
	if r.at.Counts.Failed == 0 {
		return nil
	}
	return &IncompleteError{Resource: r.resource, Failed: r.at.Counts.Failed, Failures: r.at.Failures}
}

// all rewrites the objects of a page, several at once. There is an error unless all were.
func (r *run) all(ctx context.Context, objects []version) error {
	workers, working := errgroup.WithContext(ctx)
	workers.SetLimit(r.options.Workers)
	for _, o := range objects {
		if working.Err() != nil {
			break
		}
		workers.Go(func() error { return r.one(working, o) })
	}
	if err := workers.Wait(); err != nil {
		return err
	}
	return context.Cause(ctx) // which may have ended before the last of them was begun
}

// maxConflicts is how often one object is tried that somebody else keeps
// updating.
const maxConflicts = 20

// one rewrites an object. Its error ends the run; what is the object's own
// matter is counted.
func (r *run) one(ctx context.Context, o version) error {
	if r.options.Needs != nil && !r.options.Needs(o.Object) {
		r.note(Counts{Skipped: 1})
		return nil
	}
	for range maxConflicts {
		if err := r.pace.wait(ctx); err != nil {
			return err
		}
		is, err := r.patch(ctx, o)
		switch kindOf(ctx, err) {
		case conflict:
			r.note(Counts{Conflicts: 1})
			if o, err = r.read(ctx, o.Object); err == nil {
				continue
			}
		case gone:
			if err = r.missed(ctx, o.Object, err); err == nil {
				return nil
			}
		}
		return r.outcome(ctx, o, is, err)
	}
	r.fail(o.Object, fmt.Sprintf("was updated by somebody else %d times in a row", maxConflicts))
	return nil
}

// missed looks again for an object that could not be patched as something was
// not found. That may be its namespace, without which nothing is updated. Then
// the object has failed, which is noted and no error.
func (r *run) missed(ctx context.Context, o Object, notFound error) error {
	if _, err := r.read(ctx, o); err != nil {
		return err
	}
	r.fail(o, notFound.Error())
	return nil
}

// outcome counts what became of an object.
func (r *run) outcome(ctx context.Context, o, is version, err error) error {
	var outage *OutageError
	switch k := kindOf(ctx, err); {
	case k == stopped:
		return context.Cause(ctx)
	case errors.As(err, &outage), apierrors.IsUnauthorized(err):
		return err
	case k == gone:
		r.note(Counts{Gone: 1})
	case k != fine:
		r.fail(o.Object, err.Error())
	case is.resourceVersion == o.resourceVersion:
		r.note(Counts{Unchanged: 1})
	default:
		r.note(Counts{Rewritten: 1})
	}
	return nil
}

// patch updates an object with nothing but the version that it has to have. That it has
// no field that its kind does not know need not be looked for.
func (r *run) patch(ctx context.Context, o version) (version, error) {
	body := map[string]any{"metadata": map[string]string{"resourceVersion": o.resourceVersion}}
	return r.object(ctx, kubeapi.Request{Method: http.MethodPatch, Path: pathOf(r.resource, &o.Object), Accept: metadata,
		Query: url.Values{"fieldManager": {"atrest"}, "fieldValidation": {metav1.FieldValidationIgnore}}, Patch: patchOf(r.resource.GroupResource()), Body: body, Again: true})
}

// patchOf is the kind of patch that does least to an object of a resource. A strategic
// merge takes an apiserver less time, as it makes no JSON of the object and none back, but
// sorts what was given as JSON inside an object, which some kinds do not let be changed.
// Secrets and ConfigMaps have bytes and strings alone.
func patchOf(r schema.GroupResource) types.PatchType {
	if r.Group == "" && (r.Resource == "secrets" || r.Resource == "configmaps") {
		return types.StrategicMergePatchType
	}
	return types.MergePatchType
}

func (r *run) read(ctx context.Context, o Object) (version, error) {
	v, err := r.object(ctx, kubeapi.Request{Method: http.MethodGet, Path: pathOf(r.resource, &o), Accept: metadata})
	v.Object = o
	return v, err
}

func (r *run) object(ctx context.Context, q kubeapi.Request) (version, error) {
	var m meta
	err := r.persist.call(ctx, func(ctx context.Context) error { return r.cluster.api.Ask(ctx, q, &m) })
	return m.version(), err
}
