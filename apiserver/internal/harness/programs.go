package harness

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

// Names of the programs in [Programs].
const (
	// KubeAPIServer is the main function of cmd/kube-apiserver.
	KubeAPIServer = "kube-apiserver"
	// HurriedServer is the same server with the times of [Hurry].
	HurriedServer = "kube-apiserver-hurried"
	// StockServer is Kubernetes' own kube-apiserver, with its own encryption.
	StockServer = "kube-apiserver-stock"
	// EtcdMember loses nothing when it is killed. Its arguments are the folders of its
	// data and its sockets.
	EtcdMember = "etcd"
	// KeyFilePlugin is "atrest-kms-plugin keyfile serve". Its arguments are the key file and the
	// endpoint.
	KeyFilePlugin = "keyfile-plugin"
)

// Programs are those that a test may start, for [Main].
func Programs() map[string]func() int {
	return map[string]func() int{
		KubeAPIServer: func() int { return cli.Run(server.NewCommand(genericapiserver.SetupSignalContext())) },
		HurriedServer: ServerWith(Hurry()),
		StockServer:   func() int { return cli.Run(app.NewAPIServerCommand()) },
		EtcdMember:    runEtcd,
		KeyFilePlugin: func() int { return Ended(serveKeyFile(os.Args[1], os.Args[2])) },
	}
}

// Hurry has the times of a hurried server: seconds where the defaults are minutes.
func Hurry() envelope.Options {
	return envelope.Options{WriteWindow: 10 * time.Second, HealthyPoll: 500 * time.Millisecond, UnhealthyPoll: 250 * time.Millisecond}
}

// ServerWith is a program that sets the times for which there are no flags.
func ServerWith(kms envelope.Options) (program func() int) {
	return func() int {
		ctx, o := genericapiserver.SetupSignalContext(), server.NewOptions()
		o.Encryption.KMS = kms
		if err := o.Parse(os.Args[1:]); err != nil {
			return Ended(err)
		}
		return Ended(server.Run(ctx, o))
	}
}

func runEtcd() int {
	ctx := genericapiserver.SetupSignalContext()
	member, err := etcd.Start(ctx, etcd.Options{DataDir: os.Args[1], SocketDir: os.Args[2]})
	if err != nil {
		return Ended(err)
	}
	<-ctx.Done()
	member.Close()
	return 0
}

func serveKeyFile(path, endpoint string) error {
	keys, err := Keys(path)
	if err != nil {
		return err
	}
	return Serve(endpoint, keys)
}

// Keys are those of a file, for as long as the process runs.
func Keys(path string) (kmsplugin.Service, error) {
	file, config := keyfile.At(path), keyfile.Config()
	if _, err := file.List(); err != nil {
		return nil, err
	}
	config.Poll = 100 * time.Millisecond // what waits for a rotation is a test
	keeper, err := kmsplugin.NewKeeper(file, config)
	if err != nil {
		return nil, err
	}
	keeper.Start(context.Background())
	return keeper, nil
}

// Serve serves a plugin until the process is told to end.
func Serve(endpoint string, service kmsplugin.Service) error {
	ctx := genericapiserver.SetupSignalContext()
	plugin, err := kmsplugin.Listen(ctx, endpoint, service)
	if err != nil {
		return err
	}
	return plugin.Serve(ctx)
}

// Ended is the exit code of a program for err, which it tells.
func Ended(err error) int {
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, "Error:", err)
	return 1
}
