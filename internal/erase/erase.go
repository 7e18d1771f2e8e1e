// Package erase has the memory of keys overwritten where the Go runtime can do
// that: in programs built with GOEXPERIMENT=runtimesecret, on linux/amd64 and
// linux/arm64. Elsewhere a key that is let go stays in memory until the garbage
// collector gives its place to something else.
package erase

import "runtime"

// Do runs f. What f allocates, such as the expanded key of a cipher, is
// overwritten once nothing refers to it, and so are the stack and the
// registers that f used.
func Do(f func()) { do(f) }

// With has key overwritten once nothing refers to holder. key must not
// lead to holder, and nothing but holder may use it.
func With[T any](holder *T, key []byte) { runtime.AddCleanup(holder, overwrite, key) }

func overwrite(key []byte) { clear(key) }
