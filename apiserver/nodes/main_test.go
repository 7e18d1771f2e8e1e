// Package nodes proves on real parts that [node.Node] runs the plugins of a cluster: three nodes on
// one machine, each with the process of "atrest node", its plugins and a kube-apiserver, on one
// etcd. Secrets are read and written through all three all the while, and the bundles in
// the folders of the nodes say what is to be.
//
// Plugins are in front of Vault, a real one where ATREST_VAULT names its program, or have a file with
// keys, or do wrong when they are told to. At every step somebody is killed as by kill -9, on one
// machine after the other.
package nodes

import (
	"flag"
	"maps"
	"os"
	"testing"
	"time"

	"github.com/kube-atrest/atrest/apiserver/internal/harness"
	"github.com/kube-atrest/atrest/envelope"
)

var (
	objects = flag.Int("objects", 60, "how many Secrets there are that only a migration writes again")
	long    = flag.Bool("long", false, "also run what takes minutes: every kind of process is killed at every step, with every back end")
)

// attentive is a kube-apiserver that asks its plugins often, and goes on without them for as long as any.
const attentive = "kube-apiserver-attentive"

func TestMain(m *testing.M) {
	programs := maps.Clone(harness.Programs())
	programs[attentive] = harness.ServerWith(envelope.Options{HealthyPoll: 500 * time.Millisecond, UnhealthyPoll: 250 * time.Millisecond})
	os.Exit(harness.Main(m, programs))
}
