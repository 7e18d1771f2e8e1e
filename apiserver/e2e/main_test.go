// Package e2e proves on real parts what the library promises: kube-apiserver as a process of its own, etcd,
// and the key-file plugin, seen through client-go and in the stored bytes.
package e2e

import (
	"os"
	"testing"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/component-base/cli"

	"github.com/kube-atrest/atrest/apiserver/internal/harness"
	"github.com/kube-atrest/atrest/apiserver/server"
)

const kubeAPIServer = "kube-apiserver"

func TestMain(m *testing.M) {
	os.Exit(harness.Main(m, map[string]func() int{kubeAPIServer: runKubeAPIServer}))
}

// runKubeAPIServer is the main function of cmd/kube-apiserver.
func runKubeAPIServer() int {
	return cli.Run(server.NewCommand(genericapiserver.SetupSignalContext()))
}
