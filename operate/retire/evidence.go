package retire

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kube-atrest/atrest/operate/audit"
	"github.com/kube-atrest/atrest/operate/fleet"
	"github.com/kube-atrest/atrest/operate/proof"
	"github.com/kube-atrest/atrest/operate/rotation"
)

// Evidence is all that was looked at.
type Evidence struct {
	Etcd Stock
	// Snapshots are the backups that are kept.
	Snapshots []Stock
	// Apiservers are as they were before etcd was walked, and after. Before,
	// because what is written with a key while one walks may not be seen.
	Apiservers [2]map[string]rotation.Instance
	// Unnamed are apiservers that the cluster has and that are not among those.
	Unnamed []string
	// Untold is why it is not known which there are, empty if it is.
	Untold string
	// Apart is why they are not known to be of one cluster, empty if they are.
	Apart string
	// Written is what they were seen to store.
	Written []Written
	// Elsewhere is which objects are not in Etcd, as far as that was seen.
	Elsewhere string
	// Beside tells of aggregated apiservers that are not among those.
	Beside []string
	// Unshown is, of those of which it was not shown that they store in Etcd, why.
	Unshown map[string]string
}

// Written is how an apiserver stores something.
type Written struct {
	Apiserver string
	Form      audit.Form
}

// Stock is what is stored in one place. It was made by [NewStock].
type Stock struct {
	Place  string
	Report *audit.Report
}

// NewStock refuses a report without any object, which would clear everything,
// and one of less than the whole keyspace: what another apiserver keeps beside
// these may need it too.
func NewStock(place string, report *audit.Report) (Stock, error) {
	if !report.Everywhere {
		return Stock{}, fmt.Errorf("%s: what is stored below %s is not all: count the whole keyspace", place, report.Prefix)
	}
	if err := report.NotEmpty(); err != nil {
		return Stock{}, fmt.Errorf("%s: %w", place, err)
	}
	return Stock{place, report}, nil
}

// Count counts all that is stored, and looks for DEKs by their hashes, which are
// [audit.Options.DEKs].
type Count func(ctx context.Context, deks []string) (etcd Stock, snapshots []Stock, err error)

// Gather asks all apiservers, has each show that it stores in the etcd of the prover,
// has everything counted, and asks them again. What is shown are canaries, which the
// caller removes; of an apiserver that has no Secrets it is a DEK that it writes with
// and that is found. The resources are all that have to be in that etcd, and without
// apiservers that are known to exist and are not asked.
func Gather(ctx context.Context, prover *proof.Prover, resources func(context.Context) ([]schema.GroupResource, error), without []string, count Count) (Evidence, error) {
	e := Evidence{Unshown: map[string]string{}}
	e.Apiservers[0] = prover.Fleet.Observe(ctx)
	for _, name := range prover.Fleet.Names() {
		for _, resource := range fleet.Canaries() {
			shown, err := prover.Show(ctx, name, resource, func(audit.Form) bool { return false })
			if err != nil {
				e.Unshown[name] = err.Error()
				break
			}
			e.Written = append(e.Written, Written{name, shown.Form})
		}
	}
	writing := slices.DeleteFunc(prover.Fleet.Names(), func(name string) bool { return e.Unshown[name] != "" })
	if _, err := proof.OneCluster(ctx, prover.Fleet, writing); err != nil {
		e.Apart = err.Error()
	}
	all, err := resources(ctx)
	if err == nil {
		err = prover.Present(ctx, all)
	}
	if err != nil {
		e.Elsewhere = err.Error()
	}
	var deks []string
	for name := range e.Unshown {
		deks = append(deks, writtenDEKs(e.Apiservers[0][name])...)
	}
	if e.Etcd, e.Snapshots, err = count(ctx, deks); err != nil {
		return Evidence{}, err
	}
	maps.DeleteFunc(e.Unshown, func(name, _ string) bool {
		return slices.ContainsFunc(writtenDEKs(e.Apiservers[0][name]), func(dek string) bool { return slices.Contains(e.Etcd.Report.DEKs, dek) })
	})
	e.Apiservers[1] = prover.Fleet.Observe(ctx)
	unnamed, err := proof.Unnamed(ctx, prover.Fleet, without)
	if err != nil {
		e.Untold = err.Error()
	}
	for _, other := range unnamed {
		e.Unnamed = append(e.Unnamed, other.Name)
	}
	return e, ctx.Err()
}

// writtenDEKs are the hashes of those that an apiserver writes with.
func writtenDEKs(i rotation.Instance) []string {
	var all []string
	for _, p := range i.Providers {
		if p.DEK != "" {
			all = append(all, p.DEK)
		}
	}
	return all
}

func (e Evidence) stocks() []Stock { return slices.Concat([]Stock{e.Etcd}, e.Snapshots) }
