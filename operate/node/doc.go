// Package node runs the KMS plugins of one control plane node: a folder with
// bundles comes in, and what goes out are a plugin process or pod for each keyID, the
// files that it reads, and the configuration file of the apiserver.
//
// A [Node] goes round: it observes, has [Decide] say what is next, and does that.
// Decide is pure, and all that stands below is in its hands:
//
//   - the file names a plugin only after that one answered, and the very process
//     that was started did, which the kernel tells of its socket;
//   - a bundle whose plugins do not come, or name another key than was expected,
//     leaves the former one in effect;
//   - a keyID goes only when no bundle in effect has it and every apiserver of this
//     node told, since the file changed, that it has the new one in effect. Silence,
//     another identity and an old answer are no such thing.
//
// The last good bundle is kept on the node's own disk, and is all that is needed to
// come up: no apiserver, no cluster, no folder.
//
// It never writes to etcd, never asks an apiserver through a load balancer, and ends
// no process of which it is not proven that it started it.
package node
