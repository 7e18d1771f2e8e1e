// Command measure shows what encryption at rest costs the users of a real kube-apiserver:
// with this library, with kube-apiserver's own encryption, and with none, on one etcd
// with its fsync on and one KMS plugin.
//
// It starts everything itself, as processes of its own, takes turns between the three,
// and writes a table and the numbers. It judges nothing.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/pflag"
	"k8s.io/klog/v2"
)

func main() {
	if program, started := startedAs(); started {
		os.Exit(program())
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	o, err := parse(os.Args[1:], os.Stderr)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		return
	case err != nil:
		fmt.Fprintln(os.Stderr, "measure:", err)
		os.Exit(2)
	}
	// What the plugin and the clients in this process log: what fails here fails with an
	// error.
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	if err := run(ctx, o, os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "measure:", err)
		os.Exit(1)
	}
}
