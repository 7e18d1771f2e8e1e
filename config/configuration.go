package config

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Configuration is a file that [Parse] accepted. It is read-only and safe for
// concurrent use; what it hands out are copies.
type Configuration struct {
	hash      string
	providers []*Provider
	rules     []Rule
	index     map[schema.GroupResource]int
	warnings  []Warning
}

// Rule says how a resource, or all resources of a group or of the server, are
// stored. Where several entries of the file name the same resource, the rule
// has the providers of them all.
type Rule struct {
	// Resource has "*" for every resource, and for every group.
	Resource schema.GroupResource
	// Paths are the places that name it, such as resources[0].resources[2].
	Paths []string
	// Providers are tried in order when reading; the first one writes.
	Providers []*Provider
}

// Name is the resource as a file names it, with "*." for every resource of the
// core group.
func (r Rule) Name() string { return nameOf(r.Resource) }

// Hash is [Hash] of the file.
func (c *Configuration) Hash() string { return c.hash }

// Providers are all providers of the file, in its order, each once.
func (c *Configuration) Providers() []*Provider { return slices.Clone(c.providers) }

// Rules are in the order of their first mention; none masks a later one.
func (c *Configuration) Rules() []Rule {
	rules := slices.Clone(c.rules)
	for i := range rules {
		rules[i].Paths = slices.Clone(rules[i].Paths)
		rules[i].Providers = slices.Clone(rules[i].Providers)
	}
	return rules
}

// For lists the providers of a resource: those of its own rule, else of the one
// for its group, else of the one for everything. Nil means that the resource is
// stored as it is, as the identity provider does.
func (c *Configuration) For(resource schema.GroupResource) []*Provider {
	for _, name := range []schema.GroupResource{resource, {Group: resource.Group, Resource: "*"}, everything} {
		if i, ok := c.index[name]; ok {
			return slices.Clone(c.rules[i].Providers)
		}
	}
	return nil
}

// resolve joins the entries of a checked file into rules.
func resolve(hash string, entries []entry) *Configuration {
	c := &Configuration{hash: hash, index: map[schema.GroupResource]int{}}
	for _, e := range entries {
		c.providers = append(c.providers, e.providers...)
		for _, m := range e.resources {
			i, known := c.index[m.resource]
			if !known {
				i = len(c.rules)
				c.index[m.resource] = i
				c.rules = append(c.rules, Rule{Resource: m.resource})
			}
			rule := &c.rules[i]
			rule.Paths = append(rule.Paths, m.path)
			rule.Providers = append(rule.Providers, e.providers...)
		}
	}
	for _, rule := range c.rules {
		rule.Providers[0].writes = true
	}
	c.warnings = warnings(c)
	return c
}
