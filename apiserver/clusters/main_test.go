// Package clusters runs the recipes of docs/clusters: the commands and the files that stand
// there, on the layout that they are for. They run side by side: each has folders and
// servers of its own, and waits for these more than they work.
package clusters

import (
	"os"
	"testing"

	"github.com/kube-atrest/atrest/apiserver/internal/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m, harness.Programs())) }
