// Package controller makes a cluster so as its EncryptionAtRest says. It decides nothing that
// package keys does not.
//
// So far it has the first step of that: what an object and all that it names come to, see
// [Wanted].
package controller
