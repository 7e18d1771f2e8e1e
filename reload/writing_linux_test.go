package reload

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

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
	require.False(t, lookAt(path).writing, "readers do not matter")
	writer, err = os.OpenFile(path, os.O_WRONLY|unix.O_NONBLOCK, 0)
	require.NoError(t, err, "the look has left nothing in a writer's way")
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
