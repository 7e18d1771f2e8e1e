// Package healthz is what an apiserver tells of its encryption at rest: the data
// ([Status]), the health check kms-providers and its one line ([Check], [Status.Line]),
// the JSON over HTTP ([Handler]), and how that is read back ([Decode]).
//
// What is known comes in as data. Nothing here calls a plugin or changes anything,
// so a probe costs nothing.
package healthz
