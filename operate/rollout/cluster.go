package rollout

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kube-atrest/atrest/operate/proof"
	"github.com/kube-atrest/atrest/operate/reencrypt"
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

// Stranded is an error for what is stored of the resources and no apiserver lists, before
// anything is written with what is to write.
func (p *Prepared) Stranded(ctx context.Context, store *reencrypt.Store) error {
	if p.State.Move != nil && p.State.Move.Begun() {
		return nil // what is rewritten by now is told as it goes
	}
	return p.world(store, nil).prover.Stranded(ctx, parsed(p.State.Plan.Resources))
}

// Unserved warns of each resource that a configuration names and that the cluster does not
// serve, as of a typo: then what was meant is not of the rotation.
func (p *Prepared) Unserved(ctx context.Context) []string {
	all, problem := p.rotation.Cluster.Resources(ctx)
	served := func(r schema.GroupResource) bool {
		return slices.ContainsFunc(all, func(s schema.GroupVersionResource) bool {
			return s.Group == r.Group && (r.Resource == "*" || s.Resource == r.Resource)
		})
	}
	if problem != nil && len(all) == 0 {
		return []string{"whether all resources that the configurations name are served is not known: " + problem.Error()}
	}
	in := map[string][]string{}
	for _, apiserver := range slices.Sorted(maps.Keys(p.found.parsed)) {
		for _, w := range p.found.parsed[apiserver].Unserved(served) {
			in[w.String()] = append(in[w.String()], apiserver)
		}
	}
	var texts []string
	for _, text := range slices.Sorted(maps.Keys(in)) {
		of := "configuration of " + strings.Join(in[text], ", ") + ": " + text
		if problem != nil {
			of += "; this is not certain, as not all that is served was told: " + problem.Error()
		}
		texts = append(texts, of)
	}
	return texts
}
