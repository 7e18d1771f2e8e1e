package wholefile

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAWrittenFileIsItsOwnersAlone(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "state.json")
	for _, content := range []string{"one", "two"} {
		require.NoError(t, Write(path, []byte(content)))
		requireFile(t, path, content, 0o600)
	}
	requireAlone(t, folder)
	require.ErrorIs(t, Write(filepath.Join(folder, "absent", "state.json"), nil), os.ErrNotExist)
}

func TestAnExchangedFileKeepsItsMode(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "encryption.yaml")
	require.ErrorIs(t, Exchange(path, []byte("old"), []byte("new"), "do otherwise"), os.ErrNotExist)
	requireAlone(t, folder)
	require.NoError(t, os.WriteFile(path, []byte("old"), 0o640))
	require.NoError(t, os.Chmod(path, 0o640))
	require.NoError(t, Exchange(path, []byte("old"), []byte("new"), "do otherwise"))
	requireFile(t, path, "new", 0o640)
	requireAlone(t, folder)
}

// Somebody may save an edit while the new file is made.
func TestWhatWasChangedMeanwhileIsNotExchanged(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "encryption.yaml")
	for _, edit := range []string{"old, edited", "ol", "", "wld"} {
		require.NoError(t, os.WriteFile(path, []byte(edit), 0o600))
		err := Exchange(path, []byte("old"), []byte("new"), "")
		require.ErrorIs(t, err, ErrChanged)
		require.EqualError(t, err, path+": somebody changed the file in the meantime, and it stays as it is")
		requireFile(t, path, edit, 0o600)
		requireAlone(t, folder)
	}
}

func TestWhatIsNoFileCannotBeExchanged(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "folder")
	require.NoError(t, os.Mkdir(path, 0o700))
	require.ErrorContains(t, Exchange(path, nil, nil, "do otherwise"), path+" is no regular file: name one, or do otherwise")
	requireAlone(t, folder)
	require.Error(t, Write(path, nil))
	requireAlone(t, folder)
}

// refused requires that a file is refused, for a reason, and stays as it was.
func refused(t *testing.T, path, why string) {
	t.Helper()
	before, err := os.ReadFile(path)
	require.NoError(t, err)
	was, err := os.Stat(path)
	require.NoError(t, err)
	require.ErrorContains(t, CanExchange(path, "do otherwise"), why)
	err = Exchange(path, []byte("old"), []byte("new"), "do otherwise")
	require.ErrorContains(t, err, why)
	require.ErrorContains(t, err, "or do otherwise")
	requireFile(t, path, string(before), was.Mode().Perm())
	left, err := filepath.Glob(filepath.Join(filepath.Dir(path), prefix+"*"))
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestAFileOfAMountedVolumeIsRefused(t *testing.T) {
	volume := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(volume, "..2026_11_21", "sub"), 0o700))
	require.NoError(t, os.Symlink("..2026_11_21", filepath.Join(volume, "..data")))
	for _, name := range []string{"encryption.yaml", "sub/encryption.yaml"} {
		real := filepath.Join(volume, "..2026_11_21", name)
		require.NoError(t, os.WriteFile(real, []byte("old"), 0o600))
		link := filepath.Join(t.TempDir(), "link.yaml")
		require.NoError(t, os.Symlink(filepath.Join(volume, "..data", name), link))
		for _, path := range []string{real, link, filepath.Join(volume, "..data", name)} {
			refused(t, path, "is of a mounted ConfigMap or Secret, which kubelet writes anew: change that object")
		}
	}
	require.NoError(t, os.Remove(filepath.Join(volume, "..data")))
	require.NoError(t, CanExchange(filepath.Join(volume, "..2026_11_21", "encryption.yaml"), ""), "two dots alone are no volume")
	require.NoError(t, os.Mkdir(filepath.Join(volume, "..data"), 0o700))
	require.NoError(t, CanExchange(filepath.Join(volume, "..2026_11_21", "encryption.yaml"), ""), "nor is a folder of that name")
}

func TestAFileThatCanBeExchangedIsNotTouchedByTheQuestion(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "encryption.yaml")
	require.ErrorIs(t, CanExchange(path, ""), os.ErrNotExist)
	require.NoError(t, os.WriteFile(path, []byte("old"), 0o600))
	before, err := os.Stat(path)
	require.NoError(t, err)
	require.NoError(t, CanExchange(path, ""))
	after, err := os.Stat(path)
	require.NoError(t, err)
	require.True(t, os.SameFile(before, after))
	requireFile(t, path, "old", 0o600)
	requireAlone(t, folder)
}

func TestWhatALinkLeadsToIsExchanged(t *testing.T) {
	real, link := filepath.Join(t.TempDir(), "real.yaml"), filepath.Join(t.TempDir(), "link.yaml")
	require.NoError(t, os.WriteFile(real, []byte("old"), 0o600))
	require.NoError(t, os.Symlink(real, link))
	require.NoError(t, Exchange(link, []byte("old"), []byte("new"), ""))
	requireFile(t, real, "new", 0o600)
	is, err := os.Lstat(link)
	require.NoError(t, err)
	require.Equal(t, os.ModeSymlink, is.Mode().Type())
}

func requireFile(t *testing.T, path, content string, mode os.FileMode) {
	t.Helper()
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, content, string(got))
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, mode, info.Mode().Perm())
}

// requireAlone fails if anything was left beside the file.
func requireAlone(t *testing.T, folder string) {
	t.Helper()
	all, err := os.ReadDir(folder)
	require.NoError(t, err)
	require.LessOrEqual(t, len(all), 1)
}

// A folder that takes no new file, as one that is mounted read-only.
func TestWhereNothingCanBeMadeTheOldFileStays(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may write anywhere")
	}
	folder := t.TempDir()
	path := filepath.Join(folder, "encryption.yaml")
	require.NoError(t, os.WriteFile(path, []byte("old"), 0o600))
	require.NoError(t, os.Chmod(folder, 0o500))
	t.Cleanup(func() { _ = os.Chmod(folder, 0o700) })
	require.ErrorContains(t, Exchange(path, []byte("old"), []byte("new"), "do otherwise"), "a new file has to be made beside the old one: allow it, or do otherwise")
	require.Error(t, Write(path, []byte("new")))
	requireFile(t, path, "old", 0o600)
}

// No descriptor is left behind, however it ends.
func TestNothingStaysOpen(t *testing.T) {
	open := func() int {
		all, err := os.ReadDir("/dev/fd")
		if err != nil {
			t.Skip("this system does not list what is open")
		}
		return len(all)
	}
	folder := t.TempDir()
	path := filepath.Join(folder, "encryption.yaml")
	require.NoError(t, os.WriteFile(path, []byte("new"), 0o600))
	require.NoError(t, os.Mkdir(filepath.Join(folder, "mounted"), 0o700))
	before := open()
	for range 10 {
		require.NoError(t, Exchange(path, []byte("new"), []byte("new"), ""))
		require.Error(t, Exchange(path, []byte("old"), []byte("new"), ""))
		require.NoError(t, Write(path, []byte("new")))
		require.Error(t, Exchange(filepath.Join(folder, "mounted"), nil, nil, ""))
		require.Error(t, Write(filepath.Join(folder, "mounted"), nil))
		require.NoError(t, CanExchange(path, ""))
	}
	require.Equal(t, before, open())
}

func TestAFileIsCreatedOnlyWhereThereIsNone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "encryption.yaml")
	require.NoError(t, Create(path, []byte("new")))
	requireFile(t, path, "new", 0o600)
	require.ErrorIs(t, Create(path, []byte("other")), fs.ErrExist)
	requireFile(t, path, "new", 0o600)
	left, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Len(t, left, 1)
}
