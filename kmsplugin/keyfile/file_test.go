package keyfile_test

import (
	"bytes"
	"context"
	"errors"
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

	"github.com/kube-atrest/atrest/kmsplugin/internal/filelock"
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
	clock := clocktesting.NewFakeClock(noon.Add(999 * time.Millisecond).In(time.FixedZone("east", 3600)))
	file := keyfile.At(filepath.Join(t.TempDir(), "kek.json"), keyfile.WithClock(clock))

	info, err := file.Create(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, info.Version)
	require.True(t, info.Writes)
	require.Equal(t, noon, info.Created)
	require.Regexp(t, `^1\.[0-9a-f]{32}$`, info.KeyID)
	stat, err := os.Stat(file.Path())
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o600), stat.Mode())
	requireAlone(t, file)
	listed, err := file.List()
	require.NoError(t, err)
	require.Equal(t, []keyfile.KeyInfo{info}, listed)
}

func TestCreateNeverReplacesAnything(t *testing.T) {
	for name, make := range map[string]func(path string) error{
		"a key file":      func(path string) error { _, err := keyfile.At(path).Create(context.Background()); return err },
		"a damaged file":  func(path string) error { return os.WriteFile(path, []byte("{"), 0o600) },
		"an empty file":   func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"a link to none":  func(path string) error { return os.Symlink("nowhere", path) },
		"an empty folder": func(path string) error { return os.Mkdir(path, 0o700) },
	} {
		t.Run(name, func(t *testing.T) {
			file := keyfile.At(filepath.Join(t.TempDir(), "kek.json"))
			require.NoError(t, make(file.Path()))
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

	require.Equal(t, 2, second.Version)
	require.NotEqual(t, first.KeyID, second.KeyID)
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
	require.Equal(t, first.Version, second.Version)
	require.NotEqual(t, first.KeyID, second.KeyID)
}

// everyUse calls all that reads a key file.
func everyUse(file *keyfile.File) map[string]error {
	_, list := file.List()
	_, open := file.Open()
	_, rotate := file.Rotate(context.Background())
	return map[string]error{"List": list, "Open": open, "Rotate": rotate}
}

func TestAFileThatOthersCanReachIsRefused(t *testing.T) {
	for _, mode := range []fs.FileMode{0o640, 0o604, 0o620, 0o602, 0o610, 0o601, 0o644, 0o666, 0o777} {
		file, _ := created(t)
		require.NoError(t, os.Chmod(file.Path(), mode))
		before := content(t, file)
		for use, err := range everyUse(file) {
			require.ErrorIs(t, err, keyfile.ErrExposed, use)
			require.ErrorContains(t, err, fmt.Sprintf("mode %04o", mode))
			require.ErrorContains(t, err, "chmod 600 "+file.Path())
		}
		require.Equal(t, before, content(t, file))
		require.NoError(t, os.Chmod(file.Path(), 0o400))
		_, err := file.Open()
		require.NoError(t, err, "the remedy helps, and the owner need not write")
	}
}

func TestAFileOfSomebodyElseIsRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a file away")
	}
	file, _ := created(t)
	require.NoError(t, os.Chown(file.Path(), 65534, 65534))
	for use, err := range everyUse(file) {
		require.ErrorIs(t, err, keyfile.ErrExposed, use)
		require.ErrorContains(t, err, "belongs to uid 65534 and this process runs as uid 0")
		require.ErrorContains(t, err, "chown 0 "+file.Path())
	}
}

func TestWhatIsNotAFileIsRefused(t *testing.T) {
	sound, _ := created(t)
	for name, test := range map[string]struct {
		make    func(path string) error
		problem string
	}{
		"link":   {func(path string) error { return os.Symlink(sound.Path(), path) }, "symbolic link"},
		"folder": {func(path string) error { return os.Mkdir(path, 0o700) }, "not a regular file"},
		"pipe":   {func(path string) error { return syscall.Mkfifo(path, 0o600) }, "not a regular file"},
	} {
		t.Run(name, func(t *testing.T) {
			file := keyfile.At(filepath.Join(t.TempDir(), "kek.json"))
			require.NoError(t, test.make(file.Path()))
			for use, err := range everyUse(file) {
				require.ErrorIs(t, err, keyfile.ErrExposed, use)
				require.ErrorContains(t, err, test.problem)
			}
		})
	}
}

func TestAMissingFileSaysWhatToDo(t *testing.T) {
	file := keyfile.At(filepath.Join(t.TempDir(), "kek.json"))
	for use, err := range everyUse(file) {
		require.ErrorIs(t, err, fs.ErrNotExist, use)
		require.ErrorContains(t, err, "restore it from a copy")
	}
	require.NoFileExists(t, file.Path())

	file = keyfile.At(filepath.Join(t.TempDir(), "missing", "kek.json"))
	for use, err := range everyUse(file) {
		require.ErrorContains(t, err, "mkdir -p -m 0700", use)
	}
	_, err := file.Create(t.Context())
	require.ErrorContains(t, err, "mkdir -p -m 0700")
}

func TestADamagedFileIsRefusedAndLeftAsItIs(t *testing.T) {
	file, _ := created(t)
	_, err := file.Rotate(t.Context())
	require.NoError(t, err)
	sound := content(t, file)
	damages := map[string][]byte{
		"one byte more": append(bytes.Clone(sound), '\n'),
		"huge":          append(bytes.Clone(sound), make([]byte, keyfile.MaxFileSize)...),
		"another byte":  bytes.Replace(sound, []byte(`"kek": "`), []byte(`"kek": "/`), 1),
	}
	for length := 0; length < len(sound); length += 7 {
		damages[fmt.Sprintf("cut to %d bytes", length)] = sound[:length]
	}
	damages["without its last byte"] = sound[:len(sound)-1]
	for name, damaged := range damages {
		require.NoError(t, os.WriteFile(file.Path(), damaged, 0o600))
		for use, err := range everyUse(file) {
			require.ErrorIs(t, err, keyfile.ErrDamaged, "%s: %s", name, use)
		}
		_, err := file.Create(t.Context())
		require.ErrorIs(t, err, fs.ErrExist, name)
		require.Equal(t, damaged, content(t, file), name)
		requireAlone(t, file)
	}
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
			require.Equal(t, 2, second.Version)
			requireAlone(t, file)
		})
	}
	t.Run("of the first file", func(t *testing.T) {
		file := keyfile.At(filepath.Join(t.TempDir(), "kek.json"))
		require.NoError(t, os.WriteFile(filepath.Join(filepath.Dir(file.Path()), ".kek.json.new"), []byte("{"), 0o644))
		_, err := file.Create(t.Context())
		require.NoError(t, err)
		_, err = file.Open()
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
	require.Eventually(t, clock.HasWaiters, 10*time.Second, time.Millisecond)
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
	_, err = file.Open()
	require.NoError(t, err, "reading goes on")
}

func TestErrorsNameTheFile(t *testing.T) {
	file := keyfile.At(filepath.Join(t.TempDir(), "kek.json"))
	for use, err := range everyUse(file) {
		require.ErrorContains(t, err, "key file "+file.Path()+": ", use)
		require.False(t, errors.Is(err, keyfile.ErrDamaged))
	}
}
