package node

import "golang.org/x/sys/unix"

// inMemory reports whether a folder is in storage that a power cut empties.
func inMemory(folder string) bool {
	var fs unix.Statfs_t
	if err := unix.Statfs(folder, &fs); err != nil {
		return false
	}
	return fs.Type == unix.TMPFS_MAGIC || fs.Type == unix.RAMFS_MAGIC
}
