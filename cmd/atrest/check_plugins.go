package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/internal/hashed"
	"github.com/kube-atrest/atrest/operate/audit"
	"github.com/kube-atrest/atrest/operate/preflight"
)

func (f *checked) askPlugins(ctx context.Context, file *config.Configuration) {
	f.Plugins = preflight.Check(ctx, file, preflight.Options{})
	for _, p := range f.Plugins {
		for _, text := range p.Warnings {
			f.Warnings = append(f.Warnings, fmt.Sprintf("%s %s: %s", p.Kind, quoted(p.Names), text))
		}
		if p.Failure != nil {
			f.Problems = append(f.Problems, fmt.Sprintf("%s %s at %s: %s", p.Kind, quoted(p.Names), p.Endpoint, p.Failure.Text))
		}
	}
}

func quoted(names []string) string {
	var all []string
	for _, name := range names {
		all = append(all, fmt.Sprintf("%q", name))
	}
	return strings.Join(all, ", ")
}

// judgeUntried takes for a problem a plugin that was not asked to decrypt, as it did not
// encrypt, and that opened nothing that is stored: nobody knows whether it reads anything.
func (f *checked) judgeUntried() {
	for _, p := range f.Plugins {
		if untried(p) && !f.hasOpened(p) {
			f.Problems = append(f.Problems, fmt.Sprintf("%s %s at %s: whether it decrypts was not tried, as it did not encrypt: "+
				"have it open what is stored under it, with --etcd or --snapshot, or take it out if nothing is", p.Kind, quoted(p.Names), p.Endpoint))
		}
	}
}

// untried reports whether a plugin was not asked to decrypt.
func untried(p preflight.Result) bool { return p.Failure == nil && p.Decrypt == 0 }

// hasOpened reports whether an object under a provider of the plugin was opened.
func (f *checked) hasOpened(p preflight.Result) bool {
	return f.opened(func(stored audit.Form) bool { return stored.Kind == p.Kind && slices.Contains(p.Names, stored.Name) })
}

// hasOpenedAs reports whether one was opened that is stored under a provider of KMS v2 and
// the key_id that its plugin names now.
func (f *checked) hasOpenedAs(provider string) bool {
	n := slices.IndexFunc(f.Plugins, func(p preflight.Result) bool { return p.Kind == config.KMSv2 && slices.Contains(p.Names, provider) })
	return n >= 0 && f.opened(func(stored audit.Form) bool {
		return stored.Kind == config.KMSv2 && stored.Name == provider && stored.KeyIDHash == f.Plugins[n].KeyIDHash
	})
}

// opened reports whether an object that is stored so was opened.
func (f *checked) opened(is func(audit.Form) bool) bool {
	if f.Objects == nil {
		return false
	}
	for _, resource := range f.Objects.Resources {
		for _, stored := range resource.Forms {
			if is(stored.Form) && stored.Objects > stored.NotOpened+stored.NotTried {
				return true
			}
		}
	}
	return false
}

func printPlugins(w io.Writer, plugins []preflight.Result) error {
	rows := [][]string{{"PLUGIN", "ENDPOINT", "USE", "KEY_ID", "STATUS", "ENCRYPT", "DECRYPT", "RESULT"}}
	for _, p := range plugins {
		use, result := "reads", "works"
		if p.Writes {
			use = "reads and writes"
		}
		switch {
		case p.Failure != nil:
			result = "fails at " + p.Failure.Step
		case untried(p):
			result = "decrypt not tried"
		}
		rows = append(rows, []string{strings.Join(p.Names, ", "), p.Endpoint, use, orDash(hashed.Short(p.KeyIDHash)),
			took(p.Status), took(p.Encrypt), took(p.Decrypt), result})
	}
	return printCut(w, rows, 0, 1)
}

func took(d time.Duration) string {
	if d == 0 {
		return "-"
	}
	return d.Round(10 * time.Microsecond).String()
}
