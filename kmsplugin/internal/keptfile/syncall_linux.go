package keptfile

import (
	"os"

	"golang.org/x/sys/unix"
)

func syncAll(name string) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	return unix.Syncfs(int(file.Fd()))
}
