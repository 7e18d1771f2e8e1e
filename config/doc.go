// Package config is the meaning of an EncryptionConfiguration: the bytes of a
// file go in, and a checked, read-only [Configuration] comes out, or one error
// that lists everything wrong with it, each problem with its field path and
// what to do about it.
//
// [Parse] accepts what kube-apiserver accepts (apiserver.config.k8s.io/v1
// EncryptionConfiguration and the old v1 EncryptionConfig, YAML or JSON,
// strictly decoded) and means the same by it. It refuses a little more: see
// [Parse]. What works but is seldom meant comes back as a [Warning].
//
// The package watches nothing and keeps no running state. Key material appears
// in no error, no warning and no formatted value of any of its types.
package config
