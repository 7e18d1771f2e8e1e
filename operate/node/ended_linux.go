package node

import (
	"context"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// waitEnd returns nil once the process of an instance has ended, and an error if ctx has ended before or
// it cannot be waited for. It may be called from any goroutine.
func (r *Processes) waitEnd(ctx context.Context, s Spec) error {
	p, err := recordOf(s)
	if err != nil {
		return err
	}
	fd, err := unix.PidfdOpen(p.Life.PID, unix.PIDFD_NONBLOCK)
	if isNone(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("process %d: %w", p.Life.PID, err)
	}
	process := os.NewFile(uintptr(fd), "process")
	defer process.Close()
	if there, err := p.Life.lasts(); err != nil || !there {
		return err
	}
	waits, err := process.SyscallConn()
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { process.Close() }) // which ends Read
	defer stop()
	return waits.Read(hasEnded)
}

// hasEnded reports whether the process that a descriptor holds has.
func hasEnded(fd uintptr) bool {
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
	return err == nil && n > 0
}
