//go:build unix

package wholefile

import (
	"io/fs"
	"os"
	"syscall"
)

// giveTo makes the owner of a file that of another.
func giveTo(file *os.File, like fs.FileInfo) error {
	is, err := file.Stat()
	if err != nil {
		return err
	}
	has, wants := is.Sys().(*syscall.Stat_t), like.Sys().(*syscall.Stat_t)
	if has.Uid == wants.Uid && has.Gid == wants.Gid {
		return nil
	}
	return file.Chown(int(wants.Uid), int(wants.Gid))
}
