//go:build unix

// Package filelock is one thing: a lock between processes (and between users
// of this package in one process) that is a file beside what it guards. The
// kernel drops it when its holder dies, so a crash never leaves it held.
package filelock

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// ErrHeld is returned by [TryAcquire] while somebody else holds the lock.
var ErrHeld = errors.New("lock is held")

// attempts bounds how often a lock file may vanish under us, which takes a
// holder releasing in the few microseconds between our open and our lock.
const attempts = 100

// A Lock is held from [TryAcquire] until [Lock.Release].
type Lock struct {
	file *os.File
}

// TryAcquire takes the lock at path, creating the file with mode 0600, and
// never waits: ErrHeld says that somebody else has it. A symbolic link at path
// is an error. The folder of path must exist and be writable.
func TryAcquire(path string) (*Lock, error) {
	for range attempts {
		lock, err := tryOnce(path)
		if err != nil || lock != nil {
			return lock, err
		}
	}
	return nil, fmt.Errorf("lock file %s: replaced on each of %d attempts: %w", path, attempts, ErrHeld)
}

// tryOnce returns nil and no error if the file it locked is no longer the one
// at path: its holder removed it on release, and only the file that newcomers
// would open keeps them out.
func tryOnce(path string) (*Lock, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock file: %w", err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		file.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock file %s: %w", path, ErrHeld)
		}
		return nil, fmt.Errorf("lock file %s: flock: %w", path, err)
	}
	if !isAt(path, file) {
		file.Close()
		return nil, nil
	}
	return &Lock{file: file}, nil
}

func isAt(path string, file *os.File) bool {
	ours, err := file.Stat()
	if err != nil {
		return false
	}
	theirs, err := os.Lstat(path)
	return err == nil && os.SameFile(ours, theirs)
}

// Release removes the lock file and gives the lock up. The file goes first,
// while the lock is still held, so that only a holder ever removes it: one that
// somebody put in its place stays.
func (l *Lock) Release() error {
	var err error
	if isAt(l.file.Name(), l.file) {
		err = os.Remove(l.file.Name())
	}
	return errors.Join(err, l.file.Close())
}
