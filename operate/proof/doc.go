// Package proof shows that the apiservers of a cluster and an etcd belong
// together, and what each apiserver writes with.
//
// An object is written through one apiserver, found in etcd under its etcd key
// in the very revision that the apiserver answered with, and read through every
// other apiserver. That is only so if the etcd is the cluster's, the prefix is
// right, all apiservers store in the same place, each can decrypt what the
// others write, and the rights for all of it are there. In etcd stands which
// provider and key_id it was written with, whatever the apiserver says.
//
// A Secret or ConfigMap is written as a canary. Of any other resource an object
// that has to be rewritten anyway is, by a patch that changes nothing.
package proof
