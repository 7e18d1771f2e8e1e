// Package side has those who are measured, each ready to use behind the
// interface that an apiserver's storage layer calls: this library,
// kube-apiserver's own encryption, and the bare cipher. A [Lab] makes them, from
// real EncryptionConfiguration files and with a real KMS plugin on a real
// socket, and takes them down.
//
// Nothing here measures.
package side
