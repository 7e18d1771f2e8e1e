package main

import "golang.org/x/sys/unix"

// keepMemoryPrivate keeps the memory, which holds KEKs, out of core dumps and from other
// processes of the same user. Where the kernel does not let it, all else goes on.
func keepMemoryPrivate() { _ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) }
