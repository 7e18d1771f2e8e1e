package retire

import (
	"context"
	"fmt"
	"slices"

	"github.com/kube-atrest/atrest/operate/audit"
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

// Gather asks all apiservers, has everything counted, and asks them again.
func Gather(ctx context.Context, observe func(context.Context) map[string]rotation.Instance,
	count func(context.Context) (etcd Stock, snapshots []Stock, err error)) (Evidence, error) {
	var e Evidence
	var err error
	e.Apiservers[0] = observe(ctx)
	if e.Etcd, e.Snapshots, err = count(ctx); err != nil {
		return Evidence{}, err
	}
	e.Apiservers[1] = observe(ctx)
	return e, ctx.Err()
}

func (e Evidence) stocks() []Stock { return slices.Concat([]Stock{e.Etcd}, e.Snapshots) }
