package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kube-atrest/atrest/config"
)

type diffCommand struct {
	streams
	output output
}

func newDiff(s streams) *cobra.Command {
	d := diffCommand{streams: s}
	command := &cobra.Command{
		Use:   "diff OLD NEW",
		Short: "Say what a change of the encryption configuration means",
		Long: `Say what a change of the encryption configuration means, for each resource:
what it is written with, what it can be read with from then on, and what it can
no longer be read with. Order and spelling that mean the same are no change.

Two things are pointed out on standard error. What is no longer read with must
not be needed by any stored object: see atrest check NEW --etcd. And what is
written with NEW has to be readable by the apiservers that still have OLD, so a
new key is first added as one to read with, and comes first in a second step.

Either file may be -, standard input. Nothing but the files is looked at.`,
		Example: `  atrest diff /etc/kubernetes/encryption.yaml new.yaml
  ssh node-2 cat /etc/kubernetes/encryption.yaml | atrest diff - /etc/kubernetes/encryption.yaml
  atrest diff old.yaml new.yaml -o json | jq '.changes[].noLongerReadWith'`,
		Args: arguments(2, "the old and the new file"),
		RunE: func(_ *cobra.Command, args []string) error { return d.run(args[0], args[1]) },
	}
	d.output.addFlag(command.Flags())
	return command
}

// change is a config.Change as it is printed.
type change struct {
	Resource         string   `json:"resource"`
	WrittenWith      string   `json:"writtenWith,omitempty"`
	WasWrittenWith   string   `json:"wasWrittenWith,omitempty"`
	AlsoReadWith     []string `json:"alsoReadWith,omitempty"`
	NoLongerReadWith []string `json:"noLongerReadWith,omitempty"`
	Warnings         []string `json:"warnings,omitempty"`
}

func (d diffCommand) run(oldPath, newPath string) error {
	if err := d.output.check(); err != nil {
		return err
	}
	if oldPath == "-" && newPath == "-" {
		return usagef("both files are -: standard input can be one of them")
	}
	from, err := readAny(oldPath, d.in)
	if err != nil {
		return err
	}
	to, err := readAny(newPath, d.in)
	if err != nil {
		return err
	}
	changes := []change{}
	for _, c := range config.Diff(from, to) {
		changes = append(changes, describe(c))
	}
	view := struct {
		From    string   `json:"fromHash"`
		To      string   `json:"toHash"`
		Changes []change `json:"changes"`
	}{from.Hash(), to.Hash(), changes}
	if err := d.output.write(d.out, view, func(w io.Writer) error { return printChanges(w, changes) }); err != nil {
		return err
	}
	d.warnOf(changes)
	if len(changes) > 0 {
		return badf("")
	}
	return nil
}

// warnOf tells each warning once, with all resources that it is about.
func (d diffCommand) warnOf(changes []change) {
	var texts []string
	resources := map[string][]string{}
	for _, c := range changes {
		for _, text := range c.Warnings {
			if resources[text] == nil {
				texts = append(texts, text)
			}
			resources[text] = append(resources[text], c.Resource)
		}
	}
	for _, text := range texts {
		d.warn("%s: %s", strings.Join(resources[text], ", "), text)
	}
}

func describe(c config.Change) change {
	return change{
		Resource: c.Resource, WrittenWith: c.To, WasWrittenWith: c.From,
		AlsoReadWith: c.Added, NoLongerReadWith: c.Removed, Warnings: c.Warnings,
	}
}

func printChanges(w io.Writer, changes []change) error {
	if len(changes) == 0 {
		_, err := fmt.Fprintln(w, "no change of meaning")
		return err
	}
	rows := [][]string{{"RESOURCE", "WRITTEN WITH", "BEFORE WITH", "NOW ALSO READ WITH", "NO LONGER READ WITH"}}
	for _, c := range changes {
		written := "(as before)"
		if c.WrittenWith != "" {
			written = c.WrittenWith
		}
		rows = append(rows, []string{c.Resource, written, orDash(c.WasWrittenWith),
			orDash(strings.Join(c.AlsoReadWith, ", ")), orDash(strings.Join(c.NoLongerReadWith, ", "))})
	}
	return printCut(w, rows, 0, 1, 2, 3, 4)
}
