//go:build unix

package wholefile

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMain is also the process that is killed before it renames, and one that
// says why a file cannot be exchanged.
func TestMain(m *testing.M) {
	if path := os.Getenv("EXCHANGED"); path != "" {
		fmt.Print(CanExchange(path, "do otherwise"), "\n", Exchange(path, nil, []byte("new"), "do otherwise"))
		os.Exit(0)
	}
	if folder := os.Getenv("KILLED_IN"); folder != "" {
		next, err := create(folder)
		if err == nil {
			_, err = next.WriteString("secret: c2VjcmV0")
		}
		if err == nil {
			self, _ := os.FindProcess(os.Getpid())
			err = self.Kill()
		}
		panic(err)
	}
	os.Exit(m.Run())
}

func leftovers(t *testing.T, folder string) []string {
	t.Helper()
	left, err := filepath.Glob(filepath.Join(folder, ".*"))
	require.NoError(t, err)
	return left
}

func TestWhatAKilledProcessLeftIsRemovedByTheNext(t *testing.T) {
	for name, next := range map[string]func(path string) error{
		"exchange": func(path string) error { return Exchange(path, []byte("old"), []byte("new"), "") },
		"question": func(path string) error { return CanExchange(path, "") },
		"write":    func(path string) error { return Write(path, []byte("new")) },
	} {
		folder := t.TempDir()
		path := filepath.Join(folder, "encryption.yaml")
		require.NoError(t, os.WriteFile(path, []byte("old"), 0o600))
		killed := exec.Command(os.Args[0])
		killed.Env = append(os.Environ(), "KILLED_IN="+folder)
		require.ErrorContains(t, killed.Run(), "killed")
		left := leftovers(t, folder)
		require.Len(t, left, 1)
		requireFile(t, left[0], "secret: c2VjcmV0", 0o600)
		require.NoError(t, next(path), name)
		require.Empty(t, leftovers(t, folder), name)
	}
}

// Two processes may replace files of one folder at a time.
func TestWhatSomebodyIsAtWorkWithStays(t *testing.T) {
	folder := t.TempDir()
	working, err := create(folder)
	require.NoError(t, err)
	path := filepath.Join(folder, "encryption.yaml")
	require.NoError(t, Write(path, []byte("theirs")))
	require.NoError(t, fill(working, []byte("ours")))
	require.NoError(t, Write(path, []byte("theirs, again")))
	require.NoError(t, os.Rename(working.Name(), path))
	discard(working)
	requireFile(t, path, "ours", 0o600)
	require.Empty(t, leftovers(t, folder))
}

// Somebody may look for leftovers at any moment.
func TestManyReplaceFilesOfOneFolder(t *testing.T) {
	folder := t.TempDir()
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for n := range 50 {
				if err := Write(filepath.Join(folder, fmt.Sprint(i)), []byte(fmt.Sprint(n))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	for i := range 8 {
		requireFile(t, filepath.Join(folder, fmt.Sprint(i)), "49", 0o600)
	}
	require.Empty(t, leftovers(t, folder))
}

// Who takes it for one has it locked, or has removed it, before its maker locks it.
func TestANewFileThatWasTakenForALeftoverIsMadeAgain(t *testing.T) {
	folder := t.TempDir()
	file, err := os.Create(filepath.Join(folder, prefix+"1"))
	require.NoError(t, err)
	defer file.Close()
	require.False(t, isRemoved(file))
	require.NoError(t, removeUnlocked(file.Name()))
	require.True(t, lock(file) && isRemoved(file))
}

func TestWhatIsNotOursStays(t *testing.T) {
	folder := t.TempDir()
	var theirs []string
	for _, name := range []string{".atrest-", ".atrest-1a", ".atrest-1.yaml", ".atrest", "atrest-1", ".other-1"} {
		theirs = append(theirs, filepath.Join(folder, name))
		require.NoError(t, os.WriteFile(theirs[len(theirs)-1], nil, 0o600))
	}
	for name, make := range map[string]func(string) error{
		".atrest-1": func(path string) error { return os.Mkdir(path, 0o700) },
		".atrest-2": func(path string) error { return os.Symlink(theirs[0], path) },
	} {
		theirs = append(theirs, filepath.Join(folder, name))
		require.NoError(t, make(theirs[len(theirs)-1]))
	}
	require.NoError(t, Write(filepath.Join(folder, "encryption.yaml"), nil))
	for _, path := range theirs {
		_, err := os.Lstat(path)
		require.NoError(t, err, path)
	}
}

func TestALeftoverThatCannotBeRemovedIsTold(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may read anything")
	}
	folder := t.TempDir()
	left := filepath.Join(folder, prefix+"1")
	require.NoError(t, os.WriteFile(left, nil, 0o000))
	require.ErrorContains(t, Write(filepath.Join(folder, "state.json"), nil), left+" was left by a process that was killed, and may hold keys: remove it")
}
