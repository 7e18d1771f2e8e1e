package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/operate/audit"
)

// named refuses a resource that nothing is stored of: one that neither Kubernetes
// has nor c names, which may be nil.
func named(layout audit.Layout, c *config.Configuration, r schema.GroupResource) error {
	err := layout.Check(r)
	if err == nil || c != nil && slices.ContainsFunc(c.Rules(), func(rule config.Rule) bool { return rule.Resource == r }) {
		return nil
	}
	return usagef("flag --resource: %w", err)
}

// warnOfNames warns of what a configuration names that nothing is stored of, which
// leaves what was meant in plaintext. c may be nil.
func (s streams) warnOfNames(layout audit.Layout, c *config.Configuration) {
	for _, text := range wrongNames(layout, c) {
		s.warn("%s", printable(text))
	}
}

func wrongNames(layout audit.Layout, c *config.Configuration) []string {
	if c == nil {
		return nil
	}
	var texts []string
	for _, rule := range c.Rules() {
		if rule.Resource.Resource == "*" {
			continue
		}
		if err := layout.Check(rule.Resource); err != nil {
			texts = append(texts, fmt.Sprintf("%s: %v: nothing is encrypted by it", strings.Join(rule.Paths, ", "), err))
		}
	}
	return texts
}

// something is an error if a walk saw no object at all, which proves nothing. What
// else is there is looked at, and named.
func (s streams) something(ctx context.Context, from audit.Source, report *audit.Report, o audit.Options) error {
	if report.NotEmpty() == nil {
		return nil
	}
	o.Everywhere, o.Open = true, nil
	all, err := s.walk(ctx, from, o)
	if err != nil {
		return err
	}
	if err := all.NotEmpty(); err != nil {
		return err
	}
	return fmt.Errorf("nothing is stored below %s, so nothing was looked at: is the resource spelled right, and stored there?", report.Prefix)
}

// encrypts is whether a configuration has objects of a resource stored encrypted.
func encrypts(c *config.Configuration) func(schema.GroupResource) bool {
	return func(r schema.GroupResource) bool { return audit.WrittenWith(c, r, nil).Kind != audit.Plaintext }
}

// held is an error if one of several etcds has nothing of what it is for where the walk
// was: then it may be another one. Of those that are named for a resource it is said if c
// names that too; c may be nil. only is the resource that was walked, if it was one alone.
func (s *sourceFlags) held(layout audit.Layout, c *config.Configuration, report *audit.Report, only string) error {
	servers, err := s.holders(layout)
	if err != nil {
		return err
	}
	for _, r := range slices.SortedFunc(maps.Keys(servers), func(a, b schema.GroupResource) int { return strings.Compare(a.String(), b.String()) }) {
		if c != nil && c.For(r) != nil && (only == "" || schema.ParseGroupResource(only) == r) && !stores(report, r.String()) {
			return fmt.Errorf("flag --etcd-servers-overrides: etcd at %s has no %s, so none were looked at: is it the one that the apiservers have for them? "+
				"If there are none, leave it out", servers[r], r)
		}
	}
	switch r := schema.ParseGroupResource(only); {
	case len(servers) == 0 || len(report.Parts) == 0:
	case only == "" && report.Parts[0].Placed == 0:
		return fmt.Errorf("%s has nothing below %s that apiservers look for there, so nothing of theirs was looked at: is it the one of the apiservers? "+
			"Name that with --endpoints", report.Parts[0].Place, report.Prefix)
	case only != "" && servers[r] == "" && !stores(report, r.String()):
		return fmt.Errorf("%s has no %s, so none were looked at: is it the one that the apiservers have for them? Name that with --endpoints", report.Parts[0].Place, r)
	}
	return nil
}

// stores reports whether there are objects of a resource where apiservers look for them.
func stores(report *audit.Report, resource string) bool {
	return slices.ContainsFunc(report.Resources, func(r audit.Resource) bool {
		return r.Name == resource && slices.ContainsFunc(r.Forms, func(f audit.Count) bool { return !f.Astray })
	})
}

// concerned is an error if nothing is stored of what c encrypts, or names if it encrypts
// nothing, where apiservers look for it: that proves nothing about c.
func concerned(c *config.Configuration, report *audit.Report) error {
	does, concerns := "encrypts", encrypts(c)
	encrypted := func(rule config.Rule) bool { return rule.Providers[0].Kind() != config.Identity }
	if !slices.ContainsFunc(c.Rules(), encrypted) {
		does, concerns = "names", func(r schema.GroupResource) bool { return c.For(r) != nil }
	}
	if slices.ContainsFunc(report.Resources, func(r audit.Resource) bool {
		return concerns(schema.ParseGroupResource(r.Name)) && stores(report, r.Name)
	}) {
		return nil
	}
	var names []string
	for _, rule := range c.Rules() {
		if does == "names" || encrypted(rule) {
			names = append(names, rule.Name())
		}
	}
	return fmt.Errorf("nothing is stored below %s of what the configuration %s, %s: is this the etcd of the apiservers, and their --etcd-prefix --prefix?", report.Prefix, does, strings.Join(names, ", "))
}

// guesses are the resources whose group the etcd key does not tell and that may be what c
// names: by a wildcard for a group, or a resource of which nothing else was found.
func guesses(c *config.Configuration, report *audit.Report) []string {
	unfound := slices.ContainsFunc(c.Rules(), func(rule config.Rule) bool {
		return rule.Resource.Group != "*" && (rule.Resource.Resource == "*" || !stores(report, rule.Resource.String()))
	})
	if !unfound {
		return nil
	}
	return report.Guessed
}

// warnOfGuesses says what to do about resources whose group the etcd key does not tell.
func (s streams) warnOfGuesses(names []string) {
	for _, name := range names {
		s.warn("%q is no resource of Kubernetes', so its group is not known: say it with --map %s=%s.GROUP", name, name, name)
	}
}
