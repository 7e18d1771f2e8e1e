package operator

import (
	"maps"
	"os"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/kube-atrest/atrest/apiserver/internal/harness"
)

func TestMain(m *testing.M) {
	rest.SetDefaultWarningHandler(rest.NoWarnings{}) // of a beta API, with every request
	programs := maps.Clone(harness.Programs())
	programs[controllerManager] = runControllerManager
	os.Exit(harness.Main(m, programs))
}
