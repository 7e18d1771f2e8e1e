package reload

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func realTempDir(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	return dir
}

func writeFile(t *testing.T, path, content string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
}

func mkdir(t *testing.T, elements ...string) string {
	t.Helper()
	dir := filepath.Join(elements...)
	require.NoError(t, os.MkdirAll(dir, 0o700))
	return dir
}

func symlink(t *testing.T, target, name string) {
	t.Helper()
	require.NoError(t, os.Symlink(target, name))
}

// below returns the names under dir, relative to it, after checking that every
// folder on the way to dir comes before them.
func below(t *testing.T, dir string, names []string) []string {
	t.Helper()
	above := namesOf(dir)
	require.Greater(t, len(names), len(above))
	require.Equal(t, above, names[:len(above)])
	var below []string
	for _, name := range names[len(above):] {
		relative, err := filepath.Rel(dir, name)
		require.NoError(t, err)
		below = append(below, relative)
	}
	return below
}

func TestNamesOf(t *testing.T) {
	dir := realTempDir(t)
	mkdir(t, dir, "mount", "..2026")
	writeFile(t, filepath.Join(dir, "mount", "..2026", "config"), "x")
	symlink(t, "..2026", filepath.Join(dir, "mount", "..data"))
	symlink(t, "..data/config", filepath.Join(dir, "mount", "config"))
	mkdir(t, dir, "far", "away")
	symlink(t, filepath.Join(dir, "far", "away"), filepath.Join(dir, "absolute"))
	symlink(t, "../../mount/config", filepath.Join(dir, "far", "away", "up"))
	symlink(t, "loop", filepath.Join(dir, "loop"))

	for path, want := range map[string][]string{
		"mount/..2026/config": {"mount", "mount/..2026", "mount/..2026/config"},
		"mount/config": {"mount", "mount/config", "mount/..data", "mount/..2026",
			"mount/..2026/config"},
		"absolute/up": {"absolute", "far", "far/away", "far/away/up",
			"mount", "mount/config", "mount/..data", "mount/..2026", "mount/..2026/config"},
		"none/such":   {"none"},
		"mount/none":  {"mount", "mount/none"},
		"far/./away/": {"far", "far/away"},
	} {
		got := namesOf(dir + "/" + path)
		if path == "absolute/up" {
			got = dropRepeated(got)
		}
		require.Equal(t, want, below(t, dir, got), path)
	}
	require.Len(t, namesOf(filepath.Join(dir, "loop")), len(namesOf(dir))+maxLinks+1, "a loop ends")
	require.Equal(t, []string{"/"}, namesOf("/"))
	require.Equal(t, []string{"/"}, namesOf(""))
}

// dropRepeated keeps the first of each name: after an absolute link the way
// begins at the root again.
func dropRepeated(names []string) []string {
	var kept []string
	seen := map[string]bool{}
	for _, name := range names {
		if !seen[name] {
			seen[name] = true
			kept = append(kept, name)
		}
	}
	return kept
}
