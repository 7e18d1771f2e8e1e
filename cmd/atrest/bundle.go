package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/kube-atrest/atrest/internal/hashed"
	"github.com/kube-atrest/atrest/operate/bundle"
)

const bundleHelp = `One snapshot of all that a node needs to run the KMS plugins of its apiserver: the
EncryptionConfiguration, and for each keyID the settings of a plugin, its
credentials and its CA certificates.

  atrest bundle make    Make one, as a folder or as a Secret.
  atrest bundle check   Is this one whole?
  atrest bundle show    What is in it? No credential is shown.
  atrest bundle try     Do its plugins work, and are they fit?
  atrest bundle diff    What does it need to replace one by another?

A keyID numbers a plugin for the life of a cluster: its socket is kms-KEYID.sock. It
is not a key_id, which a plugin has of its KMS.

A bundle is a folder, or a file with a Secret in YAML or JSON; - is a Secret from
standard input. A folder that holds credentials belongs to root, or to who runs
this, and its files are of mode 0600. Only try starts
plugins, and diff asks those that it is told of; nothing is asked of a cluster.

The settings of a plugin name what it needs, and hold no credential:

  apiVersion: encryption.kube-atrest.io/v1alpha1
  kind: PluginSettings
  vault:
    address: https://vault.example.com:8200
    keyPath: transit/keys/kube
    tls: {caBundle: vault-ca}
    auth:
      appRole: {secret: vault-approle}

docs/atrest.md has those of every back end.`

func newBundle(s streams) *cobra.Command {
	command := &cobra.Command{
		Use:   "bundle",
		Short: "Make, check, show and compare what a node runs its plugins with",
		Long:  bundleHelp,
		Args:  arguments(0, "one of make, check, show, try and diff"),
		RunE: func(command *cobra.Command, _ []string) error {
			return usagef("no command: there are %s", commandsOf(command))
		},
	}
	command.AddCommand(newBundleMake(s), newBundleCheck(s), newBundleShow(s), newBundleTry(s), newBundleDiff(s))
	return command
}

func newBundleCheck(s streams) *cobra.Command {
	return &cobra.Command{
		Use:   "check BUNDLE",
		Short: "Say whether a bundle is whole",
		Long: `Say whether a bundle is whole: its configuration is one that an apiserver takes, every
socket in it has a plugin and every plugin a socket, each plugin has the files that
its settings name and no others, and nothing was changed since it was made, but
perhaps the number of its revision.

Exit codes:
  0  it is
  1  it is not, and all that is wrong is told
  2  it cannot be read`,
		Example: `  atrest bundle check /var/lib/atrest/next
  kubectl get secret encryption-config -o yaml | atrest bundle check -`,
		Args: arguments(1, "the bundle"),
		RunE: func(_ *cobra.Command, args []string) error {
			b, err := s.readBundle(args[0])
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(s.out, "whole: revision %d, %s, %s\n", b.Revision(), hashed.Short(b.Hash()), pluginsOf(b))
			return err
		},
	}
}

func pluginsOf(b *bundle.Bundle) string {
	if n := len(b.Plugins()); n != 1 {
		return strconv.Itoa(n) + " plugins"
	}
	return "1 plugin"
}

// maxSecretText is more than the text of any Secret that has a bundle.
const maxSecretText = 4 * bundle.MaxSize

// readBundle reads a folder, a file, or standard input. What is there and is no bundle is
// a bad answer.
func (s streams) readBundle(path string) (*bundle.Bundle, error) {
	info, err := os.Stat(path)
	if path != "-" && err != nil {
		return nil, err
	}
	if path != "-" && info.IsDir() {
		b, err := bundle.ReadFolder(path)
		return b, s.ofBundle(err)
	}
	text, err := readLimited(path, s.in, maxSecretText)
	if err != nil {
		return nil, err
	}
	b, err := bundle.ParseSecret(text)
	if err != nil {
		err = fmt.Errorf("%s: %w", nameOf(path), err)
	}
	return b, s.ofBundle(err)
}

// ofBundle tells what is wrong with a bundle, one problem a line, and gives the error its
// exit code: that of no answer where the file system has kept one back.
func (s streams) ofBundle(err error) error {
	var away *fs.PathError
	if err == nil || errors.As(err, &away) {
		return err
	}
	var refused *bundle.Error
	if !errors.As(err, &refused) || len(refused.Problems) == 1 {
		return badf("%s", printable(err.Error()))
	}
	for _, problem := range refused.Problems {
		s.problem(problem.Error())
	}
	return badf("the bundle is refused: %d problems", len(refused.Problems))
}

// bundlePart is a file of a plugin, without its content.
type bundlePart struct {
	Source bundle.Source `json:"source"`
	Name   string        `json:"name"`
	Key    string        `json:"key"`
	Bytes  int           `json:"bytes"`
}

// bundlePlugin is a plugin as it is printed.
type bundlePlugin struct {
	KeyID   bundle.KeyID     `json:"keyID"`
	Socket  string           `json:"socket"`
	Backend bundle.Backend   `json:"backend"`
	KEK     string           `json:"kek"`
	Config  *bundle.Settings `json:"settings"`
	Parts   []bundlePart     `json:"parts"`
}

// bundleView is a bundle as it is printed.
type bundleView struct {
	Revision     uint64         `json:"revision"`
	Hash         string         `json:"hash"`
	ConfigHash   string         `json:"configHash"`
	SocketFolder string         `json:"socketFolder,omitempty"`
	Plugins      []bundlePlugin `json:"plugins"`
}

func viewOf(b *bundle.Bundle) bundleView {
	v := bundleView{b.Revision(), b.Hash(), b.Configuration().Hash(), b.SocketFolder(), []bundlePlugin{}}
	for _, p := range b.Plugins() {
		settings := p.Settings()
		shown := bundlePlugin{p.KeyID(), p.KeyID().Socket(), settings.Backend(), settings.KEK(), settings, []bundlePart{}}
		for _, part := range p.Parts() {
			shown.Parts = append(shown.Parts, bundlePart{part.Source, part.Name, part.Key, len(p.Content(part))})
		}
		v.Plugins = append(v.Plugins, shown)
	}
	return v
}

func newBundleShow(s streams) *cobra.Command {
	var o output
	command := &cobra.Command{
		Use:   "show BUNDLE",
		Short: "Say what is in a bundle, and no credential",
		Long: `Say what is in a bundle: its revision and its hash, and each plugin with the KEK that
it is for and the files that it is given. Of a file its name and its length are
shown, and never what is in it.

Exit codes:
  0  shown
  1  it is no bundle
  2  it cannot be read`,
		Example: `  atrest bundle show /var/lib/atrest/next
  atrest bundle show /var/lib/atrest/next -o json | jq .hash`,
		Args: arguments(1, "the bundle"),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := o.check(); err != nil {
				return err
			}
			b, err := s.readBundle(args[0])
			if err != nil {
				return err
			}
			v := viewOf(b)
			return o.write(s.out, v, v.print)
		},
	}
	o.addFlag(command.Flags())
	return command
}

func (v bundleView) print(w io.Writer) error {
	rows := [][]string{
		{"REVISION", strconv.FormatUint(v.Revision, 10)},
		{"HASH", v.Hash},
		{"CONFIG", v.ConfigHash},
		{"SOCKETS", orDash(v.SocketFolder)},
	}
	if err := printTable(w, rows); err != nil || len(v.Plugins) == 0 {
		return err
	}
	rows = [][]string{{"KEYID", "BACK END", "KEK", "FILE", "BYTES"}}
	for _, p := range v.Plugins {
		row := []string{p.KeyID.String(), string(p.Backend), p.KEK}
		for _, part := range p.Parts {
			rows = append(rows, append(row, fmt.Sprintf("%s %s/%s", part.Source, part.Name, part.Key), strconv.Itoa(part.Bytes)))
			row = []string{"", "", ""}
		}
		if len(p.Parts) == 0 {
			rows = append(rows, append(row, "-", "-"))
		}
	}
	fmt.Fprintln(w)
	return printTable(w, rows)
}
