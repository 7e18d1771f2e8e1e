// Package quiet keeps the etcd client inside kube-apiserver from writing to standard
// error.
//
// That client has a logger of its own, made while its package is initialised, and out of
// reach afterwards: a slow moment of etcd would write JSON between the lines of the
// quickstart. Importing this package takes the outputs out of the configuration that the
// logger is made from. It comes in time because packages are initialised in the order of
// their import paths where their imports allow it (Go specification, "Program
// initialization"), and this one imports no more than that client does. What matters is
// in kube-apiserver's own log as well.
package quiet

import "go.etcd.io/etcd/client/pkg/v3/logutil"

func init() {
	logutil.DefaultZapLoggerConfig.OutputPaths = nil
	logutil.DefaultZapLoggerConfig.ErrorOutputPaths = nil
}
