//go:build linux || darwin

package snapshot

import (
	"math"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// room is how much may be written beside a file: nine tenths of what is free, as
// etcd itself may be on the same disk. What cannot be told is no bound.
func room(file string) int64 {
	var disk unix.Statfs_t
	if err := unix.Statfs(filepath.Dir(file), &disk); err != nil {
		return math.MaxInt64 - 1
	}
	free := disk.Bavail * uint64(disk.Bsize)
	return int64(min(free/10*9, math.MaxInt64-1))
}
