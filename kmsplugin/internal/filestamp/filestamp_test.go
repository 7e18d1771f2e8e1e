package filestamp_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/kmsplugin/internal/filestamp"
)

func TestWhateverIsDoneToAFileShows(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, []byte("one"), 0o600))
	look := func() (filestamp.Stamp, os.FileInfo) {
		info, err := os.Lstat(path)
		require.NoError(t, err)
		return filestamp.Of(info), info
	}
	before, info := look()
	for name, change := range map[string]func() error{
		"written with the time set back": func() error { return os.WriteFile(path, []byte("two"), 0o600) },
		"another mode":                   func() error { return os.Chmod(path, 0o400) },
		"another file of the same bytes": func() error {
			if err := os.WriteFile(path+".new", []byte("two"), 0o400); err != nil {
				return err
			}
			return os.Rename(path+".new", path)
		},
	} {
		require.NoError(t, change(), name)
		require.NoError(t, os.Chtimes(path, info.ModTime(), info.ModTime()))
		after, _ := look()
		require.NotEqual(t, before, after, name)
		before = after
	}
	_, err := os.ReadFile(path)
	require.NoError(t, err)
	after, _ := look()
	require.True(t, before == after, "a read is no change")
}
