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
// The key-file plugin in the folder keyfile is a Service that needs nothing but
// a file; cmd/atrest-keyfile runs it alone.
//
// The package knows nothing of apiservers, of stored objects or of the
// EncryptionConfiguration. It needs a Unix; abstract sockets need Linux.
package kmsplugin
