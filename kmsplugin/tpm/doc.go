// Package tpm is the TPM back end, for machines that have no KMS at all: KEKs in one file, each
// sealed under the TPM of the machine, kept by a [kmsplugin.Keeper]. A path and a TPM come in;
// out goes a [Store] that is opened as a [kmsplugin.Backend], and made, listed and changed,
// by the same process or by another one while a plugin serves it.
//
// # What it does
//
// A KEK is made by this process and sealed (TPM2_Create) under a storage key that the TPM makes
// anew from its own seed whenever it is asked (TPM2_CreatePrimary, the owner hierarchy, the
// ECC P-256 template of the TCG): nothing is kept in the TPM, and nobody else's key is in the
// way. All KEKs are unsealed when the plugin starts and stay in its memory until it ends:
// a DEK is wrapped there, with AES-256-GCM, as the key file's back end does. A real
// TPM takes tens of milliseconds for one answer; thousands of values that are read at a
// cold start would not wait for it.
//
// KEKs cross the bus to the TPM in sessions that are salted with the storage key and encrypted
// (AES-128-CFB). The Name of the storage key is in the file, so that nobody on the bus can put
// a key of their own in its place. The first time, at [Store.Create], there is nothing
// to compare it with.
//
// # What it promises
//
//   - A key_id is never used twice, not even after the file was deleted and made anew: 128 random
//     bits are its lineage. The Name of the TPM's key is no part of it, as a KEK that another
//     machine has sealed again ([Store.Recover]) is the same KEK, and what is stored names it so.
//     The id is sealed together with the KEK: no other one opens under it.
//   - A version once made stays readable for as long as the TPM does, or there is a recovery key,
//     unless it is destroyed ([Store.Destroy]).
//   - The file is treated as a key file is: private, replaced as a whole, on the disk to stay
//     before a key of it wraps.
//   - While the TPM would not open the KEKs again, nothing is wrapped: what is in memory goes on
//     to unwrap.
//
// # What it does not protect
//
// The running machine: whoever is root there, or the plugin's user, has the KEKs. Whoever can write
// the file and use the TPM can put a KEK of their own in it.
//
// Who can only write a copy, or a backup that is put back, cannot. What is sealed for the recovery
// key is sealed with its public half, which is in each copy; so each key has a proof, an HMAC with
// a secret that is made of the recovery key and sealed with each KEK. It binds what is sealed for
// the recovery key, the id, the time and the recovery key: [Store.Recover] takes nothing without,
// and nothing is sealed for a recovery key that no proof names, but for one that is given or made
// at that moment. Each KEK that is unsealed proves all of a file. The rest has no proof: an older
// copy in place of a newer, which version writes, the PCRs of a copy where there is no file, and
// what was destroyed, which is why nothing is removed for that, or kept away, unless it is asked
// for ([Config.RemoveDestroyed]).
//
// # The file
//
// JSON, written by this package alone and compared byte for byte with what it would write.
//
//	{
//	  "format": "atrest-tpm",
//	  "version": 2,
//	  "checksum": "sha256:…",       of what follows, as compact JSON
//	  "primary": "000b…",           Name of the storage key, hexadecimal
//	  "pcrs": "sha256:7,11",        if the KEKs open only while these are what they were
//	  "recovery": "…",              public key that the KEKs are sealed for as well, if there is one
//	  "writes": "0f3a…",            id of the key that wraps
//	  "keys": [                     oldest first
//	    {
//	      "id": "0f3a…",            32 hexadecimal digits
//	      "created": "2026-01-31T12:00:00.123Z",
//	      "public": "…",            the sealed object as TPM2_Load takes it
//	      "private": "…",
//	      "pcrValues": ["…"],       what the PCRs were, in their order
//	      "recovery": "…",          the KEK for the recovery key
//	      "proof": "…"              that it is, and whose: see above
//	    }
//	  ],
//	  "destroyed": ["1c77…"]        ids of keys that were, if any
//	}
//
// The recovery key is the seed of a key pair of HPKE (RFC 9180) with ML-KEM-768 and X25519 together:
// the file has the public half, so that a rotation needs nothing from the safe, and a copy
// of the file is of no use to who has a quantum computer one day. The secret of the proofs is made
// of the same seed (HKDF-SHA256, each with a label).
//
// Version 1 had no proofs, and the seed itself was that of the key pair. Such a file is read, and
// seals no new key until all were sealed again ([Store.Reseal], [Store.Recover]). Keys of one
// that the TPM does not open in the file that is here are taken by [Config.Unproven] alone.
package tpm
