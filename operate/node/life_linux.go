package node

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// life is a process, told from any other that had or will have its number: by the tick of
// the kernel's clock in which it began, and the boot of the machine in which that was. A program
// that it is replaced by has the same life.
type life struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"`
	Boot  string `json:"boot"`
}

// lifeOf is that of the process that has a number now.
func lifeOf(pid int) (life, error) {
	boot, err := bootID()
	if err != nil {
		return life{}, err
	}
	is, err := stat(pid)
	return life{PID: pid, Start: is.start, Boot: boot}, err
}

// lasts reports whether a process is there still. One that ended and was not waited for is not.
// An error says that it is not known.
func (l life) lasts() (bool, error) {
	boot, err := bootID()
	if err != nil {
		return false, err
	}
	if boot != l.Boot || l.PID <= 1 {
		return false, nil
	}
	is, err := stat(l.PID)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ESRCH):
		return false, l.gone()
	case err != nil:
		return false, err
	}
	if is.start != l.Start || is.runs() {
		return is.start == l.Start, nil
	}
	ended, err := l.ended()
	return !ended, err
}

// ended asks the kernel once more about a process that seems to have. While another thread than the first
// begins a program, /proc shows for a moment the first one, that is no longer there.
func (l life) ended() (bool, error) {
	held, err := unix.PidfdOpen(l.PID, 0)
	switch {
	case isNone(err), errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EPERM): // it cannot be asked before Linux 5.3, or where a filter forbids it
		return true, nil
	case err != nil:
		return false, err
	}
	defer unix.Close(held)
	return hasEnded(uintptr(held)), nil
}

// isNone reports whether an error of pidfd_open(2) says that no process has the number. A thread may have it: that
// is EINVAL or, since Linux 6.15, ENOENT.
func isNone(err error) bool {
	return errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT)
}

// gone is an error unless no process has the number: /proc may be away, or mounted so that it
// shows nothing of others (hidepid), and a plugin that keeps its memory private is another to all but root.
func (l life) gone() error {
	switch err := unix.Kill(l.PID, 0); {
	case errors.Is(err, unix.ESRCH):
		return nil
	case err != nil && !errors.Is(err, unix.EPERM):
		return err
	}
	return fmt.Errorf("there is a process %d, and /proc does not tell which: is it mounted with hidepid?", l.PID)
}

// bootID is a name that each boot of the machine has.
func bootID() (string, error) {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("which boot of the machine this is: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}

// status is what /proc/PID/stat tells of a process.
type status struct {
	state   byte
	threads int
	start   uint64
}

// runs reports whether any thread of it does. The first may have ended before the others, and seems to have
// for a moment while another one begins a program.
func (s status) runs() bool { return s.state != 'Z' && s.state != 'X' || s.threads > 1 }

// The fields of /proc/PID/stat after the name of the program, which may hold anything and ends
// at the last bracket: the third of proc_pid_stat(5) is the first of them.
const (
	stateField   = 0
	threadsField = 20 - 3
	startField   = 22 - 3
)

func stat(pid int) (status, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return status{}, err
	}
	return parseStat(text)
}

func parseStat(text []byte) (status, error) {
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) <= startField || len(fields[stateField]) != 1 {
		return status{}, errors.New("what /proc tells of the process is not as it is known here")
	}
	threads, err := strconv.Atoi(string(fields[threadsField]))
	start, other := strconv.ParseUint(string(fields[startField]), 10, 64)
	return status{fields[stateField][0], threads, start}, errors.Join(err, other)
}
