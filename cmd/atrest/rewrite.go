package main

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kube-atrest/atrest/operate/audit"
	"github.com/kube-atrest/atrest/operate/migrate"
)

// rewriteFlags say how objects are rewritten.
type rewriteFlags struct {
	state    string
	qps      float64
	workers  int
	pageSize int64
	patience time.Duration
}

func (f *rewriteFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.state, "state", "", "folder for how far each resource has come; without it the next run begins at the beginning")
	flags.Float64Var(&f.qps, "qps", 100, "objects patched in a second at most; 0 is no limit")
	flags.IntVar(&f.workers, "workers", 4, "patches under way at once, 1 to 64")
	flags.Int64Var(&f.pageSize, "page-size", 250, "objects listed at once, 1 to 10000; memory grows with it, by some kilobytes for each")
	flags.DurationVar(&f.patience, "patience", 2*time.Minute, "how long an apiserver that is away or busy is waited for")
}

func (f *rewriteFlags) check() error {
	switch {
	case f.qps != 0 && !(f.qps >= 0.001):
		return usagef("flag --qps is %v: at least 0.001, or 0 for no limit", f.qps)
	case f.workers < 1 || f.workers > 64:
		return usagef("flag --workers is %d: 1 to 64", f.workers)
	case f.patience <= 0:
		return usagef("flag --patience is %s: it has to be over 0", f.patience)
	case f.pageSize < 1 || f.pageSize > 10_000:
		return usagef("flag --page-size is %d: 1 to 10000", f.pageSize)
	}
	return nil
}

// rewriter has stored objects rewritten through an apiserver, and looks into etcd
// for which and whether they were. It is for one goroutine.
type rewriter struct {
	streams
	// from is where the objects are, layout how, and names what keys and providers
	// they are stored with.
	from   audit.Source
	layout audit.Layout
	names  audit.Names
	walk   walkFlags
	// cluster is the apiserver that stores them again.
	cluster *migrate.Cluster
	how     rewriteFlags

	served []schema.GroupVersionResource // as of the latest look
}

// errNotServed says that an object cannot be rewritten through the API.
var errNotServed = errors.New("the apiserver serves no such resource that can be listed, read and patched: " +
	"what is stored of it, an apiserver's own controllers write again, or its API has to be turned on, or it is to be deleted")

// rewrite rewrites the objects of a resource that need it, as etcd has them now.
// goal tells runs apart: one that was interrupted goes on if it was for the
// same. The error is that of [migrate.Cluster.Rewrite], or wraps errNotServed.
func (r *rewriter) rewrite(ctx context.Context, resource schema.GroupResource, goal string, needs func(audit.Form) bool, progress func(migrate.Progress)) error {
	needy, err := r.needy(ctx, resource, needs)
	if err != nil || needy.len() == 0 {
		return err
	}
	version, err := r.version(ctx, resource)
	if err != nil {
		return err
	}
	file := checkpointFile{folder: r.how.state, resource: resource}
	from, err := file.load(version, goal)
	if err != nil {
		return err
	}
	done := from.Counts.Rewritten + from.Counts.Unchanged + from.Counts.Gone + from.Counts.Failed
	_, err = r.cluster.Rewrite(ctx, version, from, migrate.Options{
		Needs: needy.has, Expected: done + int64(needy.len()), Goal: goal,
		PerSecond: r.how.qps, Workers: r.how.workers, PageSize: r.how.pageSize, Patience: r.how.patience,
		Progress: progress, Save: file.save,
	})
	return err
}

// count counts what resources are stored under, or everything if none is named.
// Each resource is as of a revision of etcd of its own, and Revision is that of
// the first. There is an error if nothing at all is stored.
func (r *rewriter) count(ctx context.Context, resources []schema.GroupResource) (*audit.Report, error) {
	report, err := r.countEach(ctx, resources)
	if err != nil || report.Objects > 0 {
		return report, err
	}
	all, err := r.look(ctx, "", nil)
	if err != nil {
		return nil, err
	}
	return report, somethingIn(all)
}

// somethingIn is an error if nothing at all was found, which would prove all.
func somethingIn(report *audit.Report) error {
	if report.Objects > 0 {
		return nil
	}
	return fmt.Errorf("nothing at all is stored below %s: name the etcd of the apiservers, and their --etcd-prefix with --prefix", report.Prefix)
}

func (r *rewriter) countEach(ctx context.Context, resources []schema.GroupResource) (*audit.Report, error) {
	if len(resources) == 0 {
		return r.look(ctx, "", nil)
	}
	var all *audit.Report
	for _, resource := range resources {
		for _, path := range r.layout.Paths(resource) {
			report, err := r.look(ctx, path, nil)
			if err != nil {
				return nil, fmt.Errorf("counting %s: %w", resource, err)
			}
			if all == nil {
				all = report
				continue
			}
			all.Prefix = r.layout.Prefix()
			all.Objects += report.Objects
			all.Bytes += report.Bytes
			all.Resources = append(all.Resources, report.Resources...)
			all.Problems = append(all.Problems, report.Problems...)
			all.Guessed = append(all.Guessed, report.Guessed...)
		}
	}
	return all, nil
}

// look walks a part of the store.
func (r *rewriter) look(ctx context.Context, within string, each func(schema.GroupResource, string, audit.Form)) (*audit.Report, error) {
	return walk(ctx, r.streams, r.from, audit.Options{
		Layout: r.layout, Names: r.names, Rate: r.walk.rate, MaxListed: r.walk.list, Within: within, Each: each,
	})
}

// version is in which version an apiserver serves a resource.
func (r *rewriter) version(ctx context.Context, resource schema.GroupResource) (schema.GroupVersionResource, error) {
	find := func() (schema.GroupVersionResource, bool) {
		i := slices.IndexFunc(r.served, func(served schema.GroupVersionResource) bool { return served.GroupResource() == resource })
		if i < 0 {
			return schema.GroupVersionResource{}, false
		}
		return r.served[i], true
	}
	if version, ok := find(); ok {
		return version, nil
	}
	var problem error
	r.served, problem = r.cluster.Resources(ctx)
	version, ok := find()
	switch {
	case ok:
		return version, nil
	case problem != nil:
		return version, fmt.Errorf("%s: the apiserver does not say in which version it serves it: %w", resource, problem)
	}
	return version, fmt.Errorf("%s: %w", resource, errNotServed)
}

// needy is a set of objects of one resource.
type needy struct {
	seed   maphash.Seed
	hashes []uint64 // sorted
}

// needy finds the objects that have to be rewritten. It keeps eight bytes of
// each, a keyed hash of its name, and while it grows twice as much. That
// another object has the same hash costs no more than a patch without effect.
func (r *rewriter) needy(ctx context.Context, resource schema.GroupResource, needs func(audit.Form) bool) (*needy, error) {
	found := &needy{seed: maphash.MakeSeed()}
	for _, path := range r.layout.Paths(resource) {
		within := r.layout.Prefix() + path
		_, err := r.look(ctx, path, func(of schema.GroupResource, key string, f audit.Form) {
			if of == resource && needs(f) {
				found.hashes = append(found.hashes, maphash.String(found.seed, strings.TrimPrefix(key, within)))
			}
		})
		if err != nil {
			return nil, fmt.Errorf("looking for what of %s has to be rewritten: %w", resource, err)
		}
	}
	slices.Sort(found.hashes)
	return found, nil
}

func (n *needy) len() int { return len(n.hashes) }

// has is safe for concurrent use. Below the path of its resource, the etcd key
// of an object is namespace/name.
func (n *needy) has(o migrate.Object) bool {
	_, found := slices.BinarySearch(n.hashes, maphash.String(n.seed, o.String()))
	return found
}
