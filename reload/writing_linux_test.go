package reload

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/fsnotify/fsnotify"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestLookTellsWhetherTheFileIsOpenForWriting(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config")
	needLeases(t, path)
	writer, err := os.Create(path)
	require.NoError(t, err)
	_, err = writer.WriteString("half")
	require.NoError(t, err)
	require.True(t, lookAt(path).writing)
	require.NoError(t, writer.Close())
	require.False(t, lookAt(path).writing)

	reader, err := os.Open(path)
	require.NoError(t, err)
	defer reader.Close()
	require.False(t, openForWriting(reader), "readers do not matter")
	writer, err = os.OpenFile(path, os.O_WRONLY|unix.O_NONBLOCK, 0)
	require.NoError(t, err, "nothing is left in a writer's way")
	require.NoError(t, writer.Close())
}

// A writer that comes while the lease is held makes the kernel send SIGIO.
func TestLooksAndWritersDoNotDisturbEachOther(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config")
	needLeases(t, path)
	const times = 2000
	var wg sync.WaitGroup
	wg.Go(func() {
		for range times {
			if err := os.WriteFile(path, []byte("content"), 0o600); err != nil {
				t.Error(err)
			}
		}
	})
	for range times {
		lookAt(path)
	}
	wg.Wait()
	l := lookAt(path)
	require.NoError(t, l.err)
	require.False(t, l.writing)
}

func TestFileThatIsOpenForWritingIsWaitedFor(t *testing.T) {
	follow(t, func(f *follower) {
		needLeases(f.T, f.path)
		writer, err := os.Create(f.path)
		require.NoError(t, err)
		put := func(chunk string) {
			_, err := writer.WriteString(chunk)
			require.NoError(t, err)
			f.event()
		}
		put("half")
		f.pass(DefaultPoll / 2)
		f.requireBuilt()
		put(" and half")
		require.NoError(t, writer.Close())
		f.pass(DefaultQuiet)
		f.requireBuilt("half and half")
	})
}

func TestFileThatIsLeftOpenIsTakenAfterAPoll(t *testing.T) {
	follow(t, func(f *follower) {
		needLeases(f.T, f.path)
		writer, err := os.Create(f.path)
		require.NoError(t, err)
		defer writer.Close()
		_, err = writer.WriteString("whole")
		require.NoError(t, err)
		f.event()
		f.pass(DefaultPoll - DefaultQuiet)
		f.requireBuilt()
		f.pass(DefaultQuiet)
		f.requireBuilt("whole")
	})
}

// A folder that was moved away with its parent says nothing when it goes.
func TestReplacedFoldersAreWatchedNoMore(t *testing.T) {
	dir := realTempDir(t)
	path := plain(t, dir)
	watcher, err := fsnotify.NewWatcher()
	require.NoError(t, err)
	f := newFollowing(path, watcher)
	go f.sort()
	defer f.stop()
	require.NoError(t, f.follow())
	watches := inotifyWatches(t)
	require.GreaterOrEqual(t, watches, len(folders(namesOf(path)))+1)
	for i := range 10 {
		rename(t, filepath.Join(dir, "a"), filepath.Join(dir, strconv.Itoa(i)))
		plain(t, dir)
		require.NoError(t, f.follow())
	}
	require.Equal(t, watches, inotifyWatches(t))
}

// inotifyWatches returns how many watches the kernel keeps for this process.
func inotifyWatches(t *testing.T) int {
	t.Helper()
	files, err := filepath.Glob("/proc/self/fdinfo/*")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	watches := 0
	for _, file := range files {
		info, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) {
			continue // it was open for Glob itself
		}
		require.NoError(t, err)
		watches += strings.Count(string(info), "inotify wd:")
	}
	return watches
}

// needLeases skips the test where the file system cannot tell whether the file
// at path is open for writing.
func needLeases(t *testing.T, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDONLY|os.O_CREATE, 0o600)
	require.NoError(t, err)
	defer f.Close()
	if _, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_RDLCK); err != nil {
		t.Skipf("the file system of %s gives no leases: %v", path, err)
	}
}
