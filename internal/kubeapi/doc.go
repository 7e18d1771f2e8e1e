// Package kubeapi asks one apiserver: for objects through client-go, and for what is no
// object by its path. A question is asked once, takes a bounded time, and its answer has
// a bounded size. Whether to ask again is for the caller to decide.
package kubeapi
