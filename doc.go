// Package atrest is encryption at rest for Kubernetes apiservers: a drop-in for what
// is built into kube-apiserver, with the same flags, the same
// EncryptionConfiguration and the same bytes in etcd.
//
// [Options] are the flags. An apiserver that makes its own server.Config calls
// [Options.ApplyTo] and is done. One whose config is made by somebody else, as
// kube-apiserver's is, calls [Options.Start], [Encryption.Install], and when it has
// answered its last request [Encryption.Close].
//
// # What it does while a server runs
//
// Every value goes through the transformer of its resource, by the content of the
// file that is in use. KMS plugins are followed beside that: what is known of them
// decides whether the check kms-providers succeeds and for how long values are still
// written. With automatic reload, a changed file is built and made ready beside what
// is in use, and takes its place when all that it writes with is well; until then,
// and if it cannot be used, nothing changes.
//
// # What stays readable
//
// What kube-apiserver has stored with any provider of any supported version is read,
// and what is stored here is read by kube-apiserver. That does not change with a
// version of this package: a stored form is for ever. docs/interoperability.md has
// each promise with the test that shows it.
//
// # How keys are handled
//
// Keys of the file and data keys are in the memory of the process, and nowhere else:
// not in an error, a log, a metric or the text of a value. Data keys are stored
// wrapped by a KMS plugin. A write goes on for three minutes after its plugin was last
// well; a read of a data key that was met before needs no plugin. Seeds are
// overwritten when they are dropped; the expanded keys of ciphers only in programs
// built with GOEXPERIMENT=runtimesecret.
//
// # Stability
//
// Flags, file, stored forms, the names of metrics of kube-apiserver and the name of
// the check are contracts. The Go API is v0.
package atrest
