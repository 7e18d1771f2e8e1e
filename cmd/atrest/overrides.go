package main

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kube-atrest/atrest/operate/audit"
	"github.com/kube-atrest/atrest/operate/audit/etcd"
)

// holders reads --etcd-servers-overrides as kube-apiserver does: the servers, by
// ';', of each resource that an etcd of its own holds. The core group has no name.
func (s *sourceFlags) holders(layout audit.Layout) (map[schema.GroupResource]string, error) {
	servers := map[schema.GroupResource]string{}
	for _, text := range s.overrides {
		what, endpoints, _ := strings.Cut(text, "#")
		group, name, ok := strings.Cut(what, "/")
		r := schema.GroupResource{Group: group, Resource: name}
		switch {
		case !ok || name == "" || strings.Contains(name, "/") || strings.Contains(endpoints, "#"), strings.Trim(endpoints, "; ") == "":
			return nil, usagef("flag --etcd-servers-overrides: %q: write GROUP/RESOURCE#SERVER;SERVER, such as /events#https://127.0.0.1:2379", text)
		case servers[r] != "":
			return nil, usagef("flag --etcd-servers-overrides names %s twice: name all its servers at once, by ';'", r)
		}
		if err := layout.Check(r); err != nil {
			return nil, usagef("flag --etcd-servers-overrides: %w", err)
		}
		servers[r] = endpoints
	}
	return servers, nil
}

// several are the etcds that --endpoints and --etcd-servers-overrides name.
type several struct {
	*audit.Several
	stores []*etcd.Store
}

// Close ends all connections.
func (s *several) Close() {
	for _, store := range s.stores {
		store.Close()
	}
}

// openSeveral dials the main etcd, and each other one once, of however many
// resources it is.
func (s *sourceFlags) openSeveral() (source, error) {
	layout, err := s.layout()
	if err != nil {
		return nil, err
	}
	servers, err := s.holders(layout)
	if err != nil {
		return nil, err
	}
	main, err := s.dial(s.endpointList())
	if err != nil {
		return nil, err
	}
	all := &several{stores: []*etcd.Store{main}}
	dialled, holders := map[string]*etcd.Store{}, map[schema.GroupResource]audit.Store{}
	for r, endpoints := range servers {
		if dialled[endpoints] == nil {
			store, err := s.dial(strings.Split(endpoints, ";"))
			if err != nil {
				all.Close()
				return nil, err
			}
			dialled[endpoints], all.stores = store, append(all.stores, store)
		}
		holders[r] = dialled[endpoints]
	}
	all.Several = audit.NewSeveral(layout, main, holders)
	return all, nil
}
