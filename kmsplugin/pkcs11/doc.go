// Package pkcs11 is a back end of the kit whose KEKs are AES-256 keys on a PKCS#11 token, an
// HSM or SoftHSM, which they never leave: the token wraps and unwraps. In comes a [Config],
// out goes a [kmsplugin.Backend], and what there is to do with the keys on the token.
//
// All secret keys of one CKA_LABEL are the versions of the KEK, and a rotation makes one
// more. Which one a key is stands in its CKA_ID, which is drawn when it is made, and
// nowhere else: it is copied with the key to the other HSMs of a cluster, so that all of
// them have the same key_ids, and a key that is deleted and made again has another one. It
// is not in the token's serial number or slot, which are of one device, not in CKA_LABEL,
// which an operator may change or use again, not in CKA_UNIQUE_ID, which is of one
// object on one token and which few tokens have, and not in CKA_CHECK_VALUE, which is of 24
// bits and which a new firmware may add: a key_id that changes while its key stays is
// a key that reads nothing.
//
// The package needs cgo, and holds no key material: a DEK goes through it in the clear, as it
// does through every plugin.
package pkcs11
