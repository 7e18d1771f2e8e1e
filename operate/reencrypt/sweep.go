package reencrypt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"

	"github.com/kube-atrest/atrest/operate/migrate"
)

// Sweep has every object of some resources stored again where nobody can look into
// etcd, nor ask the apiservers what they write with. It proves nothing. It is for one
// goroutine.
type Sweep struct {
	Resources []schema.GroupResource
	// Cluster, How and Checkpoints are as in [Store].
	Cluster     *migrate.Cluster
	How         migrate.Options
	Checkpoints migrate.Folder
	// Goal is what it is for and in which cluster, as its caller knows: a run that was
	// interrupted is gone on with if it was for the same.
	Goal    string
	Clock   clock.PassiveClock
	Watcher Watcher
}

// Swept is what became of the objects.
type Swept struct {
	// Proved is false. Nobody knows here under which key anything is stored.
	Proved bool `json:"proved"`
	// Rewritten are the resources, and Problems why not every object that was listed
	// is known to have been stored again or to be gone.
	Rewritten []Rewritten `json:"rewritten"`
	Problems  []string    `json:"problems"`
}

// passes is how often a run goes through a resource: once to have all stored again, once
// to see that nothing is stored again any more, and as often besides as a key may change
// under way.
const passes = 4

// Run sweeps them all, each until the apiserver left all of it as it is, from its
// beginning to its end: what an earlier pass saw may have been another key, or another
// etcd. A resource of which nothing was ever stored again is a problem, and so is one
// without objects. The error wraps [migrate.ErrNoResource] if one is not served, and then
// nothing was rewritten.
func (s *Sweep) Run(ctx context.Context) (*Swept, error) {
	var versions []schema.GroupVersionResource
	for _, r := range s.Resources {
		version, err := s.Cluster.Version(ctx, r)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(versions, version) {
			versions = append(versions, version)
		}
	}
	swept := &Swept{Problems: []string{}}
	for _, version := range versions {
		all, err := s.sweep(ctx, version)
		if err != nil {
			return nil, err
		}
		swept.Rewritten = append(swept.Rewritten, all...)
		if problem := all[len(all)-1].Problem; problem != "" {
			swept.Problems = append(swept.Problems, problem)
		}
	}
	if len(swept.Problems) > 0 {
		return swept, nil
	}
	for _, version := range versions { // another run is to see for itself
		if err := s.Checkpoints.Save(migrate.Checkpoint{Resource: version, Goal: s.goal(), Done: true}); err != nil {
			return nil, fmt.Errorf("checkpoint cannot be saved: %w", err)
		}
	}
	return swept, nil
}

func (s *Sweep) goal() string { return "without etcd: " + s.Goal }

// sweep rewrites one resource, and gives what was done by each pass. What fails for single
// objects is the problem of the last one, and the others go on.
func (s *Sweep) sweep(ctx context.Context, version schema.GroupVersionResource) ([]Rewritten, error) {
	resource, goal := version.GroupResource().String(), s.goal()
	from, err := s.Checkpoints.Load(version, goal)
	if err != nil {
		return nil, err
	}
	var all []Rewritten
	for {
		whole := from.Continue == "" && from.Counts.Seen == 0
		done, err := s.pass(ctx, version, from, goal)
		if err != nil {
			return nil, err
		}
		done.Round = len(all) + 1
		from = migrate.Checkpoint{Resource: version, Goal: goal, Again: from.Again || done.Counts.Rewritten > 0}
		settled := whole && done.Counts.Rewritten == 0
		switch {
		case done.Problem != "":
		case settled && !from.Again:
			done.Problem = untouched(resource, done.Counts)
		case !settled && done.Round == passes:
			done.Problem = fmt.Sprintf("%s: gone through %d times, and the last time %d were stored anew still: "+
				"the key changes, not all apiservers write with the same one, or a webhook changes what is updated: see to it and run it again", resource, passes, done.Counts.Rewritten)
		case !settled:
			if err := s.Checkpoints.Save(from); err != nil {
				return nil, fmt.Errorf("checkpoint cannot be saved: %w", err)
			}
		}
		if all = append(all, done); settled || done.Problem != "" {
			return all, nil
		}
	}
}

// untouched is what may be wrong when nothing was stored again.
func untouched(resource string, c migrate.Counts) string {
	switch {
	case c.Seen == 0:
		return fmt.Sprintf("%s: the apiserver lists no object: is it the right cluster, and may the user see them?", resource)
	case c.Unchanged > 0:
		return fmt.Sprintf("%s: the apiserver left every object as it is, as it would write it so now: "+
			"they were rewritten before, or it does not write with another key yet", resource)
	}
	return ""
}

// pass goes through a resource, from a checkpoint on.
func (s *Sweep) pass(ctx context.Context, version schema.GroupVersionResource, from migrate.Checkpoint, goal string) (Rewritten, error) {
	done := Rewritten{Resource: version.GroupResource().String()}
	show, end := s.Watcher.Rewriting(done.Resource)
	defer end()
	o := s.How
	o.Goal, o.Progress, o.Save = goal, show, s.Checkpoints.Save
	began := s.Clock.Now()
	last, err := s.Cluster.Rewrite(ctx, version, from, o)
	done.Counts, done.Took = last.Counts, s.Clock.Since(began).Round(time.Millisecond).String()
	var incomplete *migrate.IncompleteError
	if errors.As(err, &incomplete) || errors.Is(err, migrate.ErrUnreadable) {
		done.Problem, err = err.Error(), nil
	}
	return done, err
}
