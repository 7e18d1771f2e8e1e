// Package retire answers whether a KMS provider, or a key_id, may go: whether
// nothing that is stored, in etcd or in a backup that is kept, and no apiserver
// needs it any longer.
//
// Counts of the whole keyspace and what apiservers tell go in as [Evidence], and an
// [Answer] comes out. What is not known is a reason against it: an apiserver that
// does not tell or was not asked, an object that does not say which key it
// needs. Nobody is asked here, and nothing is changed.
package retire
