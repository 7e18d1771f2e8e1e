package reencrypt

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kube-atrest/atrest/operate/audit"
	"github.com/kube-atrest/atrest/operate/migrate"
)

// Walker is [audit.Run], or one that shows how it goes.
type Walker func(ctx context.Context, from audit.Source, o audit.Options) (*audit.Report, error)

// Store has stored objects rewritten through an apiserver, and looks into etcd
// for which and whether they were. It is for one goroutine.
type Store struct {
	// From is where the objects are. Audit says how they are stored, with what
	// keys and providers, and how they are walked by Walk.
	From  audit.Store
	Audit audit.Options
	Walk  Walker
	// Cluster is the apiserver that stores them again, How in what way, and
	// Checkpoints where it is kept how far that is.
	Cluster     *migrate.Cluster
	How         migrate.Options
	Checkpoints migrate.Folder
}

// Rewrite rewrites the objects of a resource that need it, as etcd has them now.
// goal tells runs apart: one that was interrupted goes on if it was for the
// same. The error is that of [migrate.Cluster.Rewrite], or wraps
// [migrate.ErrNoResource].
func (s *Store) Rewrite(ctx context.Context, resource schema.GroupResource, goal string, needs func(audit.Form) bool, progress func(migrate.Progress)) error {
	needy, err := s.needy(ctx, resource, needs)
	if err != nil || needy.len() == 0 {
		return err
	}
	version, err := s.version(ctx, resource)
	if err != nil {
		return err
	}
	from, err := s.Checkpoints.Load(version, goal)
	if err != nil {
		return err
	}
	o := s.How
	o.Needs, o.Goal, o.Progress, o.Save = needy.has, goal, progress, s.Checkpoints.Save
	o.Expected = from.Counts.Rewritten + from.Counts.Unchanged + from.Counts.Gone + from.Counts.Failed + int64(needy.len())
	_, err = s.Cluster.Rewrite(ctx, version, from, o)
	return err
}

// version is in which version a resource is served. Of one whose etcd keys do not tell
// the group it may be another that is not served so.
func (s *Store) version(ctx context.Context, r schema.GroupResource) (schema.GroupVersionResource, error) {
	version, err := s.Cluster.Version(ctx, r)
	if !errors.Is(err, migrate.ErrNoResource) {
		return version, err
	}
	layout := s.Audit.Layout
	if _, known := layout.Resource(layout.Places(r)[0]); !known {
		err = fmt.Errorf("%w; its etcd keys do not tell its group: if it is of one, say so before anything else: --map %s=%s.GROUP", err, r.Resource, r.Resource)
	}
	return version, err
}

// Count counts what resources are stored under, or everything if none is named.
// Each resource is as of a revision of etcd of its own, and Revision is that of
// the first. There is an error if nothing at all is stored.
func (s *Store) Count(ctx context.Context, resources []schema.GroupResource) (*audit.Report, error) {
	report, err := s.countEach(ctx, resources)
	if err != nil || report.Objects > 0 {
		return report, err
	}
	all, err := s.look(ctx, "", nil)
	if err != nil {
		return nil, err
	}
	return report, all.NotEmpty()
}

// CountEverything counts the whole keyspace, under whatever prefix, as there may be
// objects of other apiservers. There is an error if nothing at all is stored below
// the prefix of these. each is called with every object.
func (s *Store) CountEverything(ctx context.Context, each func(r schema.GroupResource, key string, f audit.Form)) (*audit.Report, error) {
	o := s.Audit
	o.Everywhere, o.Each = true, each
	report, err := s.Walk(ctx, s.From, o)
	if err != nil {
		return nil, err
	}
	return report, report.NotEmpty()
}

func (s *Store) countEach(ctx context.Context, resources []schema.GroupResource) (*audit.Report, error) {
	if len(resources) == 0 {
		return s.look(ctx, "", nil)
	}
	var all *audit.Report
	for _, resource := range resources {
		for _, path := range s.Audit.Layout.Places(resource) {
			report, err := s.look(ctx, path, nil)
			if err != nil {
				return nil, fmt.Errorf("counting %s: %w", resource, err)
			}
			if all == nil {
				all = report
				continue
			}
			all.Prefix = s.Audit.Layout.Prefix()
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
func (s *Store) look(ctx context.Context, within string, each func(schema.GroupResource, string, audit.Form)) (*audit.Report, error) {
	o := s.Audit
	o.Each = each
	if within != "" {
		o.Within = []string{within}
	}
	return s.Walk(ctx, s.From, o)
}

// needy is a set of objects of one resource.
type needy struct {
	seed   maphash.Seed
	hashes []uint64 // sorted
}

// needy finds the objects that have to be rewritten. It keeps eight bytes of
// each, a keyed hash of its name, and while it grows twice as much. That
// another object has the same hash costs no more than a patch without effect.
func (s *Store) needy(ctx context.Context, resource schema.GroupResource, needs func(audit.Form) bool) (*needy, error) {
	found := &needy{seed: maphash.MakeSeed()}
	for _, within := range s.Audit.Layout.Places(resource) {
		_, err := s.look(ctx, within, func(of schema.GroupResource, key string, f audit.Form) {
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
