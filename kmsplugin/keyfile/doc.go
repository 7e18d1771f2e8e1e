// Package keyfile is the key-file plugin: KEKs in one file, served as a
// [kmsplugin.Service]. A path comes in; out go a [Plugin] that wraps and
// unwraps, and a [File] that is made, listed and rotated, by the same process
// or by another one while the plugin serves.
//
// # What it protects
//
// Whoever has both the key file and a copy of etcd reads everything; whoever
// has only one of them reads nothing. Keep the file off the disks and out of
// the backups that hold etcd's data, and keep a copy of it for as long as a
// copy of etcd that it opens. Losing it loses the data.
//
// # What it promises
//
//   - A key_id is never used twice, not even after the file was deleted and
//     made anew: 128 random bits are part of it. It says nothing about the key.
//   - A version once made stays readable. Nothing here removes one.
//   - The file is replaced as a whole or not at all, and no key wraps anything
//     before it is on the disk to stay (fsync(2) of the file and of its folder),
//     whoever put the file there.
//   - A file that others can read or that was damaged is refused, never
//     repaired and never overwritten.
//
// # How it wraps
//
// AES-256-GCM (NIST SP 800-38D) with a random 96-bit nonce in front; the
// additional data are the name of this format and the key_id. SP 800-38D,
// section 8.3, allows 2^32 such nonces under a key: at ten Encrypt calls a
// second that is thirteen years, and an apiserver makes one when it starts and
// one for each new DEK. Rotate once a year and the limit is out of sight.
//
// # The file
//
// JSON, written by this package alone and compared byte for byte with what it
// would write: any difference is damage.
//
//	{
//	  "format": "atrest-keyfile",
//	  "version": 1,
//	  "checksum": "sha256:…",       of the list of keys, as compact JSON
//	  "keys": [                     oldest first, the last one wraps
//	    {
//	      "keyID": "1.0f3a…",       version, dot, 32 hexadecimal digits
//	      "created": "2026-01-31T12:00:00Z",
//	      "kek": "…"                32 bytes in base64
//	    }
//	  ]
//	}
//
// The checksum finds accidents, not attackers: who can write the file can
// write the keys.
package keyfile
