package audit

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
)

// DefaultMaxListed is how many etcd keys are listed of each row and problem.
const DefaultMaxListed = 10

// Options are how a walk is done. The zero value of each is its default.
type Options struct {
	// Layout finds the resource of an etcd key; default that of kube-apiserver.
	Layout Layout
	// Within is what to walk of the layout: a path below its prefix, such as that
	// of a resource ([Layout.Path]); default all.
	Within string
	// Names are those of the configuration in use, for names that contain ':'.
	Names Names
	// KeyIDs puts the key_ids themselves into the report, beside their hashes.
	KeyIDs bool
	// Open, if set, has to open each encrypted object and tell whether it could.
	// It keeps nothing of the object.
	Open func(ctx context.Context, r schema.GroupResource, o Object) error
	// Each, if set, is told of every object, by the goroutine of the walk: its
	// resource, its etcd key and how it is stored.
	Each func(r schema.GroupResource, key string, f Form)
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
	prefix := o.Layout.Prefix() + o.Within
	contents, err := source.Read(ctx, prefix)
	if err != nil {
		return nil, err
	}
	t := newTally(o.MaxListed)
	pace := newPace(o.Rate, o.Clock)
	done := int64(0)
	for object, err := range contents.Objects {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return nil, fmt.Errorf("after %d of %d objects: %w", done, contents.Total, err)
		}
		o.inspect(ctx, t, object)
		done++
		if done%progressEvery == 0 {
			o.Progress(done, contents.Total)
		}
		if err := pace.wait(ctx, done); err != nil {
			return nil, fmt.Errorf("after %d of %d objects: %w", done, contents.Total, err)
		}
	}
	o.Progress(done, contents.Total)
	report := t.report()
	report.Prefix, report.Revision, report.Opened = prefix, contents.Revision, o.Open != nil
	report.Cluster = contents.Cluster
	return report, nil
}

// inspect counts one object.
func (o *Options) inspect(ctx context.Context, t *tally, object Object) {
	resource, known := o.Layout.Resource(object.Key)
	i := Inspect(object.Value, o.Names)
	if o.KeyIDs {
		i.Form.KeyID = cut(i.KeyID, len(i.KeyID))
	}
	var opening error
	if o.Open != nil && i.Problem == nil {
		opening = o.Open(ctx, resource, object)
	}
	t.add(object, resource, known, i, opening)
	if o.Each != nil {
		o.Each(resource, object.Key, i.Form)
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
