package operator

import (
	"testing"

	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app"

	"github.com/kube-atrest/atrest/apiserver/internal/harness"
)

// controllerManager is Kubernetes' own kube-controller-manager. It is no program of the
// harness, as every test binary would have to be linked with it.
const controllerManager = "kube-controller-manager"

func runControllerManager() int { return cli.Run(app.NewControllerManagerCommand()) }

// migrationFlags have a kube-apiserver serve StorageVersionMigrations.
func migrationFlags() []string {
	return []string{"--feature-gates=StorageVersionMigrator=true", "--runtime-config=storagemigration.k8s.io/v1beta1=true"}
}

// startMigrator runs a kube-controller-manager that works through an apiserver, with the
// migrator and the garbage collector, from whose caches that one takes what there is.
func startMigrator(t *testing.T, through *harness.Server) {
	t.Helper()
	harness.Run(t, controllerManager,
		"--kubeconfig="+kubeconfig(t, through.Config),
		"--feature-gates=StorageVersionMigrator=true",
		"--controllers=garbage-collector-controller,storage-version-migrator-controller",
		"--leader-elect=false", "--secure-port=0")
}
