package migrate

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	ofWidgets = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
	begun     = Checkpoint{Resource: ofWidgets, Goal: "new", Continue: "token", Last: Object{Namespace: "a", Name: "b"}}
)

func TestACheckpointIsGoneOnFromOrLeft(t *testing.T) {
	folder := Folder(filepath.Join(t.TempDir(), "new", "state"))
	load := func(version schema.GroupVersionResource, goal string) Checkpoint {
		c, err := folder.Load(version, goal)
		require.NoError(t, err)
		return c
	}
	require.Zero(t, load(ofWidgets, "new"), "there is none yet")
	require.NoError(t, folder.Save(begun))
	require.Equal(t, begun, load(ofWidgets, "new"))

	other := ofWidgets
	other.Version = "v2"
	require.Zero(t, load(other, "new"), "of another version")
	require.Zero(t, load(ofWidgets, "newer"), "for something else")
	for name, change := range map[string]func(*Checkpoint){
		"finished":      func(c *Checkpoint) { c.Done = true },
		"with failures": func(c *Checkpoint) { c.Counts.Failed = 1 },
	} {
		changed := begun
		change(&changed)
		require.NoError(t, folder.Save(changed))
		require.Equal(t, Checkpoint{Resource: ofWidgets, Goal: "new"}, load(ofWidgets, "new"), name)
		for _, stored := range []func(){func() { changed.Again = true }, func() { changed.Again, changed.Counts.Rewritten = false, 1 }} {
			stored()
			require.NoError(t, folder.Save(changed))
			require.Equal(t, Checkpoint{Resource: ofWidgets, Goal: "new", Again: true}, load(ofWidgets, "new"), name)
			require.Zero(t, load(ofWidgets, "newer"), "for something else")
		}
	}

	require.NoError(t, os.WriteFile(folder.path(ofWidgets.GroupResource()), []byte("{"), 0o600))
	_, err := folder.Load(ofWidgets, "new")
	require.ErrorContains(t, err, "is damaged")
	require.NoError(t, os.WriteFile(folder.path(ofWidgets.GroupResource()), []byte(`{"kind": "List"}`), 0o600))
	_, err = folder.Load(ofWidgets, "new")
	require.ErrorContains(t, err, "is no checkpoint, and would be overwritten: name a folder of its own")
}

func TestWithoutAFolderNothingIsKept(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, Folder("").Save(begun))
	left, err := os.ReadDir(".")
	require.NoError(t, err)
	require.Empty(t, left)
	require.NoError(t, Folder(".").Save(begun), "which is not what \"\" names")
	c, err := Folder("").Load(ofWidgets, "new")
	require.NoError(t, err)
	require.Zero(t, c)
}

func TestACheckpointStaysInItsFolder(t *testing.T) {
	path := Folder("state").path(schema.GroupResource{Group: "../..", Resource: "a/b"})
	require.Equal(t, "state", filepath.Dir(path))
}
