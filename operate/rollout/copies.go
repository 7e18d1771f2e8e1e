package rollout

import (
	"bytes"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"

	"github.com/kube-atrest/atrest/internal/hashed"
	"github.com/kube-atrest/atrest/internal/wholefile"
	"github.com/kube-atrest/atrest/operate/rotation"
)

// copies is the folder where the files are kept as they were: the first of each
// apiserver, to go back to, and the others because what was written since cannot
// be read with the first. There may be some of another rotation among them: what
// a copy is of is told by its hash alone.
type copies string

func (c copies) path(stage rotation.Stage, apiserver string) string {
	return filepath.Join(string(c), string(stage)+"-"+url.PathEscape(apiserver)+".yaml")
}

// read is a copy, whatever rotation it is of; nothing if there is none.
func (c copies) read(stage rotation.Stage, apiserver string) []byte {
	file, err := readFile(c.path(stage, apiserver))
	if err != nil {
		return nil
	}
	return file
}

// all are the copies of a stage, of whichever apiserver.
func (c copies) all(stage rotation.Stage) (files [][]byte) {
	names, _ := fs.Glob(os.DirFS(string(c)), string(stage)+"-*.yaml")
	for _, name := range names {
		if file, err := readFile(filepath.Join(string(c), name)); err == nil {
			files = append(files, file)
		}
	}
	return files
}

// keep stores the file of a stage, over one of another rotation.
func (c copies) keep(stage rotation.Stage, apiserver string, file []byte) error {
	if bytes.Equal(c.read(stage, apiserver), file) {
		return nil
	}
	return wholefile.Write(c.path(stage, apiserver), file)
}

// latest says where the file of the latest stage is, of a rotation whose files have these
// hashes, and on the way back that of the earliest; nothing if there is none. The first
// stage does not read what is written from the swap on.
func (c copies) latest(apiserver string, hashes []string, swapped, back bool) string {
	order := []int{3, 2, 1, 0}
	if back {
		order = []int{0, 1, 2}
	}
	for _, i := range order {
		stage := rotation.Stages[i]
		if i < len(hashes) && (i > 0 || !swapped) && hashed.Name(c.read(stage, apiserver)) == hashes[i] {
			return ": it is in " + c.path(stage, apiserver)
		}
	}
	return ""
}

// begun is where it is noted that a file is being written, and which one, by its hash.
func (c copies) begun(apiserver string) string {
	return filepath.Join(string(c), "writing-"+url.PathEscape(apiserver))
}

// begin notes that the write of a file begins, which may be cut off, and end that it
// left what it was to leave, or nothing.
func (c copies) begin(apiserver string, next []byte) error {
	return wholefile.Write(c.begun(apiserver), []byte(hashed.Name(next)))
}

func (c copies) end(apiserver string) error {
	if err := os.Remove(c.begun(apiserver)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// whole is the file that a write was to leave which began and did not end, of a rotation
// whose files have these hashes; nothing if the file is none that was begun so: then
// somebody edited it. An empty one may be what a broken program reads of any file.
func (c copies) whole(apiserver string, hashes []string, file []byte) []byte {
	if len(file) == 0 || slices.Contains(hashes, hashed.Name(file)) {
		return nil
	}
	begun, _ := os.ReadFile(c.begun(apiserver))
	at := slices.Index(hashes, string(begun))
	if at < 0 || at >= len(rotation.Stages) {
		return nil
	}
	if copied := c.read(rotation.Stages[at], apiserver); hashed.Name(copied) == hashes[at] && bytes.HasPrefix(copied, file) {
		return copied
	}
	return nil
}
