package main

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
	"github.com/kube-atrest/atrest/rotation"
	"github.com/kube-atrest/atrest/rotation/edit"
)

// rollout brings the configuration files of apiservers from stage to stage.
type rollout struct {
	files   configFiles
	hashes  map[string][]string // of all stages, by apiserver, as in a rotation.Plan
	changes func(apiserver string) []edit.Replacement
	// copies is the folder where the files are kept as they were.
	copies string
}

// bring makes the file of an apiserver that of a stage, whose hash it has to have
// then. A file that is none of the rotation's is somebody else's, and stays.
func (r *rollout) bring(ctx context.Context, apiserver string, to rotation.Stage, hash string) error {
	file, err := r.files.read(ctx, apiserver)
	if err != nil {
		return err
	}
	known := r.hashes[apiserver]
	at, wanted := slices.Index(known, config.Hash(file)), slices.Index(rotation.Stages[:], to)
	switch {
	case at < 0:
		return fmt.Errorf("the file has hash %s, which is none of this rotation's, and stays as it is: somebody changed it, "+
			"so put back what is in %s, or begin a new rotation with another --state", config.Hash(file), r.copyOf(apiserver))
	case at == wanted:
		return nil
	case at > wanted:
		return fmt.Errorf("the file is that of stage %q already, and is not in effect: see why the apiserver does not take it into use", rotation.Stages[at])
	}
	if err := r.keep(apiserver, file); err != nil {
		return fmt.Errorf("copy of the file: %w", err)
	}
	next, err := edit.Advance(file, rotation.Stages[at], to, r.changes(apiserver)...)
	if err != nil {
		return err
	}
	if config.Hash(next) != hash {
		return errors.New("the new file would not be the one that was planned: give --endpoint and --timeout as at the beginning")
	}
	return r.files.write(ctx, apiserver, next)
}

// keep stores a file as it was before the rotation, once.
func (r *rollout) keep(apiserver string, file []byte) error {
	if _, err := os.Stat(r.copyOf(apiserver)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return replaceFile(r.copyOf(apiserver), file)
}

func (r *rollout) copyOf(apiserver string) string {
	return filepath.Join(r.copies, "before-"+url.PathEscape(apiserver)+".yaml")
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
