// Command atrest is the operator's tool of encryption at rest: it checks a
// configuration, says what a change of it means, counts what is stored in etcd,
// opens a stored value, and has stored anew what is not stored as it should be.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"

	"google.golang.org/grpc/grpclog"
)

func main() {
	if os.Getenv("GRPC_GO_LOG_SEVERITY_LEVEL") == "" { // else somebody wants them
		grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, io.Discard)) // the errors themselves say it
	}
	ends := []os.Signal{syscall.SIGTERM, syscall.SIGINT}
	if !signal.Ignored(syscall.SIGHUP) { // as under nohup; else the terminal has gone, and what was begun is to be ended
		ends = append(ends, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), ends...)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	os.Exit(run(ctx, os.Args[1:], streams{in: os.Stdin, out: os.Stdout, err: os.Stderr}))
}
