// Package keyfile is the key-file back end: KEKs in one file, kept by a
// [kmsplugin.Keeper]. A path comes in; out goes a [File] that is opened as a
// [kmsplugin.Backend], and made, listed and changed, by the same process or by
// another one while a plugin serves it.
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
//   - A version once made stays readable until it is destroyed on purpose
//     ([File.Destroy]), and then no other file brings it back unasked.
//   - The file is replaced as a whole or not at all, and no key wraps anything
//     before it is on the disk to stay (fsync(2) of the file and of its folder),
//     whoever put the file there.
//   - A file that others can read or that was damaged is refused, never
//     repaired and never overwritten.
//
// # Several nodes
//
// Each has a file of its own, with the same versions. A version is staged on one
// node, brought to the others ([File.Import]), and activated on each: before
// one wraps with it all unwrap with it. Where nodes were rotated apart, each
// merges the other's file ([File.Merge]): both have the same bytes then.
//
// # How it wraps
//
// AES-256-GCM (NIST SP 800-38D) with a random 96-bit nonce in front; the
// additional data are the name of this use and the key_id. SP 800-38D,
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
//	  "version": 2,
//	  "checksum": "sha256:…",       of what follows, as compact JSON
//	  "writes": "0f3a…",            id of the key that wraps
//	  "keys": [                     oldest first
//	    {
//	      "id": "0f3a…",            32 hexadecimal digits
//	      "formerly": "1.0f3a…",    its key_id in format 1, if it had one
//	      "created": "2026-01-31T12:00:00.123Z",
//	      "kek": "…"                32 bytes in base64
//	    }
//	  ],
//	  "destroyed": ["…"]            ids of keys that were; left out if none was
//	}
//
// Format 1 had a list of keys alone, each with its "keyID", of which the last one
// wrapped. It is read for ever, and written anew as format 2 by the first change.
// Its keys have other key_ids since the kit makes these; what was wrapped under
// the former ones stays readable.
//
// The checksum finds accidents, not attackers: who can write the file can
// write the keys.
package keyfile
