package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"github.com/kube-atrest/atrest/internal/kubeapi"
)

// Need is something that a user has to be allowed.
type Need struct {
	Verb string
	// Group and Resource are those of objects, and Namespace is where those are:
	// empty for everywhere, and for objects of the whole cluster.
	Group, Resource, Namespace string
	// Path is a nonResourceURL, such as /metrics, in place of these three.
	Path string
}

// Denied asks each apiserver what its user may do there, which may be another user
// for each, and gives a line for each need that one denies, with the remedy. What is
// not said to be allowed is denied. With an error, which says who did not answer,
// not all is known.
func (f *Fleet) Denied(ctx context.Context, needs []Need) ([]string, error) {
	denials, failed := make([][]denial, len(f.members)), make([]error, len(f.members))
	var asked sync.WaitGroup
	for i, m := range f.members {
		asked.Go(func() { denials[i], failed[i] = m.denied(ctx, needs) })
	}
	asked.Wait()
	var lines []string
	for n, need := range needs {
		var by []string
		why := ""
		for i, m := range f.members {
			if n < len(denials[i]) && denials[i][n].is {
				by, why = append(by, m.name), cmp.Or(why, denials[i][n].why)
			}
		}
		if len(by) > 0 {
			lines = append(lines, need.line(by, why))
		}
	}
	return lines, errors.Join(failed...)
}

// denial is what an apiserver says of a need.
type denial struct {
	is  bool
	why string // may be empty
}

// review is a SelfSubjectAccessReview as it is answered.
type review struct {
	Status struct {
		Allowed bool   `json:"allowed"`
		Denied  bool   `json:"denied"`
		Reason  string `json:"reason"`
		Error   string `json:"evaluationError"`
	} `json:"status"`
}

// denied asks about the needs, one after the other, up to the first of which there
// is no answer.
func (m *member) denied(ctx context.Context, needs []Need) ([]denial, error) {
	var all []denial
	for _, n := range needs {
		var r review
		err := m.send(ctx, kubeapi.Request{Method: http.MethodPost, Path: []string{"apis", "authorization.k8s.io", "v1", "selfsubjectaccessreviews"}, Body: n.review()}, &r)
		if err != nil {
			return all, fmt.Errorf("what the user may do through apiserver %s is not known: %w", m.name, err)
		}
		all = append(all, denial{!r.Status.Allowed || r.Status.Denied, cmp.Or(r.Status.Error, r.Status.Reason)})
	}
	return all, nil
}

func (n Need) review() any {
	spec := map[string]any{"nonResourceAttributes": map[string]string{"verb": n.Verb, "path": n.Path}}
	if n.Path == "" {
		spec = map[string]any{"resourceAttributes": map[string]string{
			"verb": n.Verb, "group": n.Group, "resource": n.Resource, "namespace": n.Namespace}}
	}
	return map[string]any{"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": spec}
}

// line says that apiservers deny a need.
func (n Need) line(by []string, why string) string {
	what, rule := n.Path, fmt.Sprintf("a ClusterRole with nonResourceURLs [%q]", n.Path)
	if n.Path == "" {
		what, rule = n.Resource, fmt.Sprintf("apiGroups [%q], resources [%q]", n.Group, n.Resource)
		if n.Group != "" {
			what += "." + n.Group
		}
		role := "a ClusterRole"
		if n.Namespace != "" {
			what, role = what+" in namespace "+n.Namespace, "a Role in namespace "+n.Namespace
		}
		rule = role + " with " + rule
	}
	if why = strings.Join(strings.Fields(why), " "); why != "" {
		why = fmt.Sprintf(" (%.200s)", why)
	}
	return fmt.Sprintf("through apiserver %s the user may not %s %s%s: give it %s, verbs [%q]", strings.Join(by, ", "), n.Verb, what, why, rule, n.Verb)
}
