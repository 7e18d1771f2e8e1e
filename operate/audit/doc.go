// Package audit tells how what is stored in etcd is encrypted: by which
// provider, under which key or key_id, and under how many data keys. It needs
// no keys, because all of that stands in the clear before the ciphertext.
//
// A [Source] goes in: a running etcd (package audit/etcd) or a snapshot file
// (package audit/snapshot). [Run] walks it once, as of one revision, and a
// [Report] comes out. [Report.Against] holds a report against a configuration
// file: what it could not read, and what is not stored as it says. With an
// [Opener] the walk also proves of each object that it opens.
//
// Nothing here writes to etcd, and no value or key reaches a report.
package audit
