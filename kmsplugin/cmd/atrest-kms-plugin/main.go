// Command atrest-kms-plugin runs a KMS v2 plugin on its own, one for each back end of
// the kit, and does what there is to do with its keys.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	keepMemoryPrivate()
	hideStandardLog(os.Stderr)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}
