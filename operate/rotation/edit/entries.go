package edit

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kube-atrest/atrest/config"
)

// First is a configuration that encrypts nothing yet: the resources, such as secrets or
// deployments.apps, are plain text, and can be moved from there. An error names one that
// is no resource.
func First(resources []string) ([]byte, error) {
	var b strings.Builder
	b.WriteString("apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n  - resources:\n")
	for _, r := range resources {
		fmt.Fprintf(&b, "      - %q\n", r)
	}
	b.WriteString("    providers:\n      - identity: {}\n")
	_, err := config.Parse([]byte(b.String()), config.Options{Reload: true, File: "the first configuration"})
	return []byte(b.String()), err
}

// Entry is what the resources of one entry of a file are written and read with: the
// names of each provider, of which one with several keys has as many. The first one
// writes.
type Entry struct{ Providers [][]string }

// Entries are those of a file, in its order.
func Entries(file []byte) ([]Entry, error) {
	d, err := parse(file)
	if err != nil {
		return nil, err
	}
	var all []Entry
	for i := range d.meant["resources"].([]any) {
		var e Entry
		for j := range d.values(i) {
			e.Providers = append(e.Providers, d.namesAt(place{i, j, -1}))
		}
		all = append(all, e)
	}
	return all, nil
}

// Writes reports whether one of the names is among those of what writes.
func (e Entry) Writes(names ...string) bool {
	return len(e.Providers) > 0 && slices.ContainsFunc(e.Providers[0], func(name string) bool { return slices.Contains(names, name) })
}

// Has reports whether one of the names is among those of the entry.
func (e Entry) Has(names ...string) bool {
	return slices.ContainsFunc(slices.Concat(e.Providers...), func(name string) bool { return slices.Contains(names, name) })
}
