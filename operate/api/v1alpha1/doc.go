// Package v1alpha1 is the API by which people say once how a cluster is to be encrypted,
// and read how far it is: the types of the group encryption.kube-atrest.io, their defaults
// and what is valid of them. It runs nothing and asks nobody.
//
// What stands under spec.encryption of an APIServer of OpenShift is valid under that of an
// [EncryptionAtRest], and what is refused there is refused here, in the same words. Four
// things differ on purpose. More is known here: secretbox, other back ends than Vault, other
// ways to log in. The image may be left out, as nodes may run processes. What would be
// accepted there and could never work is refused: an address without a host, or with an empty
// query or fragment, a namespace with control characters or a reserved one after a slash, and
// a name of a Secret or a ConfigMap with which a data key would have more than 253 characters.
// And an image may be on localhost, or behind a port of one digit.
//
// The rules stand twice: as CEL in the CustomResourceDefinitions, which are generated from
// the markers here, and in [EncryptionAtRest.Validate] for those who have no apiserver to
// ask. internal/apicase has the cases that hold both, and a real kube-apiserver, to the same
// fields and the same words.
//
// +groupName=encryption.kube-atrest.io
// +kubebuilder:object:generate=true
// +versionName=v1alpha1
package v1alpha1

//go:generate env GOWORK=off go tool -modfile=../../../tools/go.mod controller-gen object crd paths=. output:crd:dir=../../../deploy/crd
