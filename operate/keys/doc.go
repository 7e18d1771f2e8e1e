// Package keys decides how a managed cluster is to be encrypted: from what is wanted, the
// keys that there are, and what was seen of the apiservers and nodes.
//
// [Next] is a pure function. It gives the keys that are to be made, changed or pruned, with
// a reason for each; what every apiserver is to have, provider by provider; which preflight
// is wanted; what the migration and the proofs under way ask for; which KEK may go; and the
// conditions. It asks nobody and reads no clock. All of it is what ought to be so, said
// again each time, and the records are stored before anything else is carried out: a crash
// at any point is then harmless.
//
// # Where the border is
//
// How a cluster comes from one configuration to the next (the order of files, when an
// apiserver is believed, what has to be counted before anything is removed, the way back)
// stands in package rotation, and nowhere else. This package chooses which move there is to
// be, one at a time, makes the four configurations of it from the records, and keeps its
// [rotation.State] with the key that it leads to. A key is settled when rotation says Done:
// then all older ones are unused, by a proof. While none is on its way, the plugin of the
// key in use is followed by [rotation.OnePlugin]. Settings, parts and the identity of KEKs
// are those of package bundle.
//
// # What is decided otherwise than in the designs that it comes from
//
//   - O1, who has to agree: the apiservers that the cluster expects, which are handed in.
//     One that does not answer blocks by name, nobody at all is never everybody, and who
//     was not expected is in the way.
//   - O2, what was migrated: the key_id that a migration which ended was for. If the count
//     after a move finds anything under another one, all is looked at once more.
//   - O3, who may begin a migration: this machine alone, and it was searched together with
//     package rotation in small worlds, completely.
//   - O5, the end of a plugin: an old key leaves the configuration when a count has nothing
//     under it, and another count confirms it. No further key has to be made first, and
//     [Left] names the KEK that may be disabled.
//   - O6 and O20, another mind: until an apiserver is asked to write with a key the move to
//     it is taken back; from then on a change waits, and the condition says so. What keeps
//     the same KEK is given to the key at once, also to one that is stuck on its way, by
//     what is seen of both or by the key_id.
//   - O7, credentials: with a key that is on its way out the KMS is reached as with the one
//     that is wanted, where both are at one Vault; content of parts of one name is shared.
//   - O8, preflights: one that has not passed yet is tried again as it is. One that is
//     refused begins anew with any change, also of a token that is for nothing else.
//   - O9, the hash of a preflight: HMAC-SHA-256 over fields that have their lengths before
//     them, the credentials among them. A key is made of exactly what passed on every node.
//   - O12, which KEK it is: what nodes saw of key_ids and of opening each other's DEKs
//     decides. An alias is changed in place; a KEK made anew under the same path, once it is
//     seen that it does not open what is stored, is another one and needs another key.
//   - O14, plain text: where it is strict, identity leaves the configuration when a count has
//     no plain text, also later on.
//   - O23, a lost configuration: it follows from the records, so it is made again as it was.
//     One of which it is not known what it had gets one that reads all and writes with a key
//     which all others read, and plain text only if that is the mode.
//
// A record that cannot be read, or one that is gone while a configuration has its key,
// stops everything: it is never taken for no key. It is put back from any bundle that has
// the key ([Kept]), and its way begins anew.
//
// # Which invariants are held here
//
// I3 to I6, I8, I9, I12 to I15, I17 to I22, I24 and I25, by the tests of this package; I1,
// I2, I10, I11 and I16 in package rotation, and here for both together; I7 and I23 by
// package bundle, which refuses what is not whole.
package keys
