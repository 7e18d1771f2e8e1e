package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/signal"
	"path"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/internal/hashed"
	"github.com/kube-atrest/atrest/operate/audit"
	"github.com/kube-atrest/atrest/operate/bundle"
	"github.com/kube-atrest/atrest/operate/node"
	"github.com/kube-atrest/atrest/operate/preflight"
)

const bundleTryHelp = `Try the plugins of a bundle, as "atrest node" does before it takes it into effect: all
of them are started on this machine, with their credentials, on sockets of their own in
a new folder below --run, and are ended again. Nothing that runs is touched.

Each has to become well, to wrap and unwrap a random DEK under the key_id that it names,
and to pass these checks of "atrest conform": status-version, key-id-form, round-trip,
ciphertext-hides, ciphertext-size, ciphertext-fresh and annotations: fewer than a hundred
calls. A value that is stored, from --stored, or from etcd or a --snapshot, has to open
with the plugin of the provider that it is stored under: give it where the KEK should be
the same.

What may be over soon is tried again with growing pauses, up to --wait: a KMS that is
away, a login that is refused, a plugin that ends, or was never well. What is well and
not fit is refused at once. A plugin whose port another one of the bundle has is told
with the name of that one, and one whose socket has somebody else. A login that can be
used once is not tried.

With -o json the answer is for "atrest node --tried": it holds for this very bundle, by
its hash, credentials and all, and the key_ids that were seen are expected there.

Exit codes:
  0  all plugins passed
  1  one was refused, and why is told
  2  not decided within --wait; or the bundle cannot be read, or wrong flags`

// bundleTry are the flags of bundle try.
type bundleTry struct {
	decryptCommand // for where a stored value is
	output         output
	stored         string
	node           nodeCommand
	wait           time.Duration
}

func newBundleTry(s streams) *cobra.Command {
	t := &bundleTry{decryptCommand: decryptCommand{streams: s}, node: nodeCommand{streams: s, memory: pluginMemory, files: pluginFiles}}
	command := &cobra.Command{
		Use:   "try BUNDLE",
		Short: "Start the plugins of a bundle on the side, and say whether they are fit",
		Long:  bundleTryHelp,
		Example: `  atrest bundle try /var/lib/atrest/next
  atrest bundle try /var/lib/atrest/next -o json > tried.json
  etcdctl get --print-value-only /registry/secrets/default/db > value
  atrest bundle try /var/lib/atrest/next --stored value --key /registry/secrets/default/db`,
		Args: arguments(1, "the bundle"),
		RunE: func(command *cobra.Command, args []string) error { return t.run(command.Context(), args[0]) },
	}
	flags := command.Flags()
	flags.StringVar(&t.stored, "stored", "", "file with a value as etcd holds it, or - for standard input, which has to open")
	flags.StringVar(&t.key, "key", "", "the etcd key of the value, such as /registry/secrets/default/db")
	t.source.addSwitch(flags)
	t.source.add(flags, "tls-key")
	flags.StringVar(&t.node.o.Run, "run", "/run", "folder in memory, in which one is made for credentials and sockets, and removed")
	flags.StringVar(&t.node.program, "plugin", defaultPlugin, "program of plugins whose settings name none")
	flags.StringSliceVar(&t.node.pass, "pass-env", nil, "names of environment variables that plugins are given too, by commas: none with a credential")
	flags.DurationVar(&t.node.o.Timeout, "timeout", 10*time.Second, "within which a plugin has to answer")
	flags.DurationVar(&t.wait, "wait", 2*time.Minute, "how long what may be over soon is tried again")
	t.output.addFlag(flags)
	return command
}

// bundleTried is what the trial of a bundle has found, as it is printed and read again.
type bundleTried struct {
	Hash    string             `json:"hash"`
	Outcome preflight.Outcome  `json:"outcome"`
	Plugins []node.TrialReport `json:"plugins"`
}

func (t *bundleTry) run(ctx context.Context, path string) error {
	if err := t.checkFlags(path); err != nil {
		return err
	}
	b, err := t.readBundle(path)
	if err != nil {
		return errors.New(err.Error()) // which is no answer, whatever it was
	}
	if err := t.storedSteps(ctx, b); err != nil {
		return err
	}
	keepPrivate()
	o := t.node.o
	o.Runner, o.Clock, o.Every, o.AskEvery, o.Patience = runnerOf(&t.node), clock.RealClock{}, 100*time.Millisecond, time.Second, 10*time.Second
	o.Log = func(line string) { fmt.Fprintf(t.err, "%s %s\n", now(), printable(line)) }
	stop := outlive()
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, t.wait)
	defer cancel()
	found, err := node.Try(ctx, b, o)
	if err != nil {
		return err
	}
	tried := bundleTried{b.Hash(), outcomeOf(found), found}
	if err := t.output.write(t.out, tried, tried.print); err != nil {
		return err
	}
	switch tried.Outcome {
	case preflight.Refused:
		return badf("")
	case preflight.NotYet:
		return errors.New("not decided: what may be over soon was not over within --wait")
	}
	return nil
}

// outlive has this process live on when who reads its output is gone, until stop is called: the plugins would stay,
// and their credentials.
func outlive() (stop func()) {
	unread := make(chan os.Signal, 1)
	signal.Notify(unread, syscall.SIGPIPE) // and a write is an error
	return func() { signal.Stop(unread) }
}

func (t *bundleTry) checkFlags(path string) error {
	switch {
	case t.wait <= 0 || t.node.o.Timeout <= 0:
		return usagef("flags --wait and --timeout have to be over 0")
	case t.stored == "" && !t.source.wanted() && t.key != "":
		return usagef("flag --key is given, and no value: name it by --stored, --etcd or --snapshot")
	case t.stored != "" && t.source.wanted():
		return usagef("the stored value is to come from %s and from etcd or a snapshot: name one", nameOf(t.stored))
	case (t.stored != "" || t.source.wanted()) && t.key == "":
		return usagef("flag --key is missing: name the etcd key of the stored value, without which it opens nowhere")
	case t.stored == "-" && path == "-":
		return usagef("the bundle and the stored value are both -: standard input can be one of them")
	}
	return t.output.check()
}

// outcomeOf is that of all of them.
func outcomeOf(found []node.TrialReport) preflight.Outcome {
	all := preflight.Passed
	for _, f := range found {
		switch {
		case f.Outcome == preflight.Refused:
			return preflight.Refused
		case f.Outcome != preflight.Passed:
			all = preflight.NotYet
		}
	}
	return all
}

func (b bundleTried) print(w io.Writer) error {
	rows := [][]string{{"KEYID", "OUTCOME", "KEY_ID", "TRIES", "WHY"}}
	for _, p := range b.Plugins {
		why := "-"
		if p.Failure != nil {
			why = p.Failure.Text
		}
		rows = append(rows, []string{p.KeyID, string(p.Outcome), orDash(hashed.Short(p.KeyIDHash)), fmt.Sprint(p.Tries), why})
	}
	return printTable(w, rows)
}

// storedSteps has the plugin of the provider that a stored value is stored under open it.
func (t *bundleTry) storedSteps(ctx context.Context, b *bundle.Bundle) error {
	if t.key == "" {
		return nil
	}
	layout, err := t.source.layout()
	if err != nil {
		return err
	}
	resource, _ := layout.Resource(t.key)
	var args []string
	if t.stored != "" {
		args = []string{t.stored}
	}
	value, err := t.read(ctx, args)
	if err != nil {
		return err
	}
	is := audit.Inspect(value, nil)
	if cut, ok := bytes.CutSuffix(value, []byte("\n")); ok && is.Form.Kind == audit.Undecodable {
		value, is = cut, audit.Inspect(cut, nil) // etcdctl adds it
	}
	if is.Form.Kind != config.KMSv2 {
		return badf("the stored value is %s, and not of a plugin of KMS v2", is.Form)
	}
	n := slices.IndexFunc(b.Configuration().Providers(), func(p *config.Provider) bool { return p.KMS().Name == is.Form.Name })
	if n < 0 {
		return badf("the stored value is under the provider %q, which the bundle does not have: it would not open", is.Form.Name)
	}
	kms := b.Configuration().Providers()[n].KMS()
	object := audit.Object{Key: t.key, Value: value}
	t.node.o.Steps = func(p *bundle.Plugin, socket string) []preflight.Step {
		if path.Base(kms.Address) != p.KeyID().Socket() { // all are in one folder
			return nil
		}
		return []preflight.Step{{Name: "open what is stored", Try: func(ctx context.Context) error {
			return opensStored(ctx, kms, (&url.URL{Scheme: "unix", Path: socket}).String(), resource, object)
		}}}
	}
	return nil
}

// opensStored opens a value as an apiserver does, with one provider, at another endpoint than it will have.
func opensStored(ctx context.Context, kms config.KMS, endpoint string, resource schema.GroupResource, object audit.Object) error {
	text, err := json.Marshal(map[string]any{"apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration", "resources": []any{map[string]any{
		"resources": []string{resource.String()},
		"providers": []any{map[string]any{"kms": map[string]any{"apiVersion": "v2", "name": kms.Name, "endpoint": endpoint, "timeout": kms.Timeout.String()}}},
	}}})
	if err != nil {
		return err
	}
	c, err := config.Parse(text, config.Options{File: "the provider of the stored value"})
	if err != nil {
		return err
	}
	opener, err := audit.NewOpener(c)
	if err != nil {
		return err
	}
	defer opener.Close()
	err = opener.Open(ctx, resource, object)
	if audit.DoesNotOpen(err) {
		return preflight.Final(err)
	}
	return err
}

// expected reads what a trial has found: it is of one bundle alone.
func (s streams) expected(path string) func(*bundle.Bundle) (map[string]string, error) {
	return func(b *bundle.Bundle) (map[string]string, error) {
		text, err := readLimited(path, s.in, maxSecretText)
		if err != nil {
			return nil, fmt.Errorf("--tried: %w", err)
		}
		var tried bundleTried
		if err := json.Unmarshal(text, &tried); err != nil {
			return nil, fmt.Errorf("--tried: %s is not what \"atrest bundle try -o json\" gives", path)
		}
		switch {
		case tried.Hash != b.Hash():
			return nil, fmt.Errorf("--tried: %s is of the bundle %s, and that in the folder is %s: try it, by \"atrest bundle try\"", path, hashed.Short(tried.Hash), hashed.Short(b.Hash()))
		case tried.Outcome != preflight.Passed || len(tried.Plugins) != len(b.Plugins()):
			return nil, fmt.Errorf("--tried: by %s the bundle has not passed", path)
		}
		keys := map[string]string{}
		for _, p := range tried.Plugins {
			keys[p.KeyID] = p.KeyIDHash
		}
		return keys, nil
	}
}
