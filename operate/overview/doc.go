// Package overview says how a fleet of apiservers is: whether all of them agree and
// are well, whether something is not as it should be, or whether that is unknown, and
// what exactly, in words.
//
// What was seen in one look goes in as [Seen], and [Of] makes an [Overview] of it: a
// row for each provider of each apiserver, and the problems. It is a pure function;
// [Look] is who asks. What was not seen in this look is unknown, never well, however
// well it was before.
package overview
