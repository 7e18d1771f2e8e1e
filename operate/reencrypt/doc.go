// Package reencrypt brings what is stored in line with an encryption
// configuration, and proves it.
//
// A [Migration] asks all apiservers whether they agree on what to write with,
// counts in etcd what is not stored so ([Migration.Plan]), has it stored again
// through the API, asks once more, and counts again ([Migration.Carry]). Its
// answer is the last count, never that something was done. A [Store] is the part
// that counts and rewrites, for others too. Nothing here writes to etcd or sees
// the content of an object.
package reencrypt
