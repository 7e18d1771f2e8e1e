// Package bench measures the library beside kube-apiserver's own encryption,
// tink-go's KMS envelope and the bare cipher: from real EncryptionConfiguration
// files, with a real KMS plugin on a real socket, through the interface that the
// storage layer calls, with metrics on.
//
//	go run ./bench/report        the whole set, as ratios, tables and plots
//	go test -bench . ./bench     the same contestants as Go benchmarks
//
// Package side has who is measured, suite what is done, measure how figures are
// taken, and report says what they mean. Only ratios of one run mean anything:
// machines differ, and so do the hours of one.
package bench
