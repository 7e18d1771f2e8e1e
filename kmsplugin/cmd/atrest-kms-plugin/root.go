package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kube-atrest/atrest/kmsplugin"
	"github.com/kube-atrest/atrest/kmsplugin/keyfile"
)

const rootHelp = `A KMS v2 plugin for kube-apiserver's encryption at rest.

Each command below is one kind of place where the keys (KEKs) are, and has a
"serve", which runs the plugin:

  keyfile   in one file, on machines that have no KMS
  pkcs11    on a PKCS#11 token, an HSM or SoftHSM, which they never leave
  tpm       in one file that the TPM of the machine opens
  vault     in the Transit engine of HashiCorp Vault or OpenBao

Exit codes:
  0  done, or a serve that SIGTERM or SIGINT has ended
  1  any other failure
  2  wrong flags or arguments, or what they name is set up wrongly
  3  the key file does not exist, or the token has no such key
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

// A noKeyError is that there is no key where one was looked for.
type noKeyError struct{ error }

func usagef(format string, args ...any) error {
	return usageError{fmt.Errorf(format, args...)}
}

// run is the whole command: args in, exit code out.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SetIn(interruptible{ctx, os.Stdin})
	command, err := root.ExecuteContextC(ctx)
	if err != nil {
		fmt.Fprintf(stderr, "atrest-kms-plugin: %s\n", err)
	}
	code := exitCode(err)
	if code == exitUsage {
		fmt.Fprintf(stderr, "run '%s --help' to see how it is used\n", command.CommandPath())
	}
	return code
}

func newRoot() *cobra.Command {
	root := group("atrest-kms-plugin", "A KMS v2 plugin for kube-apiserver's encryption at rest", rootHelp, newKeyFileGroup(), newPKCS11Group(), newTPMGroup(), newVaultGroup())
	root.SilenceErrors, root.SilenceUsage = true, true
	root.CompletionOptions = cobra.CompletionOptions{DisableDefaultCmd: true}
	root.SetFlagErrorFunc(ofFlag)
	root.SetHelpCommand(newHelp())
	return root
}

func newHelp() *cobra.Command {
	return &cobra.Command{
		Use: "help [COMMAND]", Short: "Say what a command is for, and what its flags are",
		Long: "Say what a command is for, and what its flags are. It is the same as COMMAND --help.",
		RunE: func(command *cobra.Command, args []string) error {
			of, rest, err := command.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return unexpected(args, "no command %q", strings.Join(args, " "))
			}
			of.InitDefaultHelpFlag() // which is among the flags that are printed
			return of.Help()
		},
	}
}

// group is a command that does nothing but hold others.
func group(use, short, long string, of ...*cobra.Command) *cobra.Command {
	var names []string
	for _, command := range of {
		names = append(names, command.Name())
	}
	choice := strings.Join(names, ", ")
	command := &cobra.Command{
		Use: use, Short: short, Long: long,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unexpected(args, "no command %q: there is %s", args[0], choice)
			}
			return nil
		},
		RunE: func(*cobra.Command, []string) error { return usagef("no command: there is %s", choice) },
	}
	command.AddCommand(of...)
	return command
}

func noArgs(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return unexpected(args, "unexpected argument %q: everything is given by flags", args[0])
	}
	return nil
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
	var noKey noKeyError
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &usage):
		return exitUsage
	case errors.As(err, &noKey):
		return exitNoKeyFile
	case errors.Is(err, keyfile.ErrDamaged), errors.Is(err, keyfile.ErrExposed):
		return exitBadKeyFile
	case errors.Is(err, kmsplugin.ErrSocketInUse):
		return exitSocketInUse
	case errors.Is(err, fs.ErrNotExist):
		return exitNoKeyFile
	}
	return exitFailed
}
