// Package snapshot reads an etcd snapshot, or the database file of a stopped
// member, for package audit. It needs no etcd.
//
// The file is a B+tree of pages (bbolt's format, version 2), in which etcd keeps
// every revision of every key that is not compacted. It is read with plain
// reads: nothing is locked or mapped, every length in the file is checked, and
// no content, however damaged, does more than end in an error. What is packed is
// unpacked first, into a file that goes with the process.
package snapshot
