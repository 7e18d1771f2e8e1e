// Package kmsv1 reads and writes values with plugins of KMS v1, which is
// deprecated: it is here so that a cluster can move off it, and back.
//
// A [Provider] is one plugin, as in package envelope, of which it shares the
// health, the errors and the classes of problems. Every write makes a DEK and
// has the plugin wrap it; there is no write DEK to keep and no window: writes
// fail with the plugin. Reads find their DEK in a cache, or ask the plugin.
//
// # Stored form
//
// After the prefix k8s:enc:kms:v1:<name>: stands
//
//	length of the wrapped DEK, uint16 big endian
//	wrapped DEK, as the plugin made it
//	nonce (12, random) | ciphertext | tag (16)     AES-GCM, bound to the etcd key
//
// Up to Kubernetes v1.24 the last line was an IV (16, random) and AES-CBC
// ciphertext with PKCS #7 padding. Nothing marks which one it is.
//
// # Reading AES-CBC
//
// A value is opened as AES-CBC only if it cannot be AES-GCM: its tag does not
// verify, its length is a multiple of 16 from 32 on, and its DEK is not known
// to have sealed AES-GCM. A DEK seals one value, so one that opened a value as
// AES-GCM, or was made here, never opens AES-CBC for as long as it is cached.
// What was opened as AES-CBC is stale, so that an update writes it again; every
// one is counted, and told at most once a minute.
//
// That leaves a risk, which kube-apiserver has in full: AES-CBC authenticates
// nothing and is not bound to the etcd key. Who can write to etcd can move and
// change AES-CBC values. As the DEK of a value serves for either mode, they can
// also put AES-CBC ciphertext under the DEK of an AES-GCM value that this process
// has not read yet, or no longer caches. If they know that value's plaintext, they
// can so build a value of up to 15 bytes of their choice, and longer ones that
// are mostly noise; if they do not, one in 256 of their attempts opens, to noise.
// From whether a value opens they learn whether its padding was right; the error
// tells nothing more. The way out is to write everything again with KMS v2 and
// to remove the provider: then nothing is read by this package.
package kmsv1
