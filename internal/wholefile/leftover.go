package wholefile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// prefix begins the name of every file that is to be renamed; digits follow.
const prefix = ".atrest-"

// attempts bounds how often a new file is taken for a leftover, which takes another process in the
// few microseconds before it is locked.
const attempts = 100

// create makes a file of mode 0600 that was not there, to be renamed. What
// others left, who did not live to rename theirs, is removed first: it may hold
// keys. Those who live have theirs locked.
func create(folder string) (*os.File, error) {
	if err := sweep(folder); err != nil {
		return nil, err
	}
	for range attempts {
		file, err := os.CreateTemp(folder, prefix+"*")
		if err != nil {
			return nil, err
		}
		if lock(file) && !isRemoved(file) {
			return file, nil
		}
		discard(file) // another process has taken it for a leftover, before it was locked
	}
	return nil, fmt.Errorf("folder %s: a new file was removed by others on each of %d attempts", folder, attempts)
}

// discard closes and removes what was not renamed.
func discard(file *os.File) {
	_ = file.Close()
	_ = os.Remove(file.Name())
}

func sweep(folder string) error {
	all, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	for _, entry := range all {
		if !entry.Type().IsRegular() || !isOurs(entry.Name()) {
			continue
		}
		path := filepath.Join(folder, entry.Name())
		if err := removeUnlocked(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%w: %s was left by a process that was killed, and may hold keys: remove it", err, path)
		}
	}
	return nil
}

func isOurs(name string) bool {
	digits, ok := strings.CutPrefix(name, prefix)
	return ok && digits != "" && strings.Trim(digits, "0123456789") == ""
}

func removeUnlocked(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	if !lock(file) {
		return nil
	}
	return os.Remove(path)
}
