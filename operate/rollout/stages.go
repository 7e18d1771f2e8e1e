package rollout

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/internal/hashed"
	"github.com/kube-atrest/atrest/internal/wholefile"
	"github.com/kube-atrest/atrest/operate/rotation"
	"github.com/kube-atrest/atrest/operate/rotation/edit"
)

// stages brings the configuration files of apiservers from stage to stage.
type stages struct {
	files   Files
	hashes  map[string][]string // of all stages, by apiserver, as in a rotation.Plan
	changes func(apiserver string) []edit.Replacement
	// copies is the folder where the files are kept as they were.
	copies string
}

// bring makes the file of an apiserver that of a stage, whose hash it has to have
// then. A file that is none of the rotation's is somebody else's, and stays.
func (r *stages) bring(ctx context.Context, apiserver string, to rotation.Stage, hash string) error {
	file, err := r.files.Read(ctx, apiserver)
	if err != nil {
		return err
	}
	known := r.hashes[apiserver]
	at, wanted := slices.Index(known, hashed.Name(file)), slices.Index(rotation.Stages[:], to)
	switch {
	case at < 0:
		return fmt.Errorf("the file has hash %s, which is none of this rotation's, and stays as it is: somebody changed it, "+
			"so put it back as it was%s", hashed.Name(file), r.latest(apiserver))
	case at == wanted:
		return nil
	case at > wanted:
		return fmt.Errorf("the file is that of stage %q already, and is not in effect: see why the apiserver does not take it into use", rotation.Stages[at])
	}
	next, err := edit.Advance(file, rotation.Stages[at], to, r.changes(apiserver)...)
	if err != nil {
		return err
	}
	if hashed.Name(next) != hash {
		return errors.New("the new file would not be the one that was planned: give --endpoint and --plugin-timeout as at the beginning")
	}
	if err := errors.Join(r.keep(rotation.Stages[at], apiserver, file), r.keep(to, apiserver, next)); err != nil {
		return fmt.Errorf("copy of the file: %w", err)
	}
	return r.files.Write(ctx, apiserver, next)
}

// keep stores the file of a stage, once: the first, to go back to, and the others
// because what was written since cannot be read with the first.
func (r *stages) keep(stage rotation.Stage, apiserver string, file []byte) error {
	path := r.copyOf(stage, apiserver)
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return wholefile.Write(path, file)
}

func (r *stages) copyOf(stage rotation.Stage, apiserver string) string {
	return filepath.Join(r.copies, string(stage)+"-"+url.PathEscape(apiserver)+".yaml")
}

// latest says where the file of the latest stage is, if there is one.
func (r *stages) latest(apiserver string) string {
	for _, stage := range slices.Backward(rotation.Stages[:]) {
		if _, err := os.Stat(r.copyOf(stage, apiserver)); err == nil {
			return ": it is in " + r.copyOf(stage, apiserver)
		}
	}
	return ""
}

// begunHashes are plannedHashes for a file that may be of a later stage, of a
// rotation whose state is lost.
func begunHashes(file []byte, changes []edit.Replacement) ([]string, error) {
	for _, stage := range []rotation.Stage{rotation.Swapped, rotation.Added} {
		before, err := edit.Retreat(file, stage, changes...)
		if err != nil {
			continue
		}
		hashes, err := plannedHashes(before, changes)
		if err == nil && slices.Index(hashes, hashed.Name(file)) == slices.Index(rotation.Stages[:], stage) {
			return hashes, nil
		}
	}
	return plannedHashes(file, changes)
}

// plannedHashes are those of the files of all stages. Every stage has to be a
// file that an apiserver takes.
func plannedHashes(file []byte, changes []edit.Replacement) ([]string, error) {
	for _, stage := range rotation.Stages {
		next, err := edit.Advance(file, rotation.Before, stage, changes...)
		if err != nil {
			return nil, err
		}
		if _, err := config.Parse(next, config.Options{KMSv1: true, Reload: true, File: "stage " + string(stage)}); err != nil {
			return nil, err
		}
	}
	return edit.Hashes(file, changes...)
}
