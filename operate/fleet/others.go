package fleet

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kube-atrest/atrest/internal/kubeapi"
	"github.com/kube-atrest/atrest/operate/rotation"
)

// Other is an apiserver that exists, as far as the cluster knows, and that no member
// is. Whoever knows better excuses it by its name.
type Other struct {
	// Name is the host that its Lease names, or the address of an endpoint.
	Name string
	// Why is what it is known by.
	Why string
}

// Others are the apiservers that the cluster knows of and that no member is, in
// the order of their names: those of the identity Leases that kube-apiserver keeps
// in kube-system, by the identity that each member tells, and those of the
// endpoints of the Service default/kubernetes, by the address of each member. Where
// there are as many Leases as endpoints the Leases are enough: behind a name or
// another address a member has none to compare.
//
// A Lease stays for an hour after an apiserver went away without a word. Of
// apiservers on hosts of one name there is one Lease, which may be of more than
// those that are members.
//
// It is an error if a member never told who it is, if the Leases may not be read,
// or if there are neither Leases nor endpoints: then nothing says that there are no
// others.
func (f *Fleet) Others(ctx context.Context) ([]Other, error) {
	told, err := f.everyone(ctx)
	if err != nil {
		return nil, err
	}
	leases, err := f.leases(ctx)
	if err != nil {
		return nil, fmt.Errorf("which apiservers there are is not known: %w", err)
	}
	var others []Other
	keepers, owned := f.keepers(ctx), 0
	for _, l := range leases {
		if l.isOf(keepers, told) {
			owned++
			continue
		}
		others = append(others, l.other(nameless(told)))
	}
	endpoints, err := f.endpoints(ctx)
	switch {
	case len(leases) == 0 && err != nil:
		return nil, fmt.Errorf("which apiservers there are is not known: there is no Lease of one in namespace %s, and %w; "+
			"of aggregated apiservers nobody tells which there are: name all of them, and say --without-apiservers any-other", leaseNamespace, err)
	case len(endpoints) > owned:
		others = append(others, f.elsewhere(endpoints)...)
	}
	slices.SortFunc(others, func(a, b Other) int { return strings.Compare(a.Name, b.Name) })
	return others, nil
}

// everyone is what each member told when it last answered. Those that nobody asked
// yet are asked.
func (f *Fleet) everyone(ctx context.Context) (map[string]rotation.Instance, error) {
	told := f.latest()
	if len(told) == len(f.members) {
		return told, nil
	}
	now := f.Observe(ctx)
	told = f.latest()
	var silent []error
	for _, m := range f.members {
		if _, ok := told[m.name]; !ok {
			silent = append(silent, fmt.Errorf("which apiserver %s is, is not known: %s", m.name, now[m.name].Problem))
		}
	}
	return told, inOneLine(silent...)
}

// list asks for objects through the first member that gives them. Where no member
// knows of such, found is false.
func (f *Fleet) list(ctx context.Context, r kubeapi.Request, out any) (found bool, err error) {
	var failed []error
	for _, m := range f.members {
		err := m.send(ctx, r, out)
		switch {
		case err == nil:
			return true, nil
		case !apierrors.IsNotFound(err):
			failed = append(failed, fmt.Errorf("through apiserver %s: %w", m.name, err))
		}
	}
	return false, inOneLine(failed...)
}
