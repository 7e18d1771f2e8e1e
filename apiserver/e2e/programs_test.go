package e2e

import (
	"context"
	"fmt"
	"os"
	"time"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"

	"github.com/kube-atrest/atrest/apiserver/etcd"
	"github.com/kube-atrest/atrest/apiserver/server"
	"github.com/kube-atrest/atrest/envelope"
	"github.com/kube-atrest/atrest/kmsplugin"
	"github.com/kube-atrest/atrest/kmsplugin/keyfile"
)

// The programs that tests start this binary as.
const (
	kubeAPIServer  = "kube-apiserver"
	hurriedServer  = "kube-apiserver-hurried"
	stockServer    = "kube-apiserver-stock"
	etcdProgram    = "etcd"
	keyFileProgram = "keyfile-plugin"
)

// hurry are the times of a hurried server: seconds where the defaults are minutes.
var hurry = envelope.Options{WriteWindow: 10 * time.Second, HealthyPoll: 500 * time.Millisecond, UnhealthyPoll: 250 * time.Millisecond}

// runKubeAPIServer is the main function of cmd/kube-apiserver.
func runKubeAPIServer() int {
	return cli.Run(server.NewCommand(genericapiserver.SetupSignalContext()))
}

// runHurriedServer is the same server, made by a program that sets the times for which there are no flags.
func runHurriedServer() int {
	ctx, o := genericapiserver.SetupSignalContext(), server.NewOptions()
	o.Encryption.KMS = hurry
	if err := o.Parse(os.Args[1:]); err != nil {
		return ended(err)
	}
	return ended(server.Run(ctx, o))
}

// runStockServer is the main function of Kubernetes' own kube-apiserver, with its own encryption.
func runStockServer() int { return cli.Run(app.NewAPIServerCommand()) }

// runEtcd is a member that loses nothing when it is killed. Its arguments are the folders of its data and its
// sockets.
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

// runKeyFilePlugin is what "atrest-keyfile serve" does. Its arguments are the key file and the endpoint.
func runKeyFilePlugin() int {
	return ended(serveKeyFile(genericapiserver.SetupSignalContext(), os.Args[1], os.Args[2]))
}

func serveKeyFile(ctx context.Context, path, endpoint string) error {
	keys, err := keyfile.At(path).Open()
	if err != nil {
		return err
	}
	plugin, err := kmsplugin.Listen(ctx, endpoint, keys)
	if err != nil {
		return err
	}
	return plugin.Serve(ctx)
}

// ended is the exit code for err, which it tells.
func ended(err error) int {
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, "Error:", err)
	return 1
}
