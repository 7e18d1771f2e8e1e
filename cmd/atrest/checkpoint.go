package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kube-atrest/atrest/operate/migrate"
)

// checkpointFile keeps how far a resource has come, in a folder; "" keeps nothing.
type checkpointFile struct {
	folder   string
	resource schema.GroupResource
}

func (f checkpointFile) path() string {
	return filepath.Join(f.folder, url.PathEscape(f.resource.String())+".json")
}

// load is where to begin: at the checkpoint of a run for the same that was
// interrupted, else at the beginning. What had failures begins anew, as they
// come before its checkpoint.
func (f checkpointFile) load(version schema.GroupVersionResource, goal string) (migrate.Checkpoint, error) {
	if f.folder == "" {
		return migrate.Checkpoint{}, nil
	}
	data, err := os.ReadFile(f.path())
	if errors.Is(err, fs.ErrNotExist) {
		return migrate.Checkpoint{}, nil
	}
	if err != nil {
		return migrate.Checkpoint{}, fmt.Errorf("checkpoint of %s: %w", f.resource, err)
	}
	var c migrate.Checkpoint
	if err := json.Unmarshal(data, &c); err != nil {
		return c, fmt.Errorf("checkpoint %s is damaged: %w: delete it, and the resource is gone through from its beginning", f.path(), err)
	}
	if c.Resource != version || c.Goal != goal || c.Done || c.Counts.Failed > 0 {
		return migrate.Checkpoint{}, nil
	}
	return c, nil
}

// save replaces the file in one step, so that it is whole also after a crash.
func (f checkpointFile) save(c migrate.Checkpoint) error {
	if f.folder == "" {
		return nil
	}
	data, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(f.folder, 0o700); err != nil {
		return err
	}
	return replaceFile(f.path(), append(data, '\n'))
}

// replaceFile writes a file that only its owner reads, by way of another beside
// it: a crash leaves what was there or what is new.
func replaceFile(path string, data []byte) error {
	folder := filepath.Dir(path)
	next, err := os.CreateTemp(folder, "."+filepath.Base(path)+".*") // of mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(next.Name()) // which is gone if all went well
	_, err = next.Write(data)
	if err = errors.Join(err, next.Sync(), next.Close()); err != nil {
		return err
	}
	if err := os.Rename(next.Name(), path); err != nil {
		return err
	}
	return syncFolder(folder)
}

// syncFolder makes a rename last.
func syncFolder(path string) error {
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}
