package node

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kube-atrest/atrest/internal/wholefile"
	"github.com/kube-atrest/atrest/operate/bundle"
)

// instances are the folders of all instances, below one folder of mode 0700, which is in memory
// where there is such storage. A folder is there before the instance is started, and until
// it is known to be gone.
type instances struct{ folder string }

// instance is what is known of one from its folder alone.
type instance struct {
	Spec Spec `json:"spec"`
	// Named tells that it was given the stable name, or was about to be.
	Named bool `json:"named,omitempty"`
}

const (
	recordName = "instance.json"
	filesLink  = "files"
	filesOf    = "files."
	logName    = "log"
)

// newInstance is a name that was never used: it has some 60 bits of chance.
func newInstance() string { return strings.ToLower(rand.Text()[:12]) }

// prepare makes the folder of an instance with its files, and its record as the last.
func (i instances) prepare(s Spec, files map[string][]byte, hash string) error {
	if err := os.MkdirAll(i.folder, 0o700); err != nil {
		return err
	}
	if err := os.Mkdir(s.Folder, 0o700); err != nil {
		return err
	}
	if err := putFiles(s, files, hash); err != nil {
		return err
	}
	return i.record(instance{Spec: s})
}

func (i instances) record(in instance) error {
	text, err := json.Marshal(in)
	if err != nil {
		return err
	}
	return wholefile.Write(filepath.Join(in.Spec.Folder, recordName), text)
}

// all are the instances that have a record, and the folders that have none: of those nothing was
// ever started.
func (i instances) all() (found []instance, stray []string, err error) {
	entries, err := os.ReadDir(i.folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		folder := filepath.Join(i.folder, e.Name())
		in, err := readRecord(folder)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			stray = append(stray, folder)
		case err != nil:
			return nil, nil, fmt.Errorf("record of an instance: %s: %w", folder, err)
		default:
			found = append(found, in)
		}
	}
	return found, stray, nil
}

func readRecord(folder string) (instance, error) {
	text, err := os.ReadFile(filepath.Join(folder, recordName))
	if err != nil {
		return instance{}, err
	}
	var in instance
	if err := json.Unmarshal(text, &in); err != nil {
		return instance{}, err
	}
	if in.Spec.Folder != folder || in.Spec.Instance != filepath.Base(folder) {
		return instance{}, errors.New("it is of another folder")
	}
	if _, err := bundle.ParseKeyID(in.Spec.KeyID); err != nil {
		return instance{}, err
	}
	return in, nil
}

// putFiles gives an instance its files: all of them at once, by the rename of a link, as the
// kubelet does. Who has opened a former one reads it to its end.
func putFiles(s Spec, files map[string][]byte, hash string) error {
	name := filesOf + strings.TrimPrefix(hash, "sha256:")
	folder := filepath.Join(s.Folder, name)
	if err := wipe(folder); err != nil { // one that was not finished
		return err
	}
	if err := os.Mkdir(folder, 0o700); err != nil {
		return err
	}
	for _, file := range slices.Sorted(maps.Keys(files)) {
		if err := wholefile.Write(filepath.Join(folder, file), files[file]); err != nil {
			return err
		}
	}
	return relink(name, s.Files())
}

// relink makes a link lead to a target, in one step.
func relink(target, link string) error {
	next := filepath.Join(filepath.Dir(link), "."+filepath.Base(link)+".next")
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Symlink(target, next); err != nil {
		return err
	}
	return os.Rename(next, link)
}

// filesNow is the hash of the files that an instance has, empty if that is not known.
func filesNow(s Spec) string {
	target, err := os.Readlink(s.Files())
	hex, ok := strings.CutPrefix(target, filesOf)
	if err != nil || !ok {
		return ""
	}
	return "sha256:" + hex
}

// former are the folders with files that an instance had before.
func former(s Spec) []string {
	target, err := os.Readlink(s.Files())
	if err != nil {
		return nil
	}
	all, err := filepath.Glob(filepath.Join(s.Folder, filesOf+"*"))
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(all, func(folder string) bool { return filepath.Base(folder) == target })
}

// discard removes the folder of an instance that is gone. Its record goes after its files and
// before the rest: whoever is killed in between leaves one that can be read, or one that nothing
// runs for.
func (i instances) discard(s Spec) error {
	all, err := filepath.Glob(filepath.Join(s.Folder, filesOf+"*"))
	for _, folder := range all {
		err = errors.Join(err, wipe(folder))
	}
	if err != nil {
		return err
	}
	if err := removed(filepath.Join(s.Folder, recordName)); err != nil {
		return err
	}
	return wipe(s.Folder)
}

// wipe overwrites all files below a folder and removes it. That it is not there is no error. A
// link is removed and not followed.
func wipe(folder string) error {
	root, err := os.Lstat(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if !root.IsDir() {
		return fmt.Errorf("%s is no folder", folder)
	}
	err = filepath.WalkDir(folder, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		return overwrite(path)
	})
	return errors.Join(err, os.RemoveAll(folder))
}

// overwrite puts zeros in the place of a content. A disk may keep the former one all the same;
// memory does not.
func overwrite(path string) error {
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	return zero(file)
}

// zero overwrites a file from its beginning, and closes it.
func zero(file *os.File) error {
	info, err := file.Stat()
	if err == nil {
		_, err = io.CopyN(file, zeros{}, min(info.Size(), maxFile))
	}
	return errors.Join(err, file.Sync(), file.Close())
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
