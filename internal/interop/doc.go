// Package interop is a suite of tests, and no code: it holds this library and
// kube-apiserver's own encryption at rest to each other.
//
// Both are given the same EncryptionConfiguration file, the same KMS plugins on
// real sockets and the same stored values, and have to come to the same verdict
// on every value: opened or not, to which plaintext, stale or not. Where they
// may differ is a short list, see the type difference; what is not on it fails.
//
// The comparisons are functions that return an error. The tests want none of
// them to; a test of its own breaks every format and wants each of them to.
// docs/interoperability.md says what all of this shows, and a test here holds
// that page to the code.
package interop
