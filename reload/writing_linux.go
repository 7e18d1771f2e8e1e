package reload

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// openForWriting reports whether anyone has the file open for writing. The kernel
// grants a read lease only if nobody has (fcntl(2), F_SETLEASE). The lease is
// given back at once: a writer that comes in between waits for these two calls.
//
// False also stands for "cannot tell": the file system has no leases, or the
// file belongs to another user. NFS v4 without a delegation always answers
// true, so true must not be waited out for ever.
func openForWriting(f *os.File) bool {
	connection, err := f.SyscallConn()
	if err != nil {
		return false
	}
	writing := false
	err = connection.Control(func(fd uintptr) {
		_, err := unix.FcntlInt(fd, unix.F_SETLEASE, unix.F_RDLCK)
		if err == nil {
			_, err = unix.FcntlInt(fd, unix.F_SETLEASE, unix.F_UNLCK)
		}
		writing = errors.Is(err, unix.EAGAIN)
	})
	return err == nil && writing
}
