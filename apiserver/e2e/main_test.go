// Package e2e proves on real parts what the library promises: kube-apiserver as a process
// of its own, etcd, and the key-file plugin, seen through client-go and in the stored
// bytes.
package e2e

import (
	"os"
	"testing"

	"github.com/kube-atrest/atrest/apiserver/internal/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m, harness.Programs())) }
