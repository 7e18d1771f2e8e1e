package main

import (
	"fmt"
	"io"
	"os"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"

	"github.com/kube-atrest/atrest/apiserver/etcd"
	apiserver "github.com/kube-atrest/atrest/apiserver/server"
)

// programVariable tells this binary which of its programs to be, so that what is measured
// is always the tree that it was built from.
const programVariable = "ATREST_MEASURE_PROGRAM"

const (
	atrestServer = "kube-apiserver-atrest"
	stockServer  = "kube-apiserver-stock"
	etcdProgram  = "etcd"
)

// startedAs is the program that this process was started as, if it was not the command
// itself. A program ends when the process that started it is gone, however that came
// about.
func startedAs() (program func() int, started bool) {
	name, started := os.LookupEnv(programVariable)
	if !started {
		return nil, false
	}
	go func() {
		// The parent holds the other end open and writes nothing: this returns when it is
		// gone.
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(3)
	}()
	switch name {
	case atrestServer:
		return func() int { return cli.Run(apiserver.NewCommand(genericapiserver.SetupSignalContext())) }, true
	case stockServer:
		return func() int { return cli.Run(app.NewAPIServerCommand()) }, true
	case etcdProgram:
		return runEtcd, true
	default:
		return func() int { return ended(fmt.Errorf("%s=%q is no program of this binary", programVariable, name)) }, true
	}
}

// runEtcd is a member that writes its log to the disk as etcd does. Its arguments are the
// folders of its data and its sockets.
func runEtcd() int {
	ctx := genericapiserver.SetupSignalContext()
	member, err := etcd.Start(ctx, etcd.Options{DataDir: os.Args[1], SocketDir: os.Args[2]})
	if err != nil {
		return ended(err)
	}
	<-ctx.Done()
	member.Close()
	return 0
}

// ended is the exit code for err, which it tells.
func ended(err error) int {
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, "Error:", err)
	return 1
}
