// Command kube-apiserver is the Kubernetes API server with encryption at rest done by
// atrest.
package main

import (
	"os"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/component-base/cli"

	"github.com/kube-atrest/atrest/apiserver/server"
)

func main() {
	os.Exit(cli.Run(server.NewCommand(genericapiserver.SetupSignalContext())))
}
