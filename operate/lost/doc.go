// Package lost says what of a cluster is lost with a key: what no key of a
// configuration opens, what of that is made again by itself, and what somebody has to
// restore, and from which backup.
//
// What was found by opening every object goes in as [Found], and [Decide] makes an
// [Answer] of it, which is a pure function; a [Look] is who opens.
// Nothing is called lost for a plugin that is away, and nothing is taken for made
// again that is not known to be. [NeedsOf] tells which backup needs which key.
//
// A [Remover] has the apiservers delete what is lost, and looks at all of it again before.
//
// No value leaves this package but sealed, to be kept, and nothing is written to etcd.
package lost
