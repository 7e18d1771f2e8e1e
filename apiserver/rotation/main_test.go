// Package rotation proves on real parts that keys are rotated while a cluster serves:
// three kube-apiservers, an etcd and the plugins are processes of their own, Secrets are
// read and written through all three all the while, and the atrest command does the work.
//
// Tests run side by side, but for those that have to see every step of a rotation or who is
// ready at a moment.
package rotation

import (
	"flag"
	"maps"
	"os"
	"testing"
	"time"

	"github.com/kube-atrest/atrest/apiserver/internal/harness"
)

var (
	objects = flag.Int("objects", 300, "how many Secrets there are before a rotation")
	long    = flag.Bool("long", false, "also run what takes minutes")
	seed    = flag.Int64("seed", time.Now().UnixNano(), "what the choice of processes to kill begins with")
)

func TestMain(m *testing.M) {
	programs := maps.Clone(harness.Programs())
	programs[laggingPlugin] = runLaggingPlugin
	programs[newestPlugin] = runNewestPlugin
	programs[deafPlugin] = runDeafPlugin
	os.Exit(harness.Main(m, programs))
}
