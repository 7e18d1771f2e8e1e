package keyfile_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kube-atrest/atrest/internal/filelock"
	"github.com/kube-atrest/atrest/kmsplugin"
	"github.com/kube-atrest/atrest/kmsplugin/keyfile"
)

var noon = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

// created is a new key file in a folder of its own.
func created(t *testing.T) (*keyfile.File, keyfile.KeyInfo) {
	t.Helper()
	file := keyfile.At(filepath.Join(t.TempDir(), "kek.json"))
	info, err := file.Create(t.Context())
	require.NoError(t, err)
	return file, info
}

// open is a session of a file, in which nothing was read yet.
func open(file *keyfile.File) kmsplugin.Session {
	session, err := file.Open(context.Background())
	if err != nil {
		panic(err)
	}
	return session
}

func content(t *testing.T, file *keyfile.File) []byte {
	t.Helper()
	data, err := os.ReadFile(file.Path())
	require.NoError(t, err)
	return data
}

// requireAlone checks that the file is all there is in its folder: no lock and
// no temporary file with keys in it.
func requireAlone(t *testing.T, file *keyfile.File) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(file.Path()))
	require.NoError(t, err)
	require.Len(t, entries, 1)
	require.Equal(t, filepath.Base(file.Path()), entries[0].Name())
}

func TestCreateMakesAPrivateFileWithOneKey(t *testing.T) {
	old := syscall.Umask(0)
	defer syscall.Umask(old)
	clock := clocktesting.NewFakeClock(noon.Add(999*time.Millisecond + 999).In(time.FixedZone("east", 3600)))
	file := keyfile.At(filepath.Join(t.TempDir(), "kek.json"), keyfile.WithClock(clock))

	info, err := file.Create(t.Context())
	require.NoError(t, err)
	require.True(t, info.Writes)
	require.Equal(t, noon.Add(999*time.Millisecond), info.Created)
	require.Regexp(t, `^[0-9a-f]{32}$`, info.ID)
	require.Regexp(t, `^[0-9a-f]{64}$`, info.KeyID)
	require.Equal(t, fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(info.KeyID))), info.Hash, "as other tools show it")
	stat, err := os.Stat(file.Path())
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o600), stat.Mode())
	requireAlone(t, file)
	listed, err := file.List()
	require.NoError(t, err)
	require.Equal(t, []keyfile.KeyInfo{info}, listed)
}

func TestTheUmaskDoesNotTakeTheFileFromItsOwner(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kek.json")
	old := syscall.Umask(0o777)
	_, err := keyfile.At(path).Create(t.Context())
	syscall.Umask(old)
	require.NoError(t, err)
	stat, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o600), stat.Mode())
}

func TestCreateNeverReplacesAnything(t *testing.T) {
	for name, place := range map[string]func(path string) error{
		"a key file":      func(path string) error { _, err := keyfile.At(path).Create(context.Background()); return err },
		"a damaged file":  func(path string) error { return os.WriteFile(path, []byte("{"), 0o600) },
		"an empty file":   func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"a link to none":  func(path string) error { return os.Symlink("nowhere", path) },
		"an empty folder": func(path string) error { return os.Mkdir(path, 0o700) },
	} {
		t.Run(name, func(t *testing.T) {
			file := keyfile.At(filepath.Join(t.TempDir(), "kek.json"))
			require.NoError(t, place(file.Path()))
			before, err := os.Lstat(file.Path())
			require.NoError(t, err)

			_, err = file.Create(t.Context())
			require.ErrorIs(t, err, fs.ErrExist)
			after, err := os.Lstat(file.Path())
			require.NoError(t, err)
			require.True(t, os.SameFile(before, after))
			require.Equal(t, before.ModTime(), after.ModTime())
			requireAlone(t, file)
		})
	}
}

func TestOfManyCreatorsOneWins(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kek.json")
	var all sync.WaitGroup
	infos, errs := make([]keyfile.KeyInfo, 8), make([]error, 8)
	for i := range infos {
		all.Go(func() { infos[i], errs[i] = keyfile.At(path).Create(t.Context()) })
	}
	all.Wait()
	listed, err := keyfile.At(path).List()
	require.NoError(t, err)
	require.Len(t, listed, 1)
	for i, err := range errs {
		if err == nil {
			require.Equal(t, listed[0], infos[i], "who was told so has made the file")
			continue
		}
		require.ErrorIs(t, err, fs.ErrExist)
	}
}

func TestRotateAddsAVersionAndKeepsTheOldOnes(t *testing.T) {
	clock := clocktesting.NewFakeClock(noon)
	file := keyfile.At(filepath.Join(t.TempDir(), "kek.json"), keyfile.WithClock(clock))
	first, err := file.Create(t.Context())
	require.NoError(t, err)
	clock.Step(24 * time.Hour)
	second, err := file.Rotate(t.Context())
	require.NoError(t, err)

	require.NotEqual(t, first.KeyID, second.KeyID)
	require.True(t, second.Writes)
	require.Equal(t, noon.Add(24*time.Hour), second.Created)
	first.Writes = false
	listed, err := file.List()
	require.NoError(t, err)
	require.Equal(t, []keyfile.KeyInfo{first, second}, listed)
	stat, err := os.Stat(file.Path())
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o600), stat.Mode())
	requireAlone(t, file)
}

func TestNoRotationIsLostHoweverManyRotateAtOnce(t *testing.T) {
	file, _ := created(t)
	const workers, rounds = 8, 5
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			own := keyfile.At(file.Path())
			for range rounds {
				if _, err := own.Rotate(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	listed, err := file.List()
	require.NoError(t, err)
	require.Len(t, listed, 1+workers*rounds)
	ids := map[string]bool{}
	for _, info := range listed {
		ids[info.KeyID] = true
	}
	require.Len(t, ids, len(listed))
	requireAlone(t, file)
}

func TestAFileMadeAnewHasOtherKeyIDs(t *testing.T) {
	file, first := created(t)
	require.NoError(t, os.Remove(file.Path()))
	second, err := file.Create(t.Context())
	require.NoError(t, err)
	require.NotEqual(t, first.ID, second.ID)
	require.NotEqual(t, first.KeyID, second.KeyID)
}

// A crash leaves the temporary file, whole or in part, and the lock file.
func TestACrashBeforeTheRenameChangesNothing(t *testing.T) {
	for name, left := range map[string]func(sound []byte) []byte{
		"nothing written": func([]byte) []byte { return nil },
		"half written":    func(sound []byte) []byte { return sound[:len(sound)/2] },
		"all written":     bytes.Clone,
	} {
		t.Run(name, func(t *testing.T) {
			file, first := created(t)
			require.NoError(t, os.WriteFile(file.Path()+".lock", nil, 0o600))
			temporary := filepath.Join(filepath.Dir(file.Path()), ".kek.json.new")
			require.NoError(t, os.WriteFile(temporary, left(content(t, file)), 0o600))

			listed, err := file.List()
			require.NoError(t, err)
			require.Equal(t, []keyfile.KeyInfo{first}, listed)
			second, err := file.Rotate(t.Context())
			require.NoError(t, err)
			require.NotEqual(t, first.ID, second.ID)
			requireAlone(t, file)
		})
	}
	t.Run("of the first file", func(t *testing.T) {
		file := keyfile.At(filepath.Join(t.TempDir(), "kek.json"))
		require.NoError(t, os.WriteFile(filepath.Join(filepath.Dir(file.Path()), ".kek.json.new"), []byte("{"), 0o644))
		_, err := file.Create(t.Context())
		require.NoError(t, err)
		_, err = open(file).Versions(t.Context())
		require.NoError(t, err, "mode and content are the new ones")
		requireAlone(t, file)
	})
}

func TestAFailureWhileRotatingLeavesTheOldFile(t *testing.T) {
	file, first := created(t)
	sound := content(t, file)
	t.Run("no randomness", func(t *testing.T) {
		for _, enough := range []int{0, 15, 16, 47} {
			random := iotest.TimeoutReader(iotest.OneByteReader(bytes.NewReader(make([]byte, enough))))
			_, err := keyfile.At(file.Path(), keyfile.WithRandom(random)).Rotate(t.Context())
			require.ErrorContains(t, err, "randomness")
		}
	})
	t.Run("no place for the new one", func(t *testing.T) {
		blocked := filepath.Join(filepath.Dir(file.Path()), ".kek.json.new")
		require.NoError(t, os.MkdirAll(filepath.Join(blocked, "full"), 0o700))
		_, err := file.Rotate(t.Context())
		require.Error(t, err)
		require.NoError(t, os.RemoveAll(blocked))
	})
	require.Equal(t, sound, content(t, file))
	listed, err := file.List()
	require.NoError(t, err)
	require.Equal(t, []keyfile.KeyInfo{first}, listed)
	requireAlone(t, file)
}

func TestAWriterWaitsForAnother(t *testing.T) {
	file, _ := created(t)
	clock := clocktesting.NewFakeClock(noon)
	waiting := keyfile.At(file.Path(), keyfile.WithClock(clock))
	held, err := filelock.TryAcquire(file.Path() + ".lock")
	require.NoError(t, err)

	rotated := make(chan error, 1)
	go func() {
		_, err := waiting.Rotate(t.Context())
		rotated <- err
	}()
	require.Eventually(t, clock.HasWaiters, time.Minute, time.Millisecond)
	require.Empty(t, rotated)
	require.NoError(t, held.Release())
	clock.Step(time.Second)
	require.NoError(t, <-rotated)
}

func TestAWriterGivesUpWithItsContext(t *testing.T) {
	file, _ := created(t)
	held, err := filelock.TryAcquire(file.Path() + ".lock")
	require.NoError(t, err)
	defer func() { require.NoError(t, held.Release()) }()
	ended, end := context.WithCancel(t.Context())
	end()

	_, err = file.Rotate(ended)
	require.ErrorIs(t, err, keyfile.ErrBusy)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "look who holds "+file.Path()+".lock")
	_, err = file.Create(ended)
	require.ErrorIs(t, err, keyfile.ErrBusy)
	_, err = file.List()
	require.NoError(t, err, "reading needs no lock")
}

func TestADateThatTheFileCannotHoldChangesNothing(t *testing.T) {
	random := bytes.NewReader(make([]byte, 64)) // a second option beside the clock
	clock := clocktesting.NewFakeClock(time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC))
	file := keyfile.At(filepath.Join(t.TempDir(), "kek.json"), keyfile.WithRandom(random), keyfile.WithClock(clock))
	_, err := file.Create(t.Context())
	require.ErrorContains(t, err, "clock")
	require.NoFileExists(t, file.Path())
}

func TestAFullFileSaysSo(t *testing.T) {
	// The very file, as 10,000 rotations would make it: too slow to make so.
	file := keyfile.At(filepath.Join(t.TempDir(), "kek.json"))
	require.NoError(t, os.WriteFile(file.Path(), keyfile.Full(t), 0o600))
	before, err := os.Stat(file.Path())
	require.NoError(t, err)

	_, err = file.Rotate(t.Context())
	require.ErrorIs(t, err, keyfile.ErrFull)
	require.ErrorContains(t, err, "under another provider name")
	after, err := os.Stat(file.Path())
	require.NoError(t, err)
	require.True(t, os.SameFile(before, after))
	_, err = open(file).Versions(t.Context())
	require.NoError(t, err, "reading goes on")
}
