// Command report measures the library beside kube-apiserver's own encryption,
// tink-go and the bare cipher, says which targets are met, and writes figures
// and plots.
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
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	o, err := parse(os.Args[1:], os.Stderr)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		return
	case err != nil:
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(2)
	}
	// kube-apiserver's parts and the library log to the same place; what fails
	// here fails with an error.
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	if err := run(ctx, o, os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
}
