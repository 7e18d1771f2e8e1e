package rollout

import (
	"bytes"
	"cmp"
	"maps"
	"net/url"
	"path/filepath"
	"slices"

	"github.com/kube-atrest/atrest/internal/hashed"
	"github.com/kube-atrest/atrest/internal/wholefile"
	"github.com/kube-atrest/atrest/operate/rotation"
	"github.com/kube-atrest/atrest/operate/rotation/drive"
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

// keep stores the file of a stage, over one of another rotation.
func (c copies) keep(stage rotation.Stage, apiserver string, file []byte) error {
	if bytes.Equal(c.read(stage, apiserver), file) {
		return nil
	}
	return wholefile.Write(c.path(stage, apiserver), file)
}

// latest says where the file of the latest stage is, of a rotation whose files
// have these hashes; nothing if there is none.
func (c copies) latest(apiserver string, hashes []string) string {
	for i, stage := range slices.Backward(rotation.Stages[:]) {
		if i < len(hashes) && hashed.Name(c.read(stage, apiserver)) == hashes[i] {
			return ": it is in " + c.path(stage, apiserver)
		}
	}
	return ""
}

// telling adds to what is told of a foreign configuration what to put in its place.
func (c copies) telling(tell func(drive.Turn)) func(drive.Turn) {
	if tell == nil {
		return nil
	}
	return func(t drive.Turn) {
		t.Decision.Waiting = slices.Clone(t.Decision.Waiting)
		for i, w := range t.Decision.Waiting {
			if w.Reason != rotation.ForeignConfig {
				continue
			}
			details := maps.Clone(w.Details)
			for _, apiserver := range w.Instances {
				where := c.latest(apiserver, t.State.Plan.Configs[apiserver])
				details[apiserver] += " is none of this rotation's: put the file back as it was" + cmp.Or(where, ": there is no copy of it in "+string(c))
			}
			t.Decision.Waiting[i].Details = details
		}
		tell(t)
	}
}

// whole is the file that a write was to leave which was cut off, of a rotation
// whose files have these hashes; nothing if the file is none that was begun so. An
// empty one may be what a broken program reads of any file.
func (c copies) whole(apiserver string, hashes []string, file []byte) []byte {
	if len(file) == 0 || slices.Contains(hashes, hashed.Name(file)) {
		return nil
	}
	for i, stage := range slices.Backward(rotation.Stages[:]) {
		copied := c.read(stage, apiserver)
		if i < len(hashes) && hashed.Name(copied) == hashes[i] && bytes.HasPrefix(copied, file) {
			return copied
		}
	}
	return nil
}
