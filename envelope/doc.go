// Package envelope encrypts values under data encryption keys (DEKs) that a
// KMS v2 plugin keeps sealed under its key encryption key (KEK): KEP-3299.
//
// A [Provider] is one plugin. Values come in as bytes with their etcd key and
// go out as the stored form, and the other way round. A write uses the current
// DEK, one for as long as the plugin's key_id stays the same. A read finds its
// DEK in a cache of unwrapped ones and asks the plugin only for one it has
// never seen. Beside that way, a goroutine follows the plugin's Status and
// replaces the write DEK.
//
// Reads never depend on the state of writing. Nothing here knows the
// configuration file or HTTP; what a provider knows of its own condition it
// gives out as data, see [Health].
package envelope
