package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kube-atrest/atrest/kmsplugin"
	"github.com/kube-atrest/atrest/kmsplugin/keyfile"
)

const rootHelp = `A KMS v2 plugin whose keys (KEKs) are in one file.

Start it on the control plane node, before the apiserver:

  mkdir -p -m 0700 /var/lib/atrest /run/kmsplugin
  atrest-keyfile serve --create \
    --key-file /var/lib/atrest/kek.json \
    --listen unix:///run/kmsplugin/keyfile.sock

and name its socket in the apiserver's --encryption-provider-config:

  apiVersion: apiserver.config.k8s.io/v1
  kind: EncryptionConfiguration
  resources:
  - resources: ["secrets"]
    providers:
    - kms:
        apiVersion: v2
        name: keyfile
        endpoint: unix:///run/kmsplugin/keyfile.sock
        timeout: 3s
    - identity: {}   # reads what was stored before encryption was switched on

Then rotate now and again, while everything runs:

  atrest-keyfile rotate --key-file /var/lib/atrest/kek.json

An apiserver notices within a minute and writes under the new key from then on;
what it wrote before stays readable, under the old one. Rewrite it if you want
it under the new key.

The key file and a copy of etcd together reveal everything, so keep them apart;
without the key file the data is lost, so keep a copy of it. Several control
plane nodes need the same file: make it on one, copy it to the others, and after
a rotation copy it again at once, as until then the others cannot read what that
one writes.

Exit codes:
  0  done, or ended by SIGTERM or SIGINT
  1  any other failure
  2  wrong flags or arguments
  3  the key file does not exist
  4  the key file is damaged, or others can reach it
  5  another server has the socket`

// Exit codes, as rootHelp lists them.
const (
	exitDone = iota
	exitFailed
	exitUsage
	exitNoKeyFile
	exitBadKeyFile
	exitSocketInUse
)

// A usageError is a mistake on the command line.
type usageError struct{ error }

func usagef(format string, args ...any) error {
	return usageError{fmt.Errorf(format, args...)}
}

// run is the whole command: args in, exit code out.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	command, err := root.ExecuteContextC(ctx)
	if err != nil {
		fmt.Fprintf(stderr, "atrest-keyfile: %s\n", err)
	}
	code := exitCode(err)
	if code == exitUsage {
		fmt.Fprintf(stderr, "run '%s --help' to see how it is used\n", command.CommandPath())
	}
	return code
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:               "atrest-keyfile",
		Short:             "A KMS v2 plugin whose keys are in one file",
		Long:              rootHelp,
		Args:              unknownCommand,
		RunE:              func(*cobra.Command, []string) error { return usagef("no command: serve, rotate or list") },
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.AddCommand(newServe(), newRotate(), newList())
	return root
}

func unknownCommand(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("no command %q: serve, rotate or list", args[0])
	}
	return nil
}

func noArgs(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("unexpected argument %q: everything is given by flags", args[0])
	}
	return nil
}

// keyFileFlag is the flag that every command has; it must not be empty.
func keyFileFlag(command *cobra.Command, path *string) {
	command.Flags().StringVar(path, "key-file", "", "path of the key file (required)")
}

// requireFlags takes an empty value for a missing flag: "$UNSET" gives one.
func requireFlags(command *cobra.Command, names ...string) error {
	var missing []string
	for _, name := range names {
		if value, err := command.Flags().GetString(name); err != nil || value == "" {
			missing = append(missing, "--"+name)
		}
	}
	if len(missing) > 0 {
		return usagef("required and not given: %s", strings.Join(missing, ", "))
	}
	return nil
}

func exitCode(err error) int {
	var usage usageError
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &usage):
		return exitUsage
	case errors.Is(err, keyfile.ErrDamaged), errors.Is(err, keyfile.ErrExposed):
		return exitBadKeyFile
	case errors.Is(err, kmsplugin.ErrSocketInUse):
		return exitSocketInUse
	case errors.Is(err, fs.ErrNotExist):
		return exitNoKeyFile
	}
	return exitFailed
}
