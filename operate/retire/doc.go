// Package retire answers whether a KMS provider, or a key_id, may go: whether
// nothing that is stored, in etcd or in a backup that is kept, and no apiserver
// needs it any longer.
//
// Counts and what apiservers tell go in as [Evidence], and an [Answer] comes
// out. An apiserver that does not tell is a reason against it, and what nobody
// can know is a warning. Nobody is asked here, and nothing is changed.
package retire
