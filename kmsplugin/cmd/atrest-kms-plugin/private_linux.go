package main

import "golang.org/x/sys/unix"

// keepMemoryPrivate keeps the memory, which holds KEKs, out of core dumps and from other
// processes of the same user, and out of swap where that is not limited: with a limit the
// process would end when it reaches it. Where the kernel does not let it, all else goes on.
func keepMemoryPrivate() {
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit); err == nil && limit.Cur == unix.RLIM_INFINITY {
		_ = unix.Mlockall(unix.MCL_CURRENT | unix.MCL_FUTURE | unix.MCL_ONFAULT)
	}
}
