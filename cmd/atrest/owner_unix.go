//go:build unix

package main

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

var errLocked = errors.New("another process works with it: wait for its end")

// lock keeps other processes from a file until it is closed, also by the end of
// this process.
func lock(file *os.File) error {
	err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return errLocked
	}
	return err
}
