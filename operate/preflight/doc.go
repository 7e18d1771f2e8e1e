// Package preflight reports whether the KMS plugins of a configuration work, by
// asking them: Status, Encrypt and Decrypt of a random DEK, and whether the
// key_ids agree. A configuration goes in, a [Result] for each plugin comes out.
//
// A [Trial] does so of a plugin that is to be used, a [Candidate], until what is wrong
// with it is over, or found to be final: it is what "atrest node" takes a bundle by, and
// "atrest bundle try" tells. [Collect] asks two plugins whether they have one KEK.
//
// It changes nothing and writes nothing. It does not tell whether a plugin can
// unwrap what is stored: package audit does.
package preflight
