package audit

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Check refuses a resource of which nothing can be stored: one that is a resource of
// Kubernetes misspelled, and one of a group without a dot, as Kubernetes' own have it
// and no custom one may, that is none of its own and not told of. The error names the one that was meant, where that can be seen.
// Of a custom resource nobody knows here whether there is one.
func (l Layout) Check(r schema.GroupResource) error {
	known := l.resources()
	if slices.Contains(known, r) {
		return nil
	}
	custom := strings.Contains(r.Group, ".")
	var meant []string
	for _, candidate := range known {
		if slices.Contains(spellings(r.Resource), candidate.Resource) && (!custom || candidate.Group == r.Group) {
			meant = append(meant, fmt.Sprintf("%q", candidate))
		}
	}
	switch {
	case meant == nil && custom:
		return nil
	case meant == nil:
		return fmt.Errorf("%q is no resource of Kubernetes: write resource.group, in the plural", r)
	}
	return fmt.Errorf("%q is no resource of Kubernetes: %s is", r, strings.Join(meant, " or "))
}

// resources are all that have a path of their own, and OpenShift's, each once.
func (l Layout) resources() []schema.GroupResource {
	all := slices.AppendSeq(slices.Collect(maps.Values(l.paths)), maps.Values(openShift))
	slices.SortFunc(all, func(a, b schema.GroupResource) int {
		return cmp.Or(strings.Compare(a.Resource, b.Resource), strings.Compare(a.Group, b.Group))
	})
	return slices.Compact(all)
}

// spellings are the resources that may be meant by a name, which may be that of
// the kind.
func spellings(name string) []string {
	name = strings.ToLower(name)
	return []string{name, name + "s", name + "es", strings.TrimSuffix(name, "y") + "ies"}
}
