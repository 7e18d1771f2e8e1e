// Package bundle is one snapshot of all that a node needs to run the KMS plugins of
// its apiserver: the EncryptionConfiguration, and for each keyID the settings of a
// plugin, its credentials and its CA certificates. It is read or replaced as a whole,
// so that no part of one revision is ever used beside a part of another.
//
// A keyID numbers a plugin and its socket, kms-<keyID>.sock, for the life of a
// cluster. It is not a key_id, which a plugin has of its KMS.
//
// A [Bundle] is built by [New], [Decode], [FromSecret] or [ReadFolder], and is then
// complete: every socket of the configuration has its plugin and the other way round,
// and every plugin has the files that its settings name, and no others. What is not so
// is refused whole. The package runs nothing and asks nobody.
//
// The parts of a bundle and the names of their data keys are those of OpenShift's
// encryption-config Secret.
package bundle
