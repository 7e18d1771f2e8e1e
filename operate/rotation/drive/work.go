package drive

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/kube-atrest/atrest/operate/rotation"
)

// job is what goes on beside the loop, which it wakes when it is over.
type job struct {
	cancel context.CancelFunc
	done   chan struct{}
}

func (d *driver) begin(ctx context.Context, work func(context.Context)) job {
	ctx, cancel := context.WithCancel(ctx)
	j := job{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer func() {
			close(j.done)
			select {
			case d.woken <- struct{}{}:
			default:
			}
		}()
		work(ctx)
	}()
	return j
}

func (j job) over() bool {
	select {
	case <-j.done:
		return true
	default:
		return false
	}
}

// end stops a job and waits for it.
func (j job) end() {
	j.cancel()
	<-j.done
}

// writeConfigs changes one file after another.
func (d *driver) writeConfigs(ctx context.Context, a rotation.WriteConfig) []error {
	var problems []error
	for _, instance := range slices.Sorted(maps.Keys(a.Hashes)) {
		if d.overdue() {
			break
		}
		err := d.bounded(ctx, func(ctx context.Context) error {
			return d.world.WriteConfig(ctx, instance, a.Stage, a.Hashes[instance])
		})
		if err != nil {
			problems = append(problems, fmt.Errorf("configuration of %s: %w", instance, err))
		}
	}
	return problems
}

// show makes a write, and keeps what it showed. A write that failed shows nothing,
// and leaves nothing of what an earlier one did.
func (d *driver) show(ctx context.Context, a rotation.Canary) error {
	delete(d.shown, a.Instance)
	return d.bounded(ctx, func(ctx context.Context) error {
		at := d.options.Clock.Now()
		shown, err := d.world.Canary(ctx, a)
		if shown.At, shown.Identities = at, d.running; err == nil {
			d.shown[a.Instance] = shown
		}
		return err
	})
}

// bounded gives an action its time.
func (d *driver) bounded(ctx context.Context, act func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, d.options.ActionTimeout)
	defer cancel()
	return act(ctx)
}

// rewriting is a migration: resources are rewritten one after another.
type rewriting struct {
	job
	goal rotation.Goal

	mu       sync.Mutex
	progress map[string]rotation.Progress
}

// rewrite begins a migration, unless it is under way. What an earlier attempt
// for the same goal came to is not forgotten.
func (d *driver) rewrite(ctx context.Context, a rotation.Migrate) {
	progress := map[string]rotation.Progress{}
	if r := d.rewriting; r != nil && r.goal == a.Goal {
		if !r.over() {
			return
		}
		progress = r.progress
	}
	r := &rewriting{goal: a.Goal, progress: progress}
	for _, resource := range a.Resources {
		progress[resource] = rotation.Progress{Goal: a.Goal, Resource: resource, Phase: rotation.Running}
	}
	r.job = d.begin(ctx, func(ctx context.Context) {
		for _, resource := range a.Resources {
			err := d.world.Migrate(ctx, a.Goal, a.Providers, resource)
			if ctx.Err() != nil {
				return
			}
			r.ended(resource, err, d.options.Clock.Now())
		}
	})
	d.rewriting = r
}

func (r *rewriting) ended(resource string, err error, at time.Time) {
	p := rotation.Progress{Goal: r.goal, Resource: resource, Phase: rotation.Succeeded, EndedAt: at}
	if err != nil {
		p.Phase, p.Problem = rotation.Failed, err.Error()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.progress[resource] = p
}

// reports are what is known of the latest migration; nil has none.
func (r *rewriting) reports() []rotation.Progress {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Values(r.progress))
}

// abandon stops a migration that is no longer wanted.
func (d *driver) abandon() {
	if r := d.rewriting; r != nil && (d.state.Migration == nil || d.state.Migration.Goal != r.goal) {
		r.end()
		d.rewriting = nil
	}
}

// counting is an audit.
type counting struct {
	job
	began time.Time
	audit rotation.Audit
	err   error
}

// count begins an audit, unless one is under way that will count.
func (d *driver) count(ctx context.Context, a rotation.RunAudit) {
	now := d.options.Clock.Now()
	if c := d.counting; c != nil && !c.began.After(a.After) {
		c.end()
		d.counting = nil
	}
	if d.counting != nil || now.Before(d.countAfter) || !now.After(a.After) {
		return
	}
	c := &counting{began: now}
	c.job = d.begin(ctx, func(ctx context.Context) {
		c.audit, c.err = d.world.Audit(ctx, a.Resources)
		c.audit.StartedAt = now
	})
	d.counting = c
}

// takeCount takes in an audit that is over. One that failed proves nothing, and is
// asked for again.
func (d *driver) takeCount() error {
	c := d.counting
	if c == nil || !c.over() {
		return nil
	}
	d.counting = nil
	if c.err != nil {
		d.countAfter = d.options.Clock.Now().Add(d.options.Interval)
		return fmt.Errorf("count of what is stored: %w", c.err)
	}
	d.audit = &c.audit
	return nil
}
