package rollout

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/kube-atrest/atrest/operate/proof"
	"github.com/kube-atrest/atrest/operate/rotation"
)

// known brings into a state which cluster it is of, as the apiservers tell that answer.
// It is an error if that is another one. The others are asked with each canary.
func (r *Rotation) known(ctx context.Context, s *rotation.State) error {
	seen := r.Fleet.Observe(ctx)
	answering := slices.DeleteFunc(r.Fleet.Names(), func(name string) bool { return seen[name].Problem != "" })
	uid, err := proof.OneCluster(ctx, r.Fleet, answering)
	switch {
	case err != nil || len(answering) == 0:
		return err
	case s.Cluster != "" && uid != s.Cluster:
		return fmt.Errorf("folder %s is of a rotation of another cluster: %w", r.Folder.Path, another(answering[0], uid, s.Cluster))
	}
	s.Cluster = uid
	return nil
}

// isOf is an error unless an apiserver is of the cluster of the rotation, and of that of
// those that were asked before.
func (w *world) isOf(ctx context.Context, apiserver string) error {
	uid, err := w.fleet.Cluster(ctx, apiserver)
	if err != nil {
		return err
	}
	if w.cluster == nil {
		w.cluster = &uid
	}
	if uid != *w.cluster {
		return another(apiserver, uid, *w.cluster)
	}
	return nil
}

// save is a Save that stores which cluster it is of, too.
func (w *world) save(next func(rotation.State) error) func(rotation.State) error {
	return func(s rotation.State) error {
		if w.cluster != nil {
			s.Cluster = cmp.Or(s.Cluster, *w.cluster)
		}
		w.stages.swapped = s.Move != nil && s.Move.Begun()
		return next(s)
	}
}

func another(apiserver, is, want string) error {
	return fmt.Errorf("the namespace kube-system of apiserver %s has UID %q, and that of this rotation %q: name the apiservers of that cluster, or a new folder", apiserver, is, want)
}
