// Package clusters runs the recipes of docs/clusters: the commands and the files that stand
// there, on the layout that they are for.
package clusters

import (
	"os"
	"testing"

	"github.com/kube-atrest/atrest/apiserver/internal/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m, harness.Programs())) }
