package conformance

import (
	"bytes"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// An instant is told by two clocks of the kernel. One is coarse; the other is exact, and begins anew
// after some ten thousand processes and threads.
type instant struct {
	ticks  uint64 // since the kernel booted, 100 a second
	newest int    // the ID that was given to a process or a thread last
}

// thisInstant is zero if the kernel does not tell. What /proc/uptime tells in a container may be the
// container's age, and the beginning of a process is always told by the kernel's.
func thisInstant() instant {
	load, err := os.ReadFile("/proc/loadavg")
	var up unix.Timespec
	failed := unix.ClockGettime(unix.CLOCK_BOOTTIME, &up)
	all := bytes.Fields(load)
	if err != nil || failed != nil || len(all) != 5 {
		return instant{}
	}
	newest, err := strconv.Atoi(string(all[4]))
	if err != nil {
		return instant{}
	}
	return instant{uint64(up.Nano()) / 1e7, newest}
}

// isBefore reports whether a process began after the instant.
func (i instant) isBefore(pid int) (bool, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false, err
	}
	// The name of the program is in brackets, and may have any character.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	const began = 22 - 3 // starttime of proc(5), without what is before
	if len(fields) <= began {
		return false, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields))
	}
	ticks, err := strconv.ParseUint(string(fields[began]), 10, 64)
	return ticks > i.ticks || ticks == i.ticks && pid > i.newest, err
}
