package audit

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"

	"github.com/kube-atrest/atrest/internal/hashed"
	"github.com/kube-atrest/atrest/internal/stored"
)

// DefaultMaxListed is how many etcd keys are listed of each row and problem.
const DefaultMaxListed = 10

// Options are how a walk is done. The zero value of each is its default.
type Options struct {
	// Layout finds the resource of an etcd key; default that of kube-apiserver.
	Layout Layout
	// Within is what to walk of the layout: what etcd keys begin with, such as those of
	// a resource ([Layout.Places]), or that without the layout's prefix, each as of a
	// revision of its own; default all.
	Within []string
	// Everywhere walks the whole keyspace instead. Outside the layout's prefix
	// counts what begins with "k8s:enc:", and the plaintext of Encrypts, under its own
	// resource where that can be told from the etcd key. Two apiservers with different prefixes may share
	// an etcd, and a key.
	Everywhere bool
	// Encrypts, if set, tells of which resources nothing is to be in plaintext, whatever
	// the prefix.
	Encrypts func(schema.GroupResource) bool
	// Names are those of the configuration in use, for names that contain ':'.
	Names Names
	// KeyIDs puts the key_ids themselves into the report, beside their hashes.
	KeyIDs bool
	// Open, if set, has to open each encrypted object and tell whether it could, or
	// [ErrNotTried].
	// It keeps nothing of the object.
	Open func(ctx context.Context, r schema.GroupResource, o Object) error
	// Each, if set, is told of every object, by the goroutine of the walk: its
	// resource, its etcd key and how it is stored.
	Each func(r schema.GroupResource, key string, f Form)
	// DEKs are the hashes of DEKs, as [healthz.Provider.DEKHash], that are looked for:
	// see [Report.DEKs].
	DEKs []string
	// Rate is how many objects are read in a second at most; default no limit.
	Rate int
	// MaxListed is how many etcd keys are listed of each row and problem.
	MaxListed int
	// Progress is told how many of the objects were read, after each hundred and
	// at the end, by the goroutine of the walk.
	Progress func(done, total int64)
	// Clock paces the walk; default the real one.
	Clock clock.Clock
}

func (o Options) withDefaults() Options {
	if o.Layout.prefix == "" {
		o.Layout = NewLayout("", nil)
	}
	if o.MaxListed <= 0 {
		o.MaxListed = DefaultMaxListed
	}
	if o.Progress == nil {
		o.Progress = func(int64, int64) {}
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	return o
}

// progressEvery is in objects.
const progressEvery = 100

// Run walks what a source holds and counts it. An error ends it without a
// report: a part would look like the whole. It holds one object at a time, and
// of what it counts [MaxRows] rows and a million DEKs; what else is held is the
// source's.
func Run(ctx context.Context, source Source, o Options) (*Report, error) {
	o = o.withDefaults()
	w := &walk{Options: o, tally: newTally(o.MaxListed), pace: newPace(o.Rate, o.Clock)}
	if err := w.begin(ctx, source); err != nil {
		return nil, err
	}
	for _, contents := range w.contents {
		for object, err := range contents.Objects {
			if err == nil {
				err = w.object(ctx, object)
			}
			if err != nil {
				return nil, fmt.Errorf("after %d of %d objects: %w", w.done, w.total, err)
			}
		}
	}
	o.Progress(w.done, w.total)
	return w.report(), nil
}

// walk is one that is under way.
type walk struct {
	Options
	tally       *tally
	pace        pace
	contents    []*Contents
	done, total int64
	beside      int64    // how many were, of the layout
	found       []string // of DEKs
	uid         string   // of the cluster
}

// prefixes are those of the keys to walk.
func (w *walk) prefixes() []string {
	if w.Everywhere {
		return []string{""}
	}
	if len(w.Within) == 0 {
		return w.Layout.prefixes()
	}
	var all []string
	for _, path := range w.Within {
		if !strings.HasPrefix(path, "/") {
			path = w.Layout.Prefix() + path
		}
		all = append(all, path)
	}
	return all
}

func (w *walk) begin(ctx context.Context, source Source) error {
	for _, prefix := range w.prefixes() {
		contents, err := source.Read(ctx, prefix)
		if err != nil {
			return err
		}
		w.contents = append(w.contents, contents)
		w.total += contents.Total
	}
	return nil
}

// object counts one, and returns when it is time for the next.
func (w *walk) object(ctx context.Context, object Object) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if w.counts(object) {
		if object.part != nil && object.Astray == "" && strings.HasPrefix(object.Key, w.Layout.Prefix()) {
			object.part.Placed++
		}
		w.inspect(ctx, object)
	}
	w.done++
	if w.done%progressEvery == 0 {
		w.Progress(w.done, w.total)
	}
	return w.pace.wait(ctx, w.done)
}

// kineHealth is a key that kine, the etcd of k3s, writes for itself.
const kineHealth = "health"

// counts reports whether an object is one of an apiserver, as far as can be told.
func (w *walk) counts(object Object) bool {
	if w.Layout.isBeside(object.Key) {
		w.beside++
	}
	if object.Key == w.Layout.Prefix()+kineHealth && !stored.IsEncrypted(object.Value) {
		return false
	}
	if w.Layout.has(object.Key) {
		return true
	}
	encrypted := stored.IsEncrypted(object.Value)
	plaintext := !encrypted && w.isPlaintext(object)
	w.tally.outside.add(object.Key, encrypted, plaintext)
	return encrypted || plaintext
}

// isPlaintext reports whether an object that is not below the layout's prefix is one of
// those that are to be encrypted, as far as can be told from its etcd key.
func (w *walk) isPlaintext(object Object) bool {
	if w.Encrypts == nil {
		return false
	}
	r, known := w.Layout.elsewhere(object.Key)
	return known && w.Encrypts(r) && Inspect(object.Value, w.Names).Form.Kind == Plaintext
}

func (w *walk) report() *Report {
	r := w.tally.report()
	r.Prefix, r.Everywhere, r.Opened = w.Layout.Prefix(), w.Everywhere, w.Open != nil
	switch prefixes := w.prefixes(); {
	case len(prefixes) == 1 && !w.Everywhere:
		r.Prefix = prefixes[0]
	case len(w.Within) == 0:
		r.Beside, r.beside = w.Layout.Beside(), w.beside
	}
	r.DEKs, r.UID = w.found, w.uid
	first := w.contents[0]
	r.Cluster, r.Revision = first.Cluster, first.Revision
	for _, contents := range w.contents {
		r.addParts(contents.Parts)
	}
	return r
}

// inspect counts one object.
func (w *walk) inspect(ctx context.Context, object Object) {
	find := w.Layout.Resource
	if !w.Layout.has(object.Key) {
		find = w.Layout.elsewhere
	}
	resource, known := find(object.Key)
	i := Inspect(object.Value, w.Names)
	if w.KeyIDs {
		i.Form.KeyID = cut(i.KeyID, len(i.KeyID))
	}
	object.beside = !w.Everywhere && w.Layout.Shares(object.Key)
	var opening error
	if w.Open != nil && i.Problem == nil {
		opening = w.Open(ctx, resource, object)
	}
	w.tally.add(object, resource, known, i, opening)
	w.look(i.WrappedDEK)
	if object.Key == w.Layout.OfCluster() && i.Form.Kind == Plaintext {
		meta, _ := Metadata(object.Value)
		w.uid = string(meta.UID)
	}
	if w.Each != nil {
		w.Each(resource, object.Key, i.Form)
	}
}

// look notes a DEK that is looked for.
func (w *walk) look(wrapped []byte) {
	if len(w.DEKs) == 0 || len(wrapped) == 0 {
		return
	}
	if dek := hashed.Name(wrapped); slices.Contains(w.DEKs, dek) && !slices.Contains(w.found, dek) {
		w.found = append(w.found, dek)
	}
}

// pace holds a walk to a rate.
type pace struct {
	clock clock.Clock
	start time.Time
	rate  int
}

func newPace(rate int, c clock.Clock) pace { return pace{clock: c, start: c.Now(), rate: rate} }

// shortestWait spares a timer for every object.
const shortestWait = 20 * time.Millisecond

// wait returns when it is time for the object after the first done ones.
func (p pace) wait(ctx context.Context, done int64) error {
	if p.rate <= 0 {
		return nil
	}
	due := p.start.Add(time.Duration(float64(done) / float64(p.rate) * float64(time.Second)))
	early := due.Sub(p.clock.Now())
	if early < shortestWait {
		return nil
	}
	timer := p.clock.NewTimer(early)
	defer timer.Stop()
	select {
	case <-timer.C():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
