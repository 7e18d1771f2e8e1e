package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/operate/audit"
	"github.com/kube-atrest/atrest/operate/preflight"
)

type auditCommand struct {
	streams
	output   output
	source   sourceFlags
	walk     walkFlags
	config   string
	decrypt  bool
	strict   bool
	keyIDs   bool
	anywhere bool
	resource string
}

// walkFlags say how objects are walked.
type walkFlags struct{ rate, list int }

func (f *walkFlags) add(flags *pflag.FlagSet) {
	flags.IntVar(&f.rate, "rate", 5000, "objects read in a second at most; 0 is no limit")
	flags.IntVar(&f.list, "list", audit.DefaultMaxListed, "etcd keys listed of each kind of object at most")
}

const auditHelp = `Count what is stored in etcd by resource, provider, name of the key or KMS
provider, key_id, and data keys (DEKs). No key is needed: all of that stands in
the clear before the ciphertext.

What it says of an object:
  kms v2, aesgcm...  which provider stored it, and under which name
  plaintext          JSON, protobuf or CBOR, as the identity provider stores it
  unknown prefix     it begins with k8s:enc: and a form of no known provider
  undecodable        no key opens it: it is cut off, or nothing of Kubernetes

The walk is of one revision of etcd. kube-apiserver has etcd drop revisions that
are older than five to ten minutes; if the walk takes longer, it ends with an
error and says so: raise --rate, walk one --resource at a time, or a --snapshot.

With --config the counts are held against an encryption configuration: what no
provider of the resource reads, what is plaintext though the resource is written
encrypted, and what is not under the key that is written with. With --decrypt
each object is opened too, in memory, with the configuration's keys and plugins;
a plugin is asked to Decrypt once for each DEK (with KMS v1: each object), and
for its Status, and never to Encrypt.

The resource of an object is read off its etcd key. Kubernetes' own resources
are known; PREFIX/GROUP/RESOURCE/... is a custom resource; anything else is taken
for a resource of the core group, with a warning, unless --map says what it is.

Only what is below --prefix is counted, and for /kubernetes.io also what OpenShift's
own apiservers keep below /openshift.io, each by a file of its own: what is there and
FILE does not name is counted and not judged, and it is said how many that are. With
--everywhere the whole keyspace is walked and held against FILE, and what begins with
k8s:enc: counts below any other prefix too, and with --config plaintext of what FILE
encrypts. With --etcd-servers-overrides each etcd is walked, whatever it is to hold.

Exit codes:
  0  counted, and nothing below was found
  1  there are unknown prefixes, undecodable objects or objects that did not
     open; or, with --config, objects that it cannot read, or plaintext of
     resources that it encrypts; with --strict also what is only outdated
  2  not counted: wrong flags, etcd, the snapshot or FILE cannot be read, or
     nothing at all is stored there, or nothing of what FILE encrypts (or names, if
     it encrypts nothing), or nothing of a resource that --etcd-servers-overrides and
     FILE name, or nothing that is for the etcd of --endpoints; with --strict,
     the key_id that is written under now is not known, or none is stored, as with
     KMS v1, or the group of a resource that FILE may name is not known`

func newAudit(s streams) *cobra.Command {
	a := &auditCommand{streams: s}
	command := &cobra.Command{
		Use:   "audit",
		Short: "Count what in etcd is encrypted, and with what",
		Long:  auditHelp,
		Example: `  atrest audit --endpoints https://127.0.0.1:2379 --cacert ca.crt --cert client.crt --key client.key
  atrest audit --snapshot backup.db -o json
  atrest audit --config encryption.yaml --resource secrets

  # the proof that a migration is complete: exit code 0
  atrest audit --config encryption.yaml --decrypt --strict`,
		Args: arguments(0, ""),
		RunE: func(command *cobra.Command, _ []string) error { return a.run(command.Context()) },
	}
	flags := command.Flags()
	a.source.add(flags, "key")
	a.walk.add(flags)
	a.output.addFlag(flags)
	flags.StringVar(&a.config, "config", "", "the encryption configuration to hold the objects against")
	flags.BoolVar(&a.decrypt, "decrypt", false, "open each object with the keys and plugins of --config")
	flags.BoolVar(&a.strict, "strict", false, "exit with 1 for what is readable but not under the key that is written with")
	flags.BoolVar(&a.keyIDs, "key-ids", false, "show key_ids themselves beside their hashes")
	flags.BoolVar(&a.anywhere, "everywhere", false, "walk the whole keyspace, and count what is encrypted below other prefixes too")
	flags.StringVar(&a.resource, "resource", "", "walk this resource alone, such as secrets or deployments.apps")
	return command
}

func (a *auditCommand) run(ctx context.Context) error {
	if err := a.check(); err != nil {
		return err
	}
	layout, err := a.source.layout()
	if err != nil {
		return err
	}
	var c *config.Configuration
	if a.config != "" {
		if c, err = readAny(a.config, a.in); err != nil {
			return err
		}
	}
	o, err := a.options(layout, c)
	if err != nil {
		return err
	}
	a.warnOfNames(layout, c)
	if a.decrypt {
		opener, err := audit.NewOpener(c)
		if err != nil {
			return err
		}
		defer opener.Close()
		o.Open = opener.Open
	}
	from, err := a.source.open(ctx)
	if err != nil {
		return err
	}
	defer from.Close()
	report, err := a.streams.walk(ctx, from, o)
	if err == nil {
		err = a.streams.something(ctx, from, report, o)
	}
	if err == nil {
		err = a.source.held(layout, c, report, a.resource)
	}
	if err == nil && c != nil && a.resource == "" {
		err = concerned(c, report)
	}
	if err != nil {
		return err
	}
	findings, undated := a.findings(ctx, report, c)
	return a.conclude(from, report, findings, report.Unjudged(c), undated)
}

// options are those of the walk, but for how objects are opened.
func (a *auditCommand) options(layout audit.Layout, c *config.Configuration) (audit.Options, error) {
	o := audit.Options{Layout: layout, KeyIDs: a.keyIDs, Everywhere: a.anywhere, Rate: a.walk.rate, MaxListed: a.walk.list}
	if c != nil {
		o.Names, o.Encrypts = audit.NamesIn(c), encrypts(c)
	}
	if a.resource == "" {
		return o, nil
	}
	r := schema.ParseGroupResource(a.resource)
	o.Within = layout.Places(r)
	return o, named(layout, c, r)
}

func (a *auditCommand) check() error {
	switch {
	case a.decrypt && a.config == "":
		return usagef("flag --decrypt needs --config, whose keys and plugins it opens with")
	case a.strict && a.config == "":
		return usagef("flag --strict needs --config, which says what is outdated")
	case a.anywhere && a.resource != "":
		return usagef("flags --everywhere and --resource: it is the one or the other")
	case a.walk.list < 1:
		return usagef("flag --list is %d: list at least 1", a.walk.list)
	}
	return a.output.check()
}

// walk is audit.Run with a progress bar.
func (s streams) walk(ctx context.Context, from audit.Source, o audit.Options) (*audit.Report, error) {
	on, end := progress(s.err)
	o.Progress = on
	report, err := audit.Run(ctx, from, o)
	end()
	return report, err
}

// findings are those of a report. undated says why it is not known of all objects
// whether they are outdated, or is nil.
func (a *auditCommand) findings(ctx context.Context, report *audit.Report, c *config.Configuration) (found []audit.Finding, undated error) {
	if c == nil {
		return report.Broken(), nil
	}
	var keyIDs map[string]string
	why := errors.New("no plugin was asked: add --decrypt, with which they are")
	if a.decrypt {
		keyIDs, why = preflight.KeyIDs(ctx, c, preflight.Options{})
	}
	current := func(provider string) string { return keyIDs[provider] }
	v2, v1 := report.Undated(c, current)
	if v2 != nil {
		undated = fmt.Errorf("which key_id is the current one is not known of %s, so none is outdated: %w", quoted(v2), why)
	} else if v1 != nil {
		undated = fmt.Errorf("under which key the objects of %s are cannot be known, as KMS v1 stores no key_id: have them rewritten with a provider of KMS v2", quoted(v1))
	}
	if names := guesses(c, report); names != nil && undated == nil {
		undated = fmt.Errorf("of which group %s are is not known, so neither is whether the configuration names them: say it with --map", strings.Join(names, ", "))
	}
	return report.Against(c, current), undated
}

func (a *auditCommand) conclude(from source, report *audit.Report, findings []audit.Finding, unjudged int64, undated error) error {
	view := struct {
		Source string `json:"source"`
		*audit.Report
		Findings []audit.Finding `json:"findings"`
		Unjudged int64           `json:"unjudged,omitempty"`
	}{from.String(), report, append([]audit.Finding{}, findings...), unjudged}
	err := a.output.write(a.out, view, func(w io.Writer) error {
		printWalked(w, from.String(), report)
		if err := printReport(w, report); err != nil {
			return err
		}
		printUnjudged(w, unjudged)
		return printFindings(w, report, findings)
	})
	if err != nil {
		return err
	}
	a.warnOfGuesses(report.Guessed)
	bad := 0
	for _, f := range findings {
		if f.Kind != audit.Outdated || a.strict {
			bad++
		}
	}
	switch {
	case bad > 0:
		return badf("bad findings: %d of %d", bad, len(findings))
	case undated != nil && a.strict:
		return undated
	case undated != nil && a.decrypt:
		a.warn("%v", undated)
	}
	return nil
}
