//go:build unix

package bundle

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// nonblock has the opening of a pipe return at once.
const nonblock = syscall.O_NONBLOCK

// checkOwner is an error if somebody else than root and this user could change it.
func checkOwner(info fs.FileInfo) error {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && stat.Uid != 0 && int(stat.Uid) != os.Geteuid() {
		return fmt.Errorf("it belongs to the user %d, who could change it: give it to root, or to the user %d", stat.Uid, os.Geteuid())
	}
	return nil
}
