package reencrypt

import (
	"slices"

	"github.com/kube-atrest/atrest/operate/audit"
	"github.com/kube-atrest/atrest/operate/migrate"
)

// Result is all that a migration found and did.
type Result struct {
	File       string `json:"file"`
	ConfigHash string `json:"configHash"`
	// KeyIDs are the hashes that the apiservers agree on, by provider.
	KeyIDs    map[string]string `json:"keyIDs,omitempty"`
	ToRewrite []ToRewrite       `json:"toRewrite"`
	Rewritten []Rewritten       `json:"rewritten,omitempty"`
	DryRun    bool              `json:"dryRun,omitempty"`
	// Revision is that of etcd at the last look, and Left what is still not as
	// the configuration says.
	Revision int64           `json:"revision"`
	Left     []audit.Finding `json:"left"`
	// Report is what that look counted.
	Report *audit.Report `json:"-"`
	// Resources are those of which something was looked at; none if it was everything.
	Resources []string `json:"resources,omitempty"`
}

// ToRewrite is a row of what a migration is about.
type ToRewrite struct {
	Resource string `json:"resource"`
	Objects  int64  `json:"objects"`
	// From is how they are stored, and To how they will be.
	From audit.Form `json:"from"`
	To   audit.Form `json:"to"`
}

// Rewritten is what was done of a resource.
type Rewritten struct {
	Resource string `json:"resource"`
	// Round is 2 for what was left after the first one. Of a [Sweep] it is which pass.
	Round int `json:"round"`
	migrate.Counts
	Took    string `json:"took"`
	Problem string `json:"problem,omitempty"`
}

// look notes what is left.
func (r *Result) look(m *Migration, report *audit.Report) {
	r.Report, r.Revision, r.Resources = report, report.Revision, nil
	if resources, all := m.wanted(); !all {
		for _, resource := range resources {
			if objectsOf(report, resource) > 0 {
				r.Resources = append(r.Resources, resource.String())
			}
		}
	}
	r.Left = append([]audit.Finding{}, report.Against(m.Config, m.current)...)
}

// Has reports whether anything that was looked at is stored with a KMS provider.
func (r *Result) Has(provider string) bool {
	return slices.ContainsFunc(r.Report.Resources, func(of audit.Resource) bool {
		return slices.ContainsFunc(of.Forms, func(c audit.Count) bool { return c.Kind.IsKMS() && c.Name == provider })
	})
}

// Beyond is what is left that rewriting does not help.
func (r *Result) Beyond() []audit.Finding {
	var all []audit.Finding
	for _, finding := range r.Left {
		if finding.Astray || finding.Kind != audit.InPlaintext && finding.Kind != audit.Outdated {
			all = append(all, finding)
		}
	}
	return all
}

// Suspicion is what may be wrong when nothing was rewritten at all, or empty.
func (r *Result) Suspicion() string {
	var all migrate.Counts
	for _, done := range r.Rewritten {
		if done.Problem != "" {
			return ""
		}
		all.Seen += done.Seen
		all.Rewritten += done.Rewritten
		all.Unchanged += done.Unchanged
	}
	switch {
	case all.Rewritten > 0 || all.Seen == 0:
		return ""
	case all.Unchanged > 0:
		return "the apiserver takes them for current: does it write with what the others do, and is this its etcd?"
	}
	return "the apiserver lists none of them: is this its etcd?"
}
