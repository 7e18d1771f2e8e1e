package reload

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// maxLinks is how many symbolic links a path may lead through, as in Linux
// (path_resolution(7)).
const maxLinks = 40

// namesOf returns every name that decides what path leads to: each folder, each
// symbolic link and what it points to, and last the file itself. No name has a
// symbolic link among its folders. A way that ends early, because a name does
// not exist or cannot be read, ends with that name.
func namesOf(path string) []string {
	var names []string
	at, rest, links := string(filepath.Separator), split(path), 0
	for len(rest) > 0 {
		part := rest[0]
		rest = rest[1:]
		if part == ".." {
			at = filepath.Dir(at)
			continue
		}
		name := filepath.Join(at, part)
		names = append(names, name)
		info, err := os.Lstat(name)
		if err != nil {
			return names
		}
		if info.Mode()&os.ModeSymlink == 0 {
			at = name
			continue
		}
		target, err := os.Readlink(name)
		if links++; err != nil || links > maxLinks {
			return names
		}
		if filepath.IsAbs(target) {
			at = string(filepath.Separator)
		}
		rest = slices.Concat(split(target), rest)
	}
	if len(names) == 0 {
		return []string{at} // the root folder
	}
	return names
}

// split leaves ".." in: after a symbolic link it is not the text before it.
func split(path string) []string {
	return slices.DeleteFunc(strings.Split(path, string(filepath.Separator)), func(part string) bool {
		return part == "" || part == "."
	})
}
