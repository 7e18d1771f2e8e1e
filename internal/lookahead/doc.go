// Package lookahead finds the DEKs of the objects that an apiserver which starts
// is about to read, so that they can be unwrapped ahead of it, many at a time:
// the apiserver itself reads one object after another, and each DEK that it
// meets for the first time is a call to the plugin in which nothing else happens.
//
// Where a resource is in etcd comes in, and one value of each DEK goes out: the
// sealed DEK of a value is in the clear. It reads a small part of the objects
// only, a few here and a few there, more where DEKs are found and none when none
// are found; a DEK that few objects have may be missed, and is left to
// its reader. It never opens a value, never writes, and returns no error to
// anybody: its readers are told of what does not work.
package lookahead
