// Package vault has KEKs in the Transit engine of HashiCorp Vault or OpenBao: a
// [kmsplugin.Backend] by net/http alone. In comes where Vault is, which key it is and how to
// log in, out go wrapped DEKs; no KEK ever leaves Vault, and a DEK goes there only over TLS
// unless plain HTTP is asked for.
//
// A key_id is made of the namespace, the mount, the key's name, the number of the version and
// the second in which that version was made. No address is part of it: a Vault that moves
// is the same, and a key that is deleted and made again is another one. A DEK is bound to its
// key_id by Transit's associated_data, so only keys of a kind that has it are taken:
// aes128-gcm96, aes256-gcm96 and chacha20-poly1305. Of an RSA key anybody with the public
// half could wrap a DEK, and CBC does not notice a change.
//
// The package makes no key and rotates none: who may use a key need not be able to.
//
// Of a server that answers more often than it is asked, net/http prints the first bytes with
// the log package of the standard library, and a DEK may be among them. The command
// atrest-kms-plugin prints the place alone; a program of its own does so with log.SetOutput.
package vault
