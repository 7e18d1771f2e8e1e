package main

import (
	"context"
	"fmt"
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
