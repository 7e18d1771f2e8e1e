// Package kmsplugin is the other end of a KMS v2 socket (KEP-3299): a kit that
// turns a [Service], which wraps and unwraps small keys, into a gRPC server on
// a unix socket. In comes an endpoint and a Service, out goes what an apiserver
// calls a KMS plugin.
//
// The kit owns what every plugin needs and few get right: the socket's mode,
// a dead socket file replaced and a live one respected, the limits of KEP-3299
// held in both directions, a panic turned into an error, an orderly stop. The
// Service is left with the keys.
//
// A [Backend] has KEKs, in a KMS, an HSM or a file, and a [Keeper] makes a Service of it: it
// alone makes key_ids, looks at the versions apart from Status, and announces one when it is
// time.
//
// What happens is told to an [Observer], as which the folder telemetry has metrics.
//
// The key file in the folder keyfile is a Backend that needs nothing but a file;
// cmd/atrest-kms-plugin serves all back ends.
//
// The package knows nothing of apiservers, of stored objects or of the
// EncryptionConfiguration. It needs a Unix.
package kmsplugin
