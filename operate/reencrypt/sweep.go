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
	// Goal is what it is for, as its caller knows: a run that was interrupted is gone
	// on with if it was for the same.
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

// Run sweeps them all. An object that the apiserver leaves as it is counts as stored
// again, as those are left that were written meanwhile, but a resource of which all are
// left is a problem, and so is one without objects. The error wraps
// [migrate.ErrNoResource] if one is not served, and then nothing was rewritten.
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
		done, err := s.sweep(ctx, version)
		if err != nil {
			return nil, err
		}
		swept.Rewritten = append(swept.Rewritten, done)
		if done.Problem != "" {
			swept.Problems = append(swept.Problems, done.Problem)
		}
	}
	return swept, nil
}

// sweep rewrites one resource. What fails for single objects is its problem, and the
// others go on.
func (s *Sweep) sweep(ctx context.Context, version schema.GroupVersionResource) (Rewritten, error) {
	resource := version.GroupResource().String()
	done := Rewritten{Resource: resource, Round: 1}
	goal := "without etcd: " + s.Goal
	from, err := s.Checkpoints.Load(version, goal)
	if err != nil {
		return done, err
	}
	show, end := s.Watcher.Rewriting(resource)
	defer end()
	o := s.How
	o.Goal, o.Progress, o.Save = goal, show, s.Checkpoints.Save
	began := s.Clock.Now()
	last, err := s.Cluster.Rewrite(ctx, version, from, o)
	done.Counts, done.Took = last.Counts, s.Clock.Since(began).Round(time.Millisecond).String()
	var incomplete *migrate.IncompleteError
	switch c := done.Counts; {
	case errors.As(err, &incomplete), errors.Is(err, migrate.ErrUnreadable):
		done.Problem = err.Error()
	case err != nil:
		return done, err
	case c.Seen == 0:
		done.Problem = fmt.Sprintf("%s: the apiserver lists no object: is it the right cluster, and may the user see them?", resource)
	case c.Unchanged > 0 && c.Rewritten == 0:
		done.Problem = fmt.Sprintf("%s: the apiserver left every object as it is, as it would write it so now: "+
			"they were rewritten before, or it does not write with another key yet", resource)
	}
	return done, nil
}
