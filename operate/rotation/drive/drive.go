// Package drive carries a rotation out: it observes the apiservers, has
// [rotation.Next] decide, stores the state, acts, and begins again.
//
// What takes long, rewriting and counting, goes on beside that loop, so that the
// apiservers are watched all the while. Nothing here is final: an action that
// failed is asked for again, and a process that ends at any point, however it
// ends, is replaced by one that is given the state which was stored last.
package drive

import (
	"context"
	"fmt"
	"maps"
	"time"

	"k8s.io/utils/clock"

	"github.com/kube-atrest/atrest/operate/rotation"
)

// World is what a rotation is about. Observe, WriteConfig and Canary are called
// by the goroutine of [Run], one after another; Migrate and Audit each by one of
// their own. All of them return soon after the end of their context, and carrying
// one out twice changes nothing.
type World interface {
	// Observe asks all apiservers what they tell of themselves, and takes some
	// seconds at most. Times are by the clock of [Options].
	Observe(ctx context.Context) map[string]rotation.Instance
	// WriteConfig has the configuration file of an instance become that of a
	// stage, which has to have this hash.
	WriteConfig(ctx context.Context, instance string, to rotation.Stage, hash string) error
	// Restart has an instance that does not follow its file start anew, and may take
	// long. That it is back is observed.
	Restart(ctx context.Context, a rotation.Restart) error
	// Canary makes a write with each of the providers, and tells what it showed. It
	// returns an error, which names the apiserver and the etcd, if one of them could
	// not be read through another apiserver, or was not found in etcd.
	Canary(ctx context.Context, c rotation.Canary) (rotation.Shown, error)
	// Migrate rewrites what of the resource is not stored as the goal says with
	// one of the providers. It goes on with what a call for the same goal left.
	Migrate(ctx context.Context, goal rotation.Goal, providers []string, resource string) error
	// Audit counts all objects of the resources, and all others that are stored by
	// a KMS provider. StartedAt is set by the caller.
	Audit(ctx context.Context, resources []string) (rotation.Audit, error)
}

// Options say how a rotation is driven.
type Options struct {
	// Save stores a state, and is called before anything is done that the state
	// tells of. An error of it ends the rotation.
	Save func(rotation.State) error
	// Before is told of every turn before anything of it is done, and Tell at its end.
	// Both must return soon.
	Before, Tell func(Turn)
	// Interval is the time between two looks at the apiservers; 5 seconds if it
	// is 0.
	Interval time.Duration
	// ActionTimeout bounds each write of a configuration or of a canary; 30 seconds
	// if it is 0.
	ActionTimeout time.Duration
	Clock         clock.Clock
}

// Turn is one turn of the loop.
type Turn struct {
	// State is what was stored, and Decision what came of it.
	State    rotation.State
	Decision rotation.Decision
	// Problems are what went wrong with the actions of this turn. What is asked
	// for again is tried again.
	Problems []error
}

const (
	defaultInterval      = 5 * time.Second
	defaultActionTimeout = 30 * time.Second
)

// Run drives a rotation until it is done. It ends before that with an error only
// when the state cannot be used or stored, or with that of the context.
func Run(ctx context.Context, w World, s rotation.State, o Options) (rotation.Done, error) {
	var end rotation.Done
	err := loop(ctx, w, s, o, func(t Turn) bool {
		done, ok := t.Decision.Done()
		end = done
		return ok
	})
	return end, err
}

// Watch is Run for a rotation that never ends: a [rotation.OnePlugin] that is
// done waits for the next change of the key_id. It returns the error that Run
// would.
func Watch(ctx context.Context, w World, s rotation.State, o Options) error {
	return loop(ctx, w, s, o, func(Turn) bool { return false })
}

func loop(ctx context.Context, w World, s rotation.State, o Options, over func(Turn) bool) error {
	if err := s.Validate(); err != nil {
		return err
	}
	if o.Interval == 0 {
		o.Interval = defaultInterval
	}
	if o.ActionTimeout == 0 {
		o.ActionTimeout = defaultActionTimeout
	}
	d := &driver{world: w, options: o, state: rotation.Resume(s, o.Clock.Now()), woken: make(chan struct{}, 1), shown: map[string]rotation.Shown{}}
	defer d.stop()
	for {
		t, err := d.turn(ctx)
		if err != nil {
			return err
		}
		if o.Tell != nil {
			o.Tell(t)
		}
		if over(t) {
			return nil
		}
		if err := d.rest(ctx); err != nil {
			return err
		}
	}
}

// driver is one call of Run. All of it belongs to the goroutine of that call.
type driver struct {
	world   World
	options Options
	state   rotation.State
	saved   string
	woken   chan struct{}

	rewriting *rewriting // the latest one
	counting  *counting  // one that was not looked at yet
	audit     *rotation.Audit
	shown     map[string]rotation.Shown
	running   map[string]string // when the apiservers were observed last
	// countAfter is from when on a count that failed may be tried again.
	countAfter time.Time
	// looked is when the apiservers were observed last, by the wall clock: the other
	// one stands still while a machine sleeps.
	looked time.Time
}

// turn observes, decides, stores and acts, once.
func (d *driver) turn(ctx context.Context) (Turn, error) {
	var problems []error
	if err := d.takeCount(); err != nil {
		problems = append(problems, err)
	}
	o := rotation.Observation{Migrations: d.rewriting.reports(), Audit: d.audit, Shown: maps.Clone(d.shown)}
	o.Instances = d.world.Observe(ctx)
	d.running = rotation.Identities(o.Instances)
	if ctx.Err() != nil { // what was observed may be the end of the context alone
		return Turn{}, context.Cause(ctx)
	}
	now := d.options.Clock.Now()
	state, decision := rotation.Next(d.watched(now), o, now)
	if err := d.save(state); err != nil {
		return Turn{}, err
	}
	if d.options.Before != nil {
		d.options.Before(Turn{State: d.state, Decision: decision})
	}
	d.abandon()
	for _, a := range decision.Actions {
		if d.overdue() { // what is left is asked for again
			break
		}
		problems = append(problems, d.act(ctx, a)...)
	}
	return Turn{State: d.state, Decision: decision, Problems: problems}, nil
}

// watched is the state for one who looks now, which is resumed after a break in
// which nobody did.
func (d *driver) watched(now time.Time) rotation.State {
	s, wall := d.state, now.Round(0)
	if !d.looked.IsZero() && wall.Sub(d.looked) > time.Duration(s.Plan.MaxAge) {
		s = rotation.Resume(s, now)
	}
	d.looked = wall
	return s
}

// overdue reports whether it is time to look at the apiservers again before anything
// more is done.
func (d *driver) overdue() bool {
	return d.options.Clock.Now().Round(0).Sub(d.looked) > time.Duration(d.state.Plan.MaxAge)/2
}

// save stores a state that is not stored yet.
func (d *driver) save(s rotation.State) error {
	text, err := s.Encode()
	if err != nil {
		return err
	}
	if string(text) != d.saved {
		if err := d.options.Save(s); err != nil {
			return fmt.Errorf("state of the rotation cannot be stored, and nothing is done without: %w", err)
		}
	}
	d.state, d.saved = s, string(text)
	return nil
}

// act carries an action out, or begins to.
func (d *driver) act(ctx context.Context, a rotation.Action) []error {
	switch a := a.(type) {
	case rotation.WriteConfig:
		return d.writeConfigs(ctx, a)
	case rotation.Restart:
		if err := d.world.Restart(ctx, a); err != nil {
			return []error{fmt.Errorf("restart of %s: %w", a.Instance, err)}
		}
	case rotation.Canary:
		if err := d.show(ctx, a); err != nil && ctx.Err() == nil { // else it was interrupted
			return []error{fmt.Errorf("write through %s: %w", a.Instance, err)}
		}
	case rotation.Migrate:
		d.rewrite(ctx, a)
	case rotation.RunAudit:
		d.count(ctx, a)
	}
	return nil
}

// rest waits until it is time for the next turn, or until there is news.
func (d *driver) rest(ctx context.Context) error {
	timer := d.options.Clock.NewTimer(d.options.Interval)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-d.woken:
	case <-timer.C():
	}
	return nil
}

// stop ends what goes on beside the loop.
func (d *driver) stop() {
	if d.rewriting != nil {
		d.rewriting.end()
	}
	if d.counting != nil {
		d.counting.end()
	}
}
