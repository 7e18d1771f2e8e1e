// Package atrest links encryption at rest into a Kubernetes apiserver: three
// flags, and one call that sets the storage transformers, the health check
// kms-providers and the reload of the EncryptionConfiguration.
package atrest
