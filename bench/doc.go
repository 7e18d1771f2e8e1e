// Package bench measures the library beside kube-apiserver's own encryption and the
// bare cipher: from real EncryptionConfiguration files, with a real KMS plugin on a
// real socket, through the interface that the storage layer calls, with metrics on.
//
//	go run ./bench/report        the whole set, as ratios, tables and plots
//	go run ./bench/wraps         KMS plugins on a socket, beside their back ends alone
//	go test -bench . ./bench     the same contestants as Go benchmarks
//
// Package side has who is measured, suite what is done, and report says what the
// figures mean; how they are taken is in internal/measure. Only ratios of one run
// mean anything: machines differ, and so do the hours of one.
package bench
