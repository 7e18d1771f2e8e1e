//go:build unix

package filelock

import (
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestASecondHolderIsRefusedUntilTheFirstReleases(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")

	first, err := TryAcquire(path)
	require.NoError(t, err)
	_, err = TryAcquire(path)
	require.ErrorIs(t, err, ErrHeld)
	require.EqualError(t, err, "lock file "+path+": lock is held", "it is known at once")

	require.NoError(t, first.Release())
	second, err := TryAcquire(path)
	require.NoError(t, err)
	require.NoError(t, second.Release())
}

func TestReleaseLeavesNothingBehind(t *testing.T) {
	folder := t.TempDir()
	lock, err := TryAcquire(filepath.Join(folder, "lock"))
	require.NoError(t, err)
	require.NoError(t, lock.Release())

	left, err := os.ReadDir(folder)
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestALockFileLeftByACrashIsTakenOver(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	require.NoError(t, os.WriteFile(path, nil, 0o600))

	lock, err := TryAcquire(path)
	require.NoError(t, err)
	require.NoError(t, lock.Release())
}

func TestALockWhoseFileWasReplacedIsNotTaken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	file, err := os.Create(path)
	require.NoError(t, err)
	defer file.Close()
	require.True(t, isAt(path, file))

	require.NoError(t, os.Remove(path))
	require.False(t, isAt(path, file), "the file is gone")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	require.False(t, isAt(path, file), "another file took its name")
}

func TestASymbolicLinkIsRefused(t *testing.T) {
	folder := t.TempDir()
	target := filepath.Join(folder, "target")
	require.NoError(t, os.Symlink(target, filepath.Join(folder, "lock")))

	_, err := TryAcquire(filepath.Join(folder, "lock"))
	require.Error(t, err)
	require.NoFileExists(t, target)
}

func TestOnlyOneHoldsTheLockAtATime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	const workers, rounds = 4, 50
	var inside, crowded atomic.Int64
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for done := 0; done < rounds; {
				lock, err := TryAcquire(path)
				if err != nil {
					continue
				}
				if inside.Add(1) != 1 {
					crowded.Add(1)
				}
				runtime.Gosched() // lets the others come in, if they can
				inside.Add(-1)
				done++
				_ = lock.Release()
			}
		})
	}
	all.Wait()
	require.Zero(t, crowded.Load(), "two held the lock at once")
}

// Somebody tidies the lock file of a holder away, and another takes a new one.
func TestReleaseLeavesTheLockOfAnother(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first, err := TryAcquire(path)
	require.NoError(t, err)
	require.NoError(t, os.Remove(path))
	second, err := TryAcquire(path)
	require.NoError(t, err)
	require.NoError(t, first.Release())
	_, err = TryAcquire(path)
	require.ErrorIs(t, err, ErrHeld)
	require.NoError(t, second.Release())
}

// No descriptor is left behind by those who are refused.
func TestWhoIsRefusedLeavesNothingOpen(t *testing.T) {
	open := func() int {
		all, err := os.ReadDir("/dev/fd")
		if err != nil {
			t.Skip("this system does not list what is open")
		}
		return len(all)
	}
	path := filepath.Join(t.TempDir(), "lock")
	lock, err := TryAcquire(path)
	require.NoError(t, err)
	before := open()
	for range 10 {
		_, err := TryAcquire(path)
		require.ErrorIs(t, err, ErrHeld)
	}
	require.Equal(t, before, open())
	require.NoError(t, lock.Release())
}

func TestWhereNoLockCanBeMadeSaysSo(t *testing.T) {
	_, err := TryAcquire(filepath.Join(t.TempDir(), "absent", "lock"))
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NotErrorIs(t, err, ErrHeld)
}
