package e2e

import "github.com/kube-atrest/atrest/apiserver/internal/harness"

// The programs that tests start this binary as.
const (
	kubeAPIServer  = harness.KubeAPIServer
	hurriedServer  = harness.HurriedServer
	stockServer    = harness.StockServer
	etcdProgram    = harness.EtcdMember
	keyFileProgram = harness.KeyFilePlugin
)

// hurry are the times of a hurried server: seconds where the defaults are minutes.
var hurry = harness.Hurry()
