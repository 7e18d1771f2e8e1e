package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

const rootHelp = `See, check and change the encryption at rest of a Kubernetes cluster.

  atrest status              Do all apiservers agree, and are they well?
  atrest check FILE          Will this encryption configuration work?
  atrest diff OLD NEW        What does this change of it mean?
  atrest audit               What in etcd is encrypted, and with what?
  atrest decrypt             The plain bytes of one stored value, for recovery.
  atrest migrate             Have stored what is not stored as it should be.
  atrest rotate              Rotate the key, step by step, and prove it.
  atrest retire NAME         May this KMS provider, or this key_id, go?
  atrest lost                What is lost with a key, and what is to be restored?
  atrest report              Which backups need which keys, and until when?
  atrest enable              Begin to encrypt, in a cluster that does not.
  atrest disable             Turn encryption off, step by step, and prove it.
  atrest conform             Does a KMS plugin do what an apiserver needs of it?
  atrest bundle              All that a node needs to run its plugins, as one.
  atrest node                Run the KMS plugins of this node, as a bundle says.

  atrest help COMMAND        What is it for, and what are its flags?
  atrest completion SHELL    A script by which a shell completes all that.
  atrest version             Which atrest is this?

No command writes to etcd: migrate and rotate have the apiserver do it, and so has
lost --remove; the others of these only read. All but decrypt print no value of an
object, and no command prints a key. A key_id is shown as the SHA-256 of it, as in
kube-apiserver's metrics.

Before a new configuration goes to the apiservers:

  atrest diff /etc/kubernetes/encryption.yaml new.yaml
  atrest check new.yaml --etcd --cacert ca.crt --cert client.crt --key client.key

Before an old key goes for good, to prove that nothing needs it:

  atrest audit --config /etc/kubernetes/encryption.yaml --decrypt --strict \
    --cacert ca.crt --cert client.crt --key client.key
  atrest retire vault-1 --apiservers cp-1,cp-2,cp-3 --snapshot backup.db \
    --cacert ca.crt --cert client.crt --key client.key

Where etcd is, and how it is reached, is said as to etcdctl: by --endpoints,
--cacert, --cert, --key and --user, or by ETCDCTL_ENDPOINTS, ETCDCTL_CACERT,
ETCDCTL_CERT, ETCDCTL_KEY, ETCDCTL_USER and ETCDCTL_PASSWORD. No flag takes a
password, but --password-file the file that it is in.

Exit codes, of all commands:
  0  the answer is good: well, usable, no change, nothing found, decrypted,
     migrated, rotated
  1  the answer is bad: not well, not usable, a change, something found, does not
     open, something left
  2  there is no answer: wrong flags, or a file, etcd or an apiserver that cannot
     be read`

// Exit codes, as rootHelp lists them.
const (
	exitGood = iota
	exitBad
	exitNoAnswer
)

// A usageError is a mistake on the command line.
type usageError struct{ error }

func usagef(format string, args ...any) error {
	return usageError{fmt.Errorf(format, args...)}
}

// A badAnswer is the result of a command that worked; its text may be empty,
// where the output has said it all.
type badAnswer struct{ text string }

func (e badAnswer) Error() string { return e.text }

func badf(format string, args ...any) error { return badAnswer{fmt.Sprintf(format, args...)} }

// streams are what a command reads and writes.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

// warn tells something that changes no exit code.
func (s streams) warn(format string, args ...any) {
	fmt.Fprintf(s.err, "warning: "+format+"\n", args...)
}

// problem tells one of the reasons for a bad answer.
func (s streams) problem(text string) { fmt.Fprintf(s.err, "problem: %s\n", printable(text)) }

// run is the whole command: args in, exit code out.
func run(ctx context.Context, args []string, s streams) int {
	s.in = interruptible{ctx, s.in}
	root := newRoot(s)
	root.SetArgs(args)
	root.SetIn(s.in)
	root.SetOut(s.out)
	root.SetErr(s.err)
	command, err := root.ExecuteContextC(ctx)
	if err != nil && err.Error() != "" {
		fmt.Fprintf(s.err, "atrest: %s\n", err)
	}
	var usage usageError
	if errors.As(err, &usage) {
		fmt.Fprintf(s.err, "run '%s --help' to see how it is used\n", command.CommandPath())
	}
	return exitCode(err)
}

// interruptible is a reader on which a signal ends the wait for what may never
// come. The read itself goes on then, until the process ends.
type interruptible struct {
	ctx context.Context
	in  io.Reader
}

func (r interruptible) Read(p []byte) (int, error) {
	type result struct {
		n   int
		err error
	}
	done, buffer := make(chan result, 1), make([]byte, len(p))
	go func() {
		n, err := r.in.Read(buffer)
		done <- result{n, err}
	}()
	select {
	case got := <-done:
		return copy(p, buffer[:got.n]), got.err
	case <-r.ctx.Done():
		return 0, errors.New("interrupted")
	}
}

func exitCode(err error) int {
	var bad badAnswer
	switch {
	case err == nil:
		return exitGood
	case errors.As(err, &bad):
		return exitBad
	}
	return exitNoAnswer
}

func newRoot(s streams) *cobra.Command {
	root := &cobra.Command{
		Use:               "atrest",
		Short:             "See, check and change the encryption at rest of a Kubernetes cluster",
		Long:              rootHelp,
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	root.SetHelpCommand(newHelp())
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.AddCommand(newStatus(s), newCheck(s), newDiff(s), newAudit(s), newDecrypt(s), newMigrate(s), newRotate(s), newRetire(s), newLost(s), newBackups(s), newEnable(s), newDisable(s), newConform(s), newBundle(s), newNode(s), newVersion(s), newCompletion(s), newMan(s))
	completeValues(root)
	root.Args = func(_ *cobra.Command, args []string) error {
		if len(args) > 0 {
			return usagef("no command %q: there are %s", args[0], commandsOf(root))
		}
		return nil
	}
	told := root.Flags().Bool("version", false, "say which atrest this is, as atrest version does")
	root.RunE = func(*cobra.Command, []string) error {
		if *told {
			info, _ := debug.ReadBuildInfo()
			thisVersion(info).print(s.out)
			return nil
		}
		return usagef("no command: there are %s", commandsOf(root))
	}
	return root
}

func commandsOf(root *cobra.Command) string {
	var names []string
	for _, c := range root.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	return strings.Join(names, ", ")
}

// arguments refuses a wrong number of them, in words.
func arguments(n int, what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) < n:
			return usagef("not enough arguments: name %s", what)
		case len(args) > n && n == 0:
			return usagef("unexpected argument %q: everything is given by flags", args[n])
		case len(args) > n:
			return usagef("unexpected argument %q after %s", args[n], what)
		}
		return nil
	}
}
