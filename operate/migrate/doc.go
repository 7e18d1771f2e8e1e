// Package migrate has stored objects rewritten, so that what is under a former
// key comes under the one that the apiservers write with.
//
// An apiserver encrypts an object again whenever it is updated, even with
// nothing new, if what is stored is not what it would write. [Cluster.Rewrite]
// makes such an update for each object of a resource: a patch that says nothing
// but the resourceVersion that the object has. So a conflict changes nothing,
// and no object comes here: neither listing, which asks for metadata alone, nor
// patching moves the content of a Secret, and memory is bounded by a page of
// metadata. Permission to list, get and patch is all that is needed.
//
// A conflict means that somebody else updated the object, possibly through an
// apiserver that still writes under the former key. It is read again and
// patched again, until the patch itself succeeds. Kubernetes' own migrators take
// a conflict for an update, which is how objects stay behind.
//
// [Cluster.Delegate] leaves the work to such a migrator, by
// StorageVersionMigration objects, where the cluster has one.
//
// Neither proves anything: what is stored under which key is seen in etcd alone,
// and package audit looks there.
package migrate
