package rollout

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/operate/audit"
	"github.com/kube-atrest/atrest/operate/fleet"
	"github.com/kube-atrest/atrest/operate/migrate"
	"github.com/kube-atrest/atrest/operate/reencrypt"
	"github.com/kube-atrest/atrest/operate/rotation"
)

// world is the cluster, as a rotation sees and changes it; see [drive.World].
type world struct {
	fleet  *fleet.Fleet
	stages stages
	store  *reencrypt.Store
	// canaries has a resource to write by provider.
	canaries  map[string]schema.GroupResource
	providers []string // of the rotation
	watcher   Watcher
}

func (w *world) Observe(ctx context.Context) map[string]rotation.Instance {
	return w.fleet.Observe(ctx)
}

func (w *world) WriteConfig(ctx context.Context, apiserver string, to rotation.Stage, hash string) error {
	return w.stages.bring(ctx, apiserver, to, hash)
}

func (w *world) Canary(ctx context.Context, c rotation.Canary) error {
	var problems []error
	written := map[schema.GroupResource]bool{}
	for _, provider := range c.Providers {
		resource, ok := w.canaries[provider]
		switch {
		case !ok:
			problems = append(problems, fmt.Errorf("no resource is written with provider %q", provider))
		case !written[resource]:
			written[resource] = true
			_, err := w.fleet.Write(ctx, c.Instance, resource)
			problems = append(problems, err)
		}
	}
	return errors.Join(problems...)
}

func (w *world) Migrate(ctx context.Context, goal rotation.Goal, providers []string, resource string) error {
	var done migrate.Counts
	defer func() { w.watcher.Rewrote(resource, done) }()
	return w.store.Rewrite(ctx, schema.ParseGroupResource(resource), fmt.Sprintf("%s/%d", goal.KeyID, goal.Round), outside(goal, providers), func(p migrate.Progress) {
		done = p.Counts
		w.watcher.Rewriting(resource, p)
	})
}

// outside reports of a form whether it has to be rewritten for a goal.
func outside(goal rotation.Goal, providers []string) func(audit.Form) bool {
	return func(f audit.Form) bool {
		switch f.Kind {
		case audit.Unknown, audit.Undecodable:
			return false // no apiserver can read it, so none can write it again
		case config.KMSv2:
			return f.KeyIDHash != goal.KeyID || !slices.Contains(providers, f.Name)
		}
		return true
	}
}

// Audit counts everything that is stored: what needs the old key can be of a
// resource that is served no more, is newer than the plan, or is stored where
// nobody would look for it.
func (w *world) Audit(ctx context.Context, resources []string) ([]rotation.Count, error) {
	report, err := w.store.Count(ctx, nil)
	if err != nil {
		return nil, err
	}
	counts, found := countsOf(report), false
	for _, c := range counts {
		if c.Resource == audit.Rest {
			return nil, fmt.Errorf("more than %d resources and ways to store them are not told apart: have everything rewritten with atrest migrate first", audit.MaxRows)
		}
		found = found || slices.Contains(w.providers, c.Provider)
	}
	if !found { // all apiservers wrote with one of them
		return nil, fmt.Errorf("no object below %s is stored with %s, which proves nothing: is this the etcd of these apiservers, and their --etcd-prefix? If so, create an object of one of %s",
			w.store.Audit.Layout.Prefix(), quoted(w.providers), strings.Join(resources, ", "))
	}
	return counts, nil
}

// countsOf are the counts of a report, as a rotation wants them.
func countsOf(report *audit.Report) []rotation.Count {
	var counts []rotation.Count
	for _, resource := range report.Resources {
		for _, stored := range resource.Forms {
			c := rotation.Count{Resource: resource.Name, Objects: stored.Objects}
			if stored.Kind == config.KMSv1 || stored.Kind == config.KMSv2 {
				c.Provider, c.KeyID = stored.Name, stored.KeyIDHash
			}
			counts = append(counts, c)
		}
	}
	return counts
}

func quoted(names []string) string {
	return `"` + strings.Join(names, `", "`) + `"`
}
