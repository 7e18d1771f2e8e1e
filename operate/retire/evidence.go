package retire

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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
	// Doubtful is, of the snapshots of which it is not known whether they are of this
	// cluster, why.
	Doubtful []string
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
// has everything counted, and asks them again; which there are it asks before and after,
// as one may write and leave meanwhile. What is shown are canaries, which the
// caller removes; of an apiserver that has no Secrets it is each DEK that it writes with,
// and that all are found. The resources are all that have to be in that etcd, and without
// apiservers that are known to exist and are not asked.
func Gather(ctx context.Context, prover *proof.Prover, resources func(context.Context) ([]schema.GroupResource, error), without []string, count Count) (Evidence, error) {
	e := Evidence{}
	e.askUnnamed(ctx, prover.Fleet, without)
	e.Apiservers[0] = prover.Fleet.Observe(ctx)
	lacking := e.show(ctx, prover)
	writing := slices.DeleteFunc(prover.Fleet.Names(), func(name string) bool { return e.Unshown[name] != "" })
	uid, err := proof.OneCluster(ctx, prover.Fleet, writing)
	if err != nil {
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
	for _, name := range lacking {
		deks = append(deks, writtenDEKs(e.Apiservers[0][name])...)
	}
	if e.Etcd, e.Snapshots, err = count(ctx, deks); err != nil {
		return Evidence{}, err
	}
	if err := e.compare(uid); err != nil {
		return Evidence{}, err
	}
	for _, name := range lacking {
		if theirs := writtenDEKs(e.Apiservers[0][name]); len(theirs) > 0 && !slices.ContainsFunc(theirs, func(dek string) bool { return !slices.Contains(e.Etcd.Report.DEKs, dek) }) {
			delete(e.Unshown, name)
		} else {
			e.Unshown[name] = "it serves no Secrets, and not every DEK that it tells to write with is in what was counted: " +
				"have an object that it encrypts written through it; if that does not help, name its etcd"
		}
	}
	e.Apiservers[1] = prover.Fleet.Observe(ctx)
	e.askUnnamed(ctx, prover.Fleet, without)
	return e, ctx.Err()
}

// compare refuses a snapshot of another cluster than that of a UID, or of the etcd if the
// apiservers tell none: it would count for a backup of this one.
func (e *Evidence) compare(uid string) error {
	for _, backup := range e.Snapshots {
		err := proof.SameCluster(backup.Place, backup.Report.UID, "the apiservers", cmp.Or(uid, e.Etcd.Report.UID))
		if errors.Is(err, proof.ErrNoUID) {
			e.Doubtful = append(e.Doubtful, err.Error())
		} else if err != nil {
			return err
		}
	}
	return nil
}

// askUnnamed adds the apiservers that there are now and that are not asked.
func (e *Evidence) askUnnamed(ctx context.Context, f proof.Fleet, without []string) {
	unnamed, err := proof.Unnamed(ctx, f, without)
	if err != nil {
		e.Untold = err.Error()
	}
	for _, other := range unnamed {
		if !slices.Contains(e.Unnamed, other.Name) {
			e.Unnamed = append(e.Unnamed, other.Name)
		}
	}
}

// show has each apiserver store canaries. lacking are those that do not serve what a
// canary is of, so that nothing can be shown with it, and of which nothing else is wrong.
func (e *Evidence) show(ctx context.Context, prover *proof.Prover) (lacking []string) {
	e.Unshown = map[string]string{}
	for _, name := range prover.Fleet.Names() {
		serves := true
		for _, resource := range fleet.Canaries() {
			shown, err := prover.Show(ctx, name, resource, func(audit.Form) bool { return false })
			if err == nil {
				e.Written = append(e.Written, Written{name, shown.Form})
				continue
			}
			e.Unshown[name] = err.Error()
			if serves = !prover.Lacks(ctx, name, resource); serves {
				break
			}
		}
		if !serves {
			lacking = append(lacking, name)
		}
	}
	return lacking
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
