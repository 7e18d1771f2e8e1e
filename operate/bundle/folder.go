package bundle

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
)

// current is the link in a folder to the folder with the files that are in use: renaming
// another one over it replaces all of them at once. The kubelet does the same.
const current = "..data"

// maxTries bounds how often a folder is read anew that is replaced meanwhile.
const maxTries = 5

// ReadFolder reads a bundle from a folder of files with the names of [Bundle.Encode]:
// one that [Bundle.WriteFolder] wrote, one that a person filled, or a Secret as the
// kubelet mounts it. What it returns was there at one moment. Files whose names begin
// with a dot are not looked at.
//
// It refuses symbolic links, but for the one by which the whole is replaced, files that
// anybody but the owner may read or write, owners that are neither root nor the
// process's own user, and more than [MaxSize] bytes.
func ReadFolder(path string) (*Bundle, error) {
	var b *Bundle
	var err error
	for range maxTries {
		var from, now string
		b, from, err = readOnce(path)
		if err == nil {
			return b, nil
		}
		if now, _ = os.Readlink(path + "/" + current); now == from {
			break // nobody has replaced it, so it will not get better
		}
	}
	return nil, fmt.Errorf("folder %s: %w", path, err)
}

// readOnce reads what a folder holds now, and says which one within it that was.
func readOnce(path string) (b *Bundle, from string, err error) {
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, "", err
	}
	defer root.Close()
	if err := checkFolder(root); err != nil {
		return nil, "", err
	}
	files := root
	if from, err = linked(root); err != nil {
		return nil, from, err
	}
	if from != "" {
		if files, err = root.OpenRoot(from); err != nil {
			return nil, from, err
		}
		defer files.Close()
		if err := checkFolder(files); err != nil {
			return nil, from, err
		}
	}
	data, err := readAll(files)
	if err != nil {
		return nil, from, err
	}
	b, err = Decode(data)
	return b, from, err
}

// linked is the folder that the link names, empty without one.
func linked(root *os.Root) (string, error) {
	info, err := root.Lstat(current)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	if info.Mode().Type() != fs.ModeSymlink {
		return "", fmt.Errorf("%s is no symbolic link: remove it", current)
	}
	target, err := root.Readlink(current)
	if err != nil {
		return "", err
	}
	if strings.ContainsAny(target, `/\`) || target == current || !strings.HasPrefix(target, "..") || len(target) < 3 {
		return target, fmt.Errorf("%s leads to %.128q, which is no folder of its own making: make the folder anew", current, target)
	}
	if info, err = root.Lstat(target); err != nil {
		return target, err
	}
	if !info.IsDir() {
		return target, fmt.Errorf("%s leads to %s, which is no folder: make the folder anew", current, target)
	}
	return target, nil
}

// checkFolder is an error if others could put files into a folder.
func checkFolder(root *os.Root) error {
	info, err := root.Stat(".")
	if err != nil {
		return err
	}
	if err := checkOwner(info); err != nil {
		return err
	}
	if info.Mode().Perm()&0o022 != 0 && info.Mode()&fs.ModeSticky == 0 {
		return fmt.Errorf("others than its owner may write to it, mode %04o: make it 0700", info.Mode().Perm())
	}
	return nil
}

// readAll reads the files of a folder, within the bounds of a bundle.
func readAll(root *os.Root) (map[string][]byte, error) {
	folder, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	defer folder.Close()
	entries, err := folder.ReadDir(maxEntries + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if len(entries) > maxEntries {
		return nil, fmt.Errorf("more than %d files", maxEntries)
	}
	data := map[string][]byte{}
	left := MaxSize
	for _, entry := range entries {
		name := entry.Name()
		if strings.HasPrefix(name, ".") {
			continue
		}
		content, err := readFile(root, name, left)
		if err != nil {
			return nil, err
		}
		data[name] = content
		left -= len(content)
	}
	return data, nil
}

// readFile reads one file of at most a number of bytes that is what it seems to be.
func readFile(root *os.Root, name string, most int) ([]byte, error) {
	seen, err := root.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !seen.Mode().IsRegular() {
		return nil, fmt.Errorf("%.260q is no regular file: the files of a bundle are all it has", name)
	}
	file, err := root.OpenFile(name, os.O_RDONLY|nonblock, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	switch {
	case !os.SameFile(seen, info):
		return nil, fmt.Errorf("%.260q was replaced while it was opened: try again", name)
	case info.Mode().Perm()&0o077 != 0:
		return nil, fmt.Errorf("%.260q may be read by others than its owner, mode %04o: make it 0600; in a volume, set defaultMode: 0400", name, info.Mode().Perm())
	}
	if err := checkOwner(info); err != nil {
		return nil, fmt.Errorf("%.260q: %w", name, err)
	}
	content, err := io.ReadAll(io.LimitReader(file, int64(most)+1))
	if err == nil && len(content) > most {
		err = fmt.Errorf("the files have more than %d bytes together", MaxSize)
	}
	return content, err
}
