// Command atrest is the operator's tool of encryption at rest: it checks a
// configuration, says what a change of it means, counts what is stored in etcd,
// opens a stored value, and has stored anew what is not stored as it should be.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	os.Exit(run(ctx, os.Args[1:], streams{in: os.Stdin, out: os.Stdout, err: os.Stderr}))
}
