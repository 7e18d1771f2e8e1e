//go:build unix

package wholefile

import (
	"errors"
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

// hasOtherNames reports whether a file has more than one.
func hasOtherNames(is fs.FileInfo) bool { return is.Sys().(*syscall.Stat_t).Nlink > 1 }

// lock takes the lock of a file until it is closed, and reports whether it was
// free. The system takes it from a process that dies. Where there are no locks it
// is free: who finds his file removed has an error and begins again, and nobody
// may leave keys behind.
func lock(file *os.File) (free bool) {
	return !errors.Is(syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB), syscall.EWOULDBLOCK)
}

// beforeRename leaves a file open, as that keeps its lock.
func beforeRename(*os.File) error { return nil }

// isRemoved reports whether a file has no name any more.
func isRemoved(file *os.File) bool {
	is, err := file.Stat()
	return err == nil && is.Sys().(*syscall.Stat_t).Nlink == 0
}
