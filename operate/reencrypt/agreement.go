package reencrypt

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/operate/rotation"
)

// agreed is the key_id that all apiservers have of each KMS v2 provider that is
// written with, as hashes. There is none of what they disagree about, or of what
// one of them does not tell, and the problems name each.
func agreed(seen map[string]rotation.Instance, c *config.Configuration) (keyIDs map[string]string, problems []string) {
	keyIDs = map[string]string{}
	providers := writtenWith(c)
	for _, name := range slices.Sorted(maps.Keys(seen)) {
		problems = append(problems, missing(name, seen[name], c, providers)...)
	}
	if problems != nil {
		return nil, problems
	}
	for _, provider := range providers {
		by := rotation.Holders(seen, []string{provider})
		for keyID := range by {
			keyIDs[provider] = keyID
		}
		if len(by) > 1 {
			problems = append(problems, fmt.Sprintf("the apiservers do not agree on the key_id of provider %q: %s: wait until all have the same, or see to the plugin of the one that lags",
				provider, parted(by)))
		}
	}
	if problems != nil {
		return nil, problems
	}
	return keyIDs, nil
}

// writtenWith are the names of the KMS v2 providers that anything is written with.
func writtenWith(c *config.Configuration) []string {
	var names []string
	for _, p := range c.Providers() {
		if p.Kind() == config.KMSv2 && p.Writes() {
			names = append(names, p.KMS().Name)
		}
	}
	return names
}

// missing is what keeps one apiserver from counting.
func missing(name string, i rotation.Instance, c *config.Configuration, providers []string) []string {
	switch {
	case i.Problem != "":
		return []string{fmt.Sprintf("apiserver %s does not tell of its encryption: %s", name, i.Problem)}
	case i.ConfigHash != c.Hash():
		return []string{fmt.Sprintf("apiserver %s has the configuration %s in effect, not %s, which is that of the given file: name the file it has, or wait until it has this one",
			name, i.ConfigHash, c.Hash())}
	}
	var problems []string
	if i.Pending != "" {
		problems = []string{fmt.Sprintf("apiserver %s has not taken its file into use as it is now: %s: put the file back, or wait until it has it and name that one", name, i.Pending)}
	}
	for _, lack := range i.Lacks(providers) {
		if lack.Told && !lack.Healthy {
			problems = append(problems, fmt.Sprintf("apiserver %s finds provider %q not healthy: %s", name, lack.Provider, lack.Problem))
		} else {
			problems = append(problems, fmt.Sprintf("apiserver %s knows no key_id of provider %q: see whether its plugin runs: atrest check", name, lack.Provider))
		}
	}
	return problems
}

// parted says who has what.
func parted(by map[string][]string) string {
	var all []string
	for _, keyID := range slices.Sorted(maps.Keys(by)) {
		all = append(all, strings.Join(by[keyID], ", ")+" has "+keyID)
	}
	return strings.Join(all, "; ")
}
