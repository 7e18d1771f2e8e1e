// Package fleet asks the apiservers of a cluster, each on its own: what
// configuration it has in effect, what its KMS plugins told it and what it wrote
// with. Rest configurations come in, what package rotation decides by goes out.
//
// An apiserver of this project tells it at /debug/encryption, any kube-apiserver
// by its metrics and /readyz/kms-providers. What it last wrote with moves only
// when it writes, so there are canaries: objects that are there to be written
// through one apiserver ([Fleet.Write]) and read through the others ([Fleet.Read]).
//
// Each [Member] has to lead past any load balancer. Behind one, an answer is of
// some apiserver, and nobody knows of which. [New] refuses two members with one
// address. An apiserver of this project names its process, and any kube-apiserver
// its identity, so that it is noticed when one answers for two. Which apiservers
// there are that nobody named is told by the cluster ([Fleet.Others]).
//
// The user needs the verb get for the nonResourceURLs /debug/encryption, /metrics
// and /readyz/*, if it may also the verb post for /debug/encryption/ask (see
// [AskingPlugins]). For canaries it needs the verbs get, create, patch and delete
// for secrets and configmaps in one namespace, for another object get and patch, and
// to know of others the verb list for leases (coordination.k8s.io) in kube-system and
// for endpointslices (discovery.k8s.io) in default, and to tell clusters apart
// ([Fleet.Cluster]) the verb get for the namespace kube-system. [Fleet.Denied] tells which it has
// not.
package fleet
