package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kube-atrest/atrest/operate/bundle"
	"github.com/kube-atrest/atrest/operate/preflight"
)

const bundleDiffHelp = `Say what it needs to replace a bundle by another, for each keyID that both have:

  in place        the plugin is given the new settings or files, and keeps its keyID
  another keyID   it may be another KEK: give it a keyID of its own, beside the former,
                  and have everything stored again
  not known       it depends on whether it is the same KEK, and that is not seen here

Which KEK it is tells the key_id that a plugin names, and that each opens what the other
has wrapped, and not an address or a path: those may lead to one KEK by two names, or to
two by one name. With --was and --is that is seen: give the sockets of the plugin with
the old settings and of the one with the new, both running, by the keyID. Each is asked
for its Status, to wrap a random value, and to unwrap its own and the other's. What was
not seen is never "in place": a plugin that is away leaves "not known".

A node asks for the same proof before it takes a change in place, by the same rule.

Exit codes:
  0  no change, or all of it can be done in place
  1  a plugin needs another keyID, or may need one
  2  a bundle cannot be read, or wrong flags`

func newBundleDiff(s streams) *cobra.Command {
	d := bundleDiffer{streams: s}
	command := &cobra.Command{
		Use:   "diff OLD NEW",
		Short: "Say which changes are made in place, and which need another keyID",
		Long:  bundleDiffHelp,
		Example: `  atrest bundle diff /var/lib/atrest/current /var/lib/atrest/next
  kubectl get secret encryption-config -o yaml | atrest bundle diff - /var/lib/atrest/next
  atrest bundle diff /var/lib/atrest/current /var/lib/atrest/next \
    --was 7=/run/kmsplugin/kms-7.sock --is 7=/run/try/kms-7.sock`,
		Args: arguments(2, "the old and the new bundle"),
		RunE: func(command *cobra.Command, args []string) error {
			return d.run(command.Context(), args[0], args[1])
		},
	}
	flags := command.Flags()
	flags.StringArrayVar(&d.was, "was", nil, "KEYID=SOCKET, where the plugin with the old settings of a keyID runs, for evidence of its KEK; once for each")
	flags.StringArrayVar(&d.is, "is", nil, "KEYID=SOCKET, where one with the new settings of it runs; once for each --was")
	flags.DurationVar(&d.timeout, "timeout", 10*time.Second, "within which each call to them has to be answered")
	d.output.addFlag(flags)
	return command
}

// bundleDiffer are the flags of bundle diff.
type bundleDiffer struct {
	streams
	output  output
	was, is []string
	timeout time.Duration
}

// evidence asks the pairs of plugins that the flags name. What was not seen is told, and proves nothing.
func (d bundleDiffer) evidence(ctx context.Context, from, to *bundle.Bundle) (map[bundle.KeyID]bundle.Evidence, error) {
	was, err := socketsOf("was", d.was)
	if err != nil {
		return nil, err
	}
	is, err := socketsOf("is", d.is)
	if err != nil {
		return nil, err
	}
	if !maps.EqualFunc(was, is, func(_, other string) bool { return other != "" }) {
		return nil, usagef("flags --was and --is go together: give both sockets of each keyID")
	}
	seen := map[bundle.KeyID]bundle.Evidence{}
	for _, id := range slices.Sorted(maps.Keys(was)) {
		switch {
		case from.Plugin(id) == nil || to.Plugin(id) == nil:
			return nil, usagef("keyID %s is not in both bundles: which KEK it is matters where one plugin takes the place of another", id)
		case sameSocket(was[id], is[id]):
			return nil, usagef("keyID %s: --was and --is lead to one socket, %s: start the plugin with the new settings beside the old", id, is[id])
		}
		if seen[id], err = preflight.Evidence(ctx, was[id], is[id], d.timeout); err != nil {
			d.warn("keyID %s: not seen: %s", id, printable(err.Error()))
		}
	}
	return seen, nil
}

// socketsOf are the values of a flag, KEYID=SOCKET.
func socketsOf(flag string, values []string) (map[bundle.KeyID]string, error) {
	all := map[bundle.KeyID]string{}
	for _, value := range values {
		digits, path, ok := strings.Cut(value, "=")
		if !ok || !filepath.IsAbs(path) {
			return nil, usagef("flag --%s is %q: it is KEYID=SOCKET, with a path from / on", flag, value)
		}
		id, err := bundle.ParseKeyID(digits)
		if err != nil {
			return nil, usagef("flag --%s: %w", flag, err)
		}
		if all[id] != "" {
			return nil, usagef("flag --%s: keyID %s is given twice", flag, id)
		}
		all[id] = path
	}
	return all, nil
}

// sameSocket reports whether two paths lead to one socket: a plugin agrees with itself on everything.
func sameSocket(a, b string) bool {
	one, err := os.Stat(a)
	other, otherErr := os.Stat(b)
	return a == b || err == nil && otherErr == nil && os.SameFile(one, other)
}

// bundleDiff is a difference as it is printed.
type bundleDiff struct {
	FromHash string        `json:"fromHash"`
	ToHash   string        `json:"toHash"`
	Effect   bundle.Effect `json:"effect"`
	bundle.Difference
	Config []change `json:"config"`
}

func (d bundleDiffer) run(ctx context.Context, oldPath, newPath string) error {
	if err := d.output.check(); err != nil {
		return err
	}
	if oldPath == "-" && newPath == "-" {
		return usagef("both bundles are -: standard input can be one of them")
	}
	from, err := d.readBundle(oldPath)
	if err != nil {
		return fmt.Errorf("%s: %v", nameOf(oldPath), err) // which is no answer, whatever it was
	}
	to, err := d.readBundle(newPath)
	if err != nil {
		return fmt.Errorf("%s: %v", nameOf(newPath), err)
	}
	seen, err := d.evidence(ctx, from, to)
	if err != nil {
		return err
	}
	found := bundle.Diff(from, to, seen)
	view := bundleDiff{from.Hash(), to.Hash(), found.Effect(), found, []change{}}
	for _, c := range found.Config {
		view.Config = append(view.Config, describe(c))
	}
	if err := d.output.write(d.out, view, view.print); err != nil {
		return err
	}
	if effect := found.Effect(); effect == bundle.AnotherKeyID || effect == bundle.Undecided {
		return badf("")
	}
	return nil
}

func (d bundleDiff) print(w io.Writer) error {
	rows := [][]string{{"KEYID", "WHAT", "EFFECT", "WHY"}}
	for _, id := range d.Added {
		rows = append(rows, []string{id.String(), "added", "-", "a plugin more is started, before anything names its socket"})
	}
	for _, id := range d.Removed {
		rows = append(rows, []string{id.String(), "removed", "-", "its plugin is stopped when no apiserver has it in effect"})
	}
	for _, p := range d.Changed {
		for _, c := range p.Changes {
			what := c.Field
			if c.From != "" || c.To != "" {
				what = fmt.Sprintf("%s: %s, was %s", c.Field, orDash(c.To), orDash(c.From))
			}
			rows = append(rows, []string{p.KeyID.String(), what, string(c.Effect), c.Why})
		}
		if len(p.Changes) == 0 { // and yet the KEK is another one
			rows = append(rows, []string{p.KeyID.String(), "KEK", string(p.Effect), p.Why})
		}
	}
	if len(rows) > 1 {
		if err := printTable(w, rows); err != nil {
			return err
		}
	}
	if len(d.Difference.Config) > 0 {
		if len(rows) > 1 {
			fmt.Fprintln(w)
		}
		return printChanges(w, d.Config)
	}
	if len(rows) == 1 {
		_, err := fmt.Fprintln(w, "no change of meaning")
		return err
	}
	return nil
}
