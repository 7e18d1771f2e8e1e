package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/operate/audit"
	"github.com/kube-atrest/atrest/operate/preflight"
)

type checkCommand struct {
	streams
	output  output
	source  sourceFlags
	walk    walkFlags
	offline bool
	strict  bool
	options config.Options
	join    joinFlags
}

const checkHelp = `Tell whether an encryption configuration will work, before an apiserver has it.

1. The file: all that kube-apiserver would refuse, and what it would accept and
   not do as meant. Every problem names its field and the remedy.
2. The plugins, unless --offline: for each, Status, then Encrypt and Decrypt of
   a random DEK, whether the key_ids agree, and how long the calls took. Run it
   where the apiserver runs, as the same user: the sockets are there. One that is
   only read with may refuse Encrypt; then Decrypt is not tried, and it has to open
   a stored object.
3. The stored objects, with --etcd, --endpoints or --snapshot: whether an
   apiserver with this file could read each of them. Each is opened, in memory.
   With --offline those under KMS are judged by the name of the provider alone.

4. With --join: whether an apiserver with FILE may join those of --apiservers. Run it
   on the new node, before its apiserver starts. FILE and its plugins have to be as
   theirs: the same file, the same key_id of each plugin, the same use of it; and by
   3, for which --etcd has to lead to their etcd, by the UID of its namespace
   kube-system, every object has to be readable, and of each plugin that writes one
   that is stored under its key_id, as two keys may have the same. Else the answer is
   unknown, and so it is if an apiserver cannot be seen, is not named, or, with
   --separate-configs, is one of Kubernetes' own, if a UID cannot be read, or if what
   an apiserver lists of a resource of FILE is not in the etcds that are named. With
   --separate-configs a key in the files of the others that nothing is stored with
   is not seen.

Warnings are about what works and is seldom meant, such as the name of a resource
that Kubernetes does not have, by which nothing is encrypted. They go to standard error
and change nothing, unless --strict.

FILE may be -, standard input.

Exit codes:
  0  usable; with --join: it may join
  1  not usable, or may not join: as the last line says
  2  not checked: wrong flags, FILE, etcd or the snapshot cannot be read, or
     nothing at all is stored there, or nothing of a resource that
     --etcd-servers-overrides and FILE name, or nothing that is for the etcd of
     --endpoints; with --join: it is not known whether it may join`

func newCheck(s streams) *cobra.Command {
	c := &checkCommand{streams: s}
	command := &cobra.Command{
		Use:   "check FILE",
		Short: "Tell whether an encryption configuration will work",
		Long:  checkHelp,
		Example: `  atrest check /etc/kubernetes/encryption.yaml
  atrest check --offline --strict encryption.yaml   # in CI
  atrest check new.yaml --etcd --cacert ca.crt --cert client.crt --key client.key
  atrest check encryption.yaml --snapshot backup.db # could this backup be read?
  atrest check /etc/kubernetes/encryption.yaml --join --apiservers cp-1,cp-2 --etcd`,
		Args: arguments(1, "the file"),
		RunE: func(command *cobra.Command, args []string) error { return c.run(command.Context(), args[0]) },
	}
	flags := command.Flags()
	flags.BoolVar(&c.offline, "offline", false, "ask no plugin")
	flags.BoolVar(&c.strict, "strict", false, "exit with 1 for a warning too")
	flags.BoolVar(&c.options.KMSv1, "kms-v1", false, "the apiservers run with --feature-gates=KMSv1=true")
	flags.BoolVar(&c.options.Reload, "reload", false, "the apiservers run with --encryption-provider-config-automatic-reload")
	c.source.addSwitch(flags)
	c.source.add(flags, "key")
	c.walk.add(flags)
	c.join.add(flags)
	c.output.addFlag(flags)
	return command
}

// checked is all that was found out.
type checked struct {
	File      string             `json:"file"`
	Hash      string             `json:"hash,omitempty"`
	Usable    bool               `json:"usable"`
	Problems  []string           `json:"problems,omitempty"`
	Warnings  []string           `json:"warnings,omitempty"`
	Resources []rule             `json:"resources,omitempty"`
	Plugins   []preflight.Result `json:"plugins,omitempty"`
	Objects   *audit.Report      `json:"objects,omitempty"`
	Findings  []audit.Finding    `json:"findings,omitempty"`
	Unjudged  int64              `json:"unjudged,omitempty"`
	// Join are the apiservers that one with the file is to join, and Unknown what is not
	// known of that.
	Join    []string `json:"join,omitempty"`
	Unknown []string `json:"unknown,omitempty"`

	uid      string // of the cluster whose objects were looked at
	separate bool   // the others have files of their own
}

// rule is a config.Rule as it is printed.
type rule struct {
	Resource    string   `json:"resource"`
	WrittenWith string   `json:"writtenWith"`
	ReadWith    []string `json:"alsoReadWith,omitempty"`
}

func (c *checkCommand) run(ctx context.Context, path string) error {
	if err := cmp.Or(c.output.check(), c.checkJoin()); err != nil {
		return err
	}
	layout, err := c.source.layout()
	if err != nil {
		return err
	}
	found := &checked{File: nameOf(path)}
	file, err := readConfig(path, c.in, c.options)
	for _, problem := range problemsOf(err) {
		found.Problems = append(found.Problems, problem.Error())
	}
	switch {
	case c.join.wanted && errors.Is(err, fs.ErrNotExist):
		found.Problems = []string{fmt.Sprintf("this node has no %s: copy it from a node of the cluster, and its plugins with it", found.File)}
	case err != nil && found.Problems == nil:
		return err
	}
	if file != nil {
		found.describe(file, layout)
		if !c.offline {
			found.askPlugins(ctx, file)
		}
		if c.source.wanted() {
			if err := c.readObjects(ctx, file, layout, found); err != nil {
				return err
			}
		}
		found.judgeUntried()
		if c.join.wanted {
			if err := c.joins(ctx, file, layout, found); err != nil {
				return err
			}
		}
	}
	return c.conclude(found)
}

func (f *checked) describe(file *config.Configuration, layout audit.Layout) {
	f.Hash = file.Hash()
	f.Warnings = wrongNames(layout, file)
	for _, w := range file.Warnings() {
		f.Warnings = append(f.Warnings, w.String())
	}
	for _, r := range file.Rules() {
		var all []string
		for _, p := range r.Providers {
			all = append(all, meansOf(p)...)
		}
		f.Resources = append(f.Resources, rule{wildcard(r.Resource), all[0], all[1:]})
	}
}

// meansOf are the keys of a provider, or itself, by name.
func meansOf(p *config.Provider) []string {
	if name := p.KMS().Name; name != "" {
		return []string{fmt.Sprintf("%s %q", p.Kind(), name)}
	}
	var all []string
	for _, k := range p.Keys() {
		all = append(all, fmt.Sprintf("%s key %q", p.Kind(), k.Name))
	}
	if all == nil {
		all = []string{string(p.Kind())}
	}
	return all
}

// wildcard is a resource as the file has it.
func wildcard(r schema.GroupResource) string {
	if r.Resource == "*" && r.Group == "" {
		return "*."
	}
	return r.String()
}

// readObjects reports whether the file reads every stored object.
func (c *checkCommand) readObjects(ctx context.Context, file *config.Configuration, layout audit.Layout, found *checked) error {
	from, err := c.source.open(ctx)
	if err != nil {
		return err
	}
	defer from.Close()
	opener, err := audit.NewOpener(file)
	if err != nil {
		return err
	}
	defer opener.Close()
	o := audit.Options{Layout: layout, Names: audit.NamesIn(file), Rate: c.walk.rate, MaxListed: c.walk.list, Open: opener.Open}
	if c.offline {
		o.Open = opener.OpenLocal
	}
	found.Objects, err = c.streams.walk(ctx, from, o)
	if err == nil {
		err = c.streams.something(ctx, from, found.Objects, o)
	}
	if err == nil {
		err = c.source.held(layout, file, found.Objects, "")
	}
	if err != nil {
		return err
	}
	if c.join.wanted {
		found.uid = clusterIn(ctx, from, opener, layout)
	}
	switch err := concerned(file, found.Objects); {
	case err != nil && c.join.wanted:
		found.Unknown = append(found.Unknown, err.Error())
	case err != nil:
		found.Warnings = append(found.Warnings, err.Error())
	}
	found.Unjudged = found.Objects.Unjudged(file)
	found.judge(found.Objects.Against(file, nil))
	return nil
}

// judge takes for a problem what the file cannot read. What nothing can read, and
// what is only to be rewritten, is not the file's fault.
func (f *checked) judge(findings []audit.Finding) {
	for _, finding := range findings {
		switch finding.Kind {
		case audit.Unreadable, audit.NotOpened:
			f.Problems = append(f.Problems, finding.String())
		case audit.Broken, audit.InPlaintext:
			f.Warnings = append(f.Warnings, finding.String())
		default:
			continue
		}
		f.Findings = append(f.Findings, finding)
	}
}

func (c *checkCommand) conclude(found *checked) error {
	found.Usable = len(found.Problems) == 0 && len(found.Unknown) == 0 && (!c.strict || len(found.Warnings) == 0)
	if err := c.output.write(c.out, found, found.print); err != nil {
		return err
	}
	for _, text := range found.Warnings {
		c.warn("%s", printable(text))
	}
	for _, text := range found.Problems {
		c.problem(text)
	}
	for _, text := range found.Unknown {
		fmt.Fprintf(c.err, "unknown: %s\n", printable(text))
	}
	switch {
	case found.Usable:
		return nil
	case len(found.Problems) > 0 && c.join.wanted:
		return badf("an apiserver with %s may not join: %s", found.File, counted(len(found.Problems), "problem"))
	case len(found.Unknown) > 0:
		return fmt.Errorf("whether an apiserver with %s may join is not known: %s", found.File, found.Unknown[0])
	case len(found.Problems) == 0:
		return badf("%s is usable, with %s that --strict makes count", found.File, counted(len(found.Warnings), "warning"))
	}
	return badf("%s is not usable: %s", found.File, counted(len(found.Problems), "problem"))
}

// print separates its parts by a line each.
func (f *checked) print(w io.Writer) error {
	if len(f.Resources) > 0 {
		rows := [][]string{{"RESOURCE", "WRITTEN WITH", "ALSO READ WITH"}}
		for _, r := range f.Resources {
			rows = append(rows, []string{r.Resource, r.WrittenWith, orDash(strings.Join(r.ReadWith, ", "))})
		}
		if err := printCut(w, rows, 0, 1, 2); err != nil {
			return err
		}
	}
	if len(f.Plugins) > 0 {
		fmt.Fprintln(w)
		if err := printPlugins(w, f.Plugins); err != nil {
			return err
		}
	}
	if f.Objects != nil {
		fmt.Fprintln(w)
		if err := printReport(w, f.Objects); err != nil {
			return err
		}
		printUnjudged(w, f.Unjudged)
		if err := printFindings(w, f.Objects, f.Findings); err != nil {
			return err
		}
	}
	if f.Usable {
		fmt.Fprintf(w, "\nusable: %s\n", f.File)
	}
	f.printJoin(w)
	return nil
}
