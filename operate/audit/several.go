package audit

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Several are the etcds of one cluster of which some hold certain resources, as
// kube-apiserver has them with --etcd-servers-overrides. A walk goes through all
// of them, whatever they are to hold: what was left in the one when a resource
// moved to the other needs its key all the same. It is safe for concurrent use
// if the stores are.
type Several struct {
	layout  Layout
	stores  []Store // the main one first
	holders map[schema.GroupResource]int
}

var _ Store = (*Several)(nil)

// NewSeveral has one store for all resources but those that holders names the
// store of. The same store may hold several resources.
func NewSeveral(layout Layout, main Store, holders map[schema.GroupResource]Store) *Several {
	s := &Several{layout: layout, stores: []Store{main}, holders: map[schema.GroupResource]int{}}
	for _, r := range sortedResources(holders) {
		i := slices.Index(s.stores, holders[r])
		if i < 0 {
			i = len(s.stores)
			s.stores = append(s.stores, holders[r])
		}
		s.holders[r] = i
	}
	return s
}

func sortedResources[T any](of map[schema.GroupResource]T) []schema.GroupResource {
	var all []schema.GroupResource
	for r := range of {
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b schema.GroupResource) int { return strings.Compare(a.String(), b.String()) })
	return all
}

// String names all stores, and what each but the first is for.
func (s *Several) String() string {
	text := s.stores[0].String()
	for i, store := range s.stores[1:] {
		var held []string
		for _, r := range sortedResources(s.holders) {
			if s.holders[r] == i+1 {
				held = append(held, r.String())
			}
		}
		text += fmt.Sprintf("; for %s %s", strings.Join(held, ", "), store)
	}
	return text
}

// Find asks the store that holds the resource of the key.
func (s *Several) Find(ctx context.Context, key string) (Entry, error) {
	return s.stores[s.holder(key)].Find(ctx, key)
}

// holder is the store that an apiserver has the key in.
func (s *Several) holder(key string) int {
	r, _ := s.layout.Resource(key)
	return s.holders[r]
}

// Read begins a walk through all stores, of each as of its own revision. That two
// have one cluster id does not make them one: it comes of names and a token, which
// etcds of one making may share. So one that is named twice is counted twice.
func (s *Several) Read(ctx context.Context, prefix string) (*Contents, error) {
	all := &Contents{}
	var walks []*Contents
	for _, store := range s.stores {
		contents, err := store.Read(ctx, prefix)
		if err != nil {
			return nil, err
		}
		walks = append(walks, contents)
		all.Total += contents.Total
		all.Parts = append(all.Parts, Part{Place: store.String(), Cluster: contents.Cluster, Revision: contents.Revision, Objects: contents.Total})
	}
	all.Cluster, all.Revision = walks[0].Cluster, walks[0].Revision
	all.Objects = s.objects(walks, all.Parts)
	return all, nil
}

func (s *Several) objects(walks []*Contents, parts []Part) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		for i, walk := range walks {
			for object, err := range walk.Objects {
				object.part = &parts[i]
				if err == nil && s.astray(object.Key, i, walks) {
					object.Astray = s.stores[i].String()
				}
				if !yield(object, err) || err != nil {
					return
				}
			}
		}
	}
}

// astray reports whether no apiserver looks for a key in the i-th store. The holder
// may be the same etcd by another name.
func (s *Several) astray(key string, i int, walks []*Contents) bool {
	holder := s.holder(key)
	same := holder == i || walks[holder].Cluster != 0 && walks[holder].Cluster == walks[i].Cluster
	return !same && s.layout.has(key)
}
