//go:build unix

package node

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// checkOwner refuses a folder of another user.
func checkOwner(path string, info fs.FileInfo) error {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if ok && int(stat.Uid) != os.Geteuid() {
		return fmt.Errorf("folder %s belongs to uid %d, who may change what is in it: use one of uid %d", path, stat.Uid, os.Geteuid())
	}
	return nil
}
