package wholefile

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// refuse tells why a file, named without symbolic links, must not be replaced by
// a rename: who reads it would go on with the old one, or it would come back.
func refuse(path string, is os.FileInfo, otherwise string) error {
	if !is.Mode().IsRegular() {
		return fmt.Errorf("%s is no regular file: name one, or %s", path, otherwise)
	}
	if inVolume(path) {
		return fmt.Errorf("%s is of a mounted ConfigMap or Secret, which kubelet writes anew: change that object, or %s", path, otherwise)
	}
	if hasOtherNames(is) {
		return fmt.Errorf("%s has another name (a hard link), which would keep the old content: make it a file of its own, or %s", path, otherwise)
	}
	if at := mountedAlone("/proc", path); at != "" {
		return fmt.Errorf("%s is mounted by itself at %s, where the new file would not be seen: mount its folder, or %s", path, at, otherwise)
	}
	for _, frozen := range []string{path, filepath.Dir(path)} {
		if isFrozen(frozen) {
			return fmt.Errorf("%s cannot be replaced, as its attributes say (lsattr: i or a): take them off, or %s", frozen, otherwise)
		}
	}
	return nil
}

// inVolume reports whether a path, without symbolic links, is in a volume that
// kubelet writes: in a folder "..TIME" beside the link "..data" that leads to it.
func inVolume(path string) bool {
	for folder := filepath.Dir(path); folder != filepath.Dir(folder); folder = filepath.Dir(folder) {
		if !strings.HasPrefix(filepath.Base(folder), "..") {
			continue
		}
		if link, err := os.Lstat(filepath.Join(filepath.Dir(folder), "..data")); err == nil && link.Mode()&os.ModeSymlink != 0 {
			return true
		}
	}
	return false
}
