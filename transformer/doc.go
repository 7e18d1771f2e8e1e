// Package transformer turns values into their stored form and back, with keys
// held in this process, and picks the provider of a value by its stored prefix.
//
// A [Provider] is one algorithm under one key: [NewAESGCM], [NewAESCBC],
// [NewSecretbox] and [Identity]. A [Chain] is what the storage layer calls for
// one resource: its first entry writes, all entries read. The stored bytes are
// those of kube-apiserver, in both directions.
//
// Only aesgcm (and KMS) authenticate a value together with its etcd key.
// A secretbox value opens under any etcd key, and aescbc authenticates nothing:
// whoever can write to etcd can change such values.
//
// Everything here is built complete and then only read, so all of it is safe
// for concurrent use. Nothing here reads files, dials, logs, or puts a value or
// key material into an error; types that hold keys print as redacted.
package transformer
