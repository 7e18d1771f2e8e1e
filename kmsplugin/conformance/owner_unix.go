//go:build unix

package conformance

import (
	"io/fs"
	"syscall"
)

func ownerOf(info fs.FileInfo) (of owner, known bool) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return owner{}, false
	}
	return owner{int(stat.Uid), int(stat.Gid)}, true
}
