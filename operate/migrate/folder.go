package migrate

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kube-atrest/atrest/internal/wholefile"
)

// Folder is the path of a folder that keeps how far each resource has come. ""
// keeps nothing.
type Folder string

func (f Folder) path(resource schema.GroupResource) string {
	return filepath.Join(string(f), "checkpoint-"+url.PathEscape(resource.String())+".json")
}

// Load is where to begin: at the checkpoint of a run for the same goal that was
// interrupted, else at the beginning. What had failures begins anew, as they
// come before its checkpoint; that it had objects stored again is kept.
func (f Folder) Load(resource schema.GroupVersionResource, goal string) (Checkpoint, error) {
	if f == "" {
		return Checkpoint{}, nil
	}
	path := f.path(resource.GroupResource())
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Checkpoint{}, nil
	}
	if err != nil {
		return Checkpoint{}, fmt.Errorf("checkpoint of %s: %w", resource.GroupResource(), err)
	}
	var c Checkpoint
	if err := json.Unmarshal(data, &c); err != nil {
		return c, fmt.Errorf("checkpoint %s is damaged: %w: delete it, and the resource is gone through from its beginning", path, err)
	}
	if c.Resource.Empty() {
		return c, fmt.Errorf("%s is no checkpoint, and would be overwritten: name a folder of its own", path)
	}
	switch again := c.Again || c.Counts.Rewritten > 0; {
	case c.Resource != resource || c.Goal != goal:
		return Checkpoint{}, nil
	case c.Done || c.Counts.Failed > 0:
		return Checkpoint{Resource: resource, Goal: goal, Again: again}, nil
	}
	return c, nil
}

// Save replaces the checkpoint of its resource, so that it is whole also after
// a crash. The folder is made if need be.
func (f Folder) Save(c Checkpoint) error {
	if f == "" {
		return nil
	}
	data, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(string(f), 0o700); err != nil {
		return err
	}
	return wholefile.Write(f.path(c.Resource.GroupResource()), append(data, '\n'))
}
