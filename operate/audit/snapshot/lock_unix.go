//go:build unix

package snapshot

import (
	"errors"
	"os"
	"syscall"
)

// isLocked reports whether somebody has the file for writing: etcd locks its
// database for as long as it runs. The lock is let go at once, so that an etcd
// that starts does not have to wait for it.
func isLocked(file *os.File) bool {
	err := syscall.Flock(int(file.Fd()), syscall.LOCK_SH|syscall.LOCK_NB)
	if err == nil {
		_ = syscall.Flock(int(file.Fd()), syscall.LOCK_UN) // closing the file does too
	}
	return errors.Is(err, syscall.EWOULDBLOCK)
}
