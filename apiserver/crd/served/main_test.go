// Package served holds a kube-apiserver with the CustomResourceDefinitions of deploy/crd to
// what the API says.
package served

import (
	"os"
	"testing"

	"github.com/kube-atrest/atrest/apiserver/internal/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m, harness.Programs())) }
