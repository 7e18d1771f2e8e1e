package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/kube-atrest/atrest/operate/bundle"
)

const bundleDiffHelp = `Say what it needs to replace a bundle by another, for each keyID that both have:

  in place        the plugin is given the new settings or files, and keeps its keyID
  another keyID   it may be another KEK: give it a keyID of its own, beside the former,
                  and have everything stored again
  not known       it depends on whether it is the same KEK, and that is not seen here

Which KEK it is tells the key_id that a plugin names, and that it opens what the one
in use has wrapped, and not an address or a path: those may lead to one KEK by two
names, or to two by one name. Nothing is asked here, so what depends on it is not
known.

Exit codes:
  0  no change, or all of it can be done in place
  1  a plugin needs another keyID, or may need one
  2  a bundle cannot be read`

func newBundleDiff(s streams) *cobra.Command {
	var o output
	command := &cobra.Command{
		Use:   "diff OLD NEW",
		Short: "Say which changes are made in place, and which need another keyID",
		Long:  bundleDiffHelp,
		Example: `  atrest bundle diff /var/lib/atrest/current /var/lib/atrest/next
  kubectl get secret encryption-config -o yaml | atrest bundle diff - /var/lib/atrest/next`,
		Args: arguments(2, "the old and the new bundle"),
		RunE: func(_ *cobra.Command, args []string) error { return s.diffBundles(o, args[0], args[1]) },
	}
	o.addFlag(command.Flags())
	return command
}

// bundleDiff is a difference as it is printed.
type bundleDiff struct {
	FromHash string        `json:"fromHash"`
	ToHash   string        `json:"toHash"`
	Effect   bundle.Effect `json:"effect"`
	bundle.Difference
	Config []change `json:"config"`
}

func (s streams) diffBundles(o output, oldPath, newPath string) error {
	if err := o.check(); err != nil {
		return err
	}
	if oldPath == "-" && newPath == "-" {
		return usagef("both bundles are -: standard input can be one of them")
	}
	from, err := s.readBundle(oldPath)
	if err != nil {
		return fmt.Errorf("%s: %v", nameOf(oldPath), err) // which is no answer, whatever it was
	}
	to, err := s.readBundle(newPath)
	if err != nil {
		return fmt.Errorf("%s: %v", nameOf(newPath), err)
	}
	d := bundle.Diff(from, to, nil)
	view := bundleDiff{from.Hash(), to.Hash(), d.Effect(), d, []change{}}
	for _, c := range d.Config {
		view.Config = append(view.Config, describe(c))
	}
	if err := o.write(s.out, view, view.print); err != nil {
		return err
	}
	if effect := d.Effect(); effect == bundle.AnotherKeyID || effect == bundle.Undecided {
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
