// Command quickstart runs etcd, the key-file KMS plugin and a kube-apiserver with
// encryption at rest by atrest in this one process, and shows on these real parts what
// the library does.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	_ "github.com/kube-atrest/atrest/apiserver/quickstart/internal/quiet"
)

const long = `Runs etcd, the key-file KMS plugin and a kube-apiserver with encryption at rest by
atrest in this one process, with nothing to install, and shows on these real parts:

  1. a Secret is plain through the API and ciphertext in etcd
  2. the plugin's key is rotated: the next write is under the new key_id
  3. the configuration file is edited: it takes effect while the server runs
  4. the plugin is stopped: reads and writes go on, and the health check counts
     down how long writes will
  5. the plugin is back: everything is healthy again

On a terminal it then serves until Ctrl-C, so that kubectl can be tried with the
kubeconfig it has written. Otherwise, or with --exit, it ends: with 0 when all of
that held, with 1 and the reason when not.

Everything listens on this machine only: the apiserver on 127.0.0.1, etcd and the
plugin on unix sockets that only this user can open.`

const examples = `  go run ./apiserver/quickstart                  watch, then try it with kubectl
  go run ./apiserver/quickstart --exit           watch, then end
  go run ./apiserver/quickstart --data ./state   keep etcd, the keys and the logs; a second
                                                 run reads what the first one wrote`

// options are what the command line says.
type options struct {
	data string
	port uint16
	exit bool
}

func main() { os.Exit(execute(newReport(os.Stdout))) }

// execute runs the command and returns its exit code.
func execute(r *report) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the process at once
	err := newCommand(r).ExecuteContext(ctx)
	switch {
	case err == nil:
		return 0
	case !errors.Is(err, errReported):
		fmt.Fprintln(os.Stderr, "Error:", err)
	}
	return 1
}

func newCommand(r *report) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:           "quickstart",
		Short:         "Shows encryption at rest by atrest on a real kube-apiserver",
		Long:          long,
		Example:       examples,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), o, r) },
	}
	cmd.SetOut(r.out)
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&o.data, "data", "", "`folder` that keeps etcd's data, the plugin's keys and the logs, and that the next run takes up again (default: a temporary one, removed at the end)")
	flags.BoolVar(&o.exit, "exit", false, "end after the last step on a terminal too")
	flags.Uint16Var(&o.port, "port", 0, "port of the apiserver on 127.0.0.1 (default: any that is free)")
	return cmd
}

func newReport(out *os.File) *report {
	return &report{out: out, terminal: term.IsTerminal(int(out.Fd()))}
}
