// Package fleet asks the apiservers of a cluster, each on its own: what
// configuration it has in effect, what its KMS plugins told it and what it wrote
// with. Rest configurations come in, what package rotation decides by goes out.
//
// An apiserver of this project tells it at /debug/encryption, any kube-apiserver
// by its metrics and /readyz/kms-providers. What it last wrote with moves only
// when it writes, so there are canaries: objects that are there to be written
// through one apiserver.
//
// Each [Member] has to lead past any load balancer. Behind one, an answer is of
// some apiserver, and nobody knows of which. [New] refuses two members with one
// address, and an apiserver of this project names its process, so that it is
// noticed when one answers for two. Any other kube-apiserver tells nothing that
// would tell it from its neighbour on the same host.
//
// The user needs the verb get for the nonResourceURLs /debug/encryption,
// /metrics and /readyz/*, if it may also the verb post for
// /debug/encryption/ask (see [AskingPlugins]), and for canaries the verbs
// create, patch and delete for secrets and configmaps in one namespace.
package fleet
