package keyfile

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/kmsplugin"
	"github.com/kube-atrest/atrest/kmsplugin/internal/kek"
	"github.com/kube-atrest/atrest/kmsplugin/internal/keptfile"
)

var errBroken = errors.New("input/output error")

// changes are what writes a key file, one after the other.
func changes(t *testing.T, file *File) []func() error {
	other := ringOf(t, 2)
	path := filepath.Join(t.TempDir(), "other.json")
	require.NoError(t, os.WriteFile(path, encoded(t, other), 0o600))
	return []func() error{
		func() error { _, err := file.Create(t.Context()); return err },
		func() error { _, err := file.Rotate(t.Context()); return err },
		func() error { _, err := file.Stage(t.Context()); return err },
		func() error { _, err := file.Activate(t.Context(), ""); return err },
		func() error { _, err := file.Merge(t.Context(), path); return err },
		func() error {
			now, err := At(file.Path()).read()
			if err != nil {
				return err
			}
			more, err := now.merged(ringOf(t, 1))
			if err != nil {
				return err
			}
			require.NoError(t, os.WriteFile(path, encoded(t, more), 0o600))
			_, err = file.Import(t.Context(), path)
			return err
		},
	}
}

func TestAPowerCutLeavesTheFileBeforeOrTheFileAfter(t *testing.T) {
	file, disk := onWeakDisk(t)
	var before []byte
	for number, change := range changes(t, file) {
		seen := map[string]bool{}
		disk.before = func(step string) error {
			_, possible := disk.left(file.Path())
			for _, data := range possible {
				_, err := decode(data)
				require.NoError(t, err, "change %d, before %s", number+1, step)
				seen[string(data)] = true
			}
			return nil
		}
		require.NoError(t, change())
		certain, _ := disk.left(file.Path())
		after, err := os.ReadFile(file.Path())
		require.NoError(t, err)
		require.NotEqual(t, before, after)
		require.Equal(t, string(after), string(certain), "what change %d reported as done is there", number+1)
		delete(seen, string(before))
		delete(seen, string(after))
		require.Empty(t, seen, "change %d left something between", number+1)
		before = after
	}
}

func TestAFailureAtAnyStepLeavesAWholeFileAndIsReported(t *testing.T) {
	for change := range changes(t, nil) {
		var steps []string
		for failing := 0; failing <= len(steps); failing++ {
			file, disk := onWeakDisk(t)
			for _, earlier := range changes(t, file)[:change] {
				require.NoError(t, earlier())
			}
			disk.steps = nil
			disk.before = func(string) error {
				if len(disk.steps) == failing {
					return errBroken
				}
				return nil
			}
			err := changes(t, file)[change]()
			if failing == 0 {
				require.NoError(t, err)
				steps = slices.Clone(disk.steps)
				require.Greater(t, len(steps), 6)
				continue
			}
			step := fmt.Sprintf("change %d, %s fails", change+1, steps[failing-1])
			if steps[failing-1] == "close kek.json" {
				require.NoError(t, err, "it was only read")
				continue
			}
			require.ErrorIs(t, err, errBroken, step)
			require.Zero(t, disk.open, step)
			if steps[failing-1] != "remove" {
				require.NoFileExists(t, keptfile.Temporary(file.Path()), step)
			}
			_, possible := disk.left(file.Path())
			for _, data := range possible {
				_, err := decode(data)
				require.NoError(t, err, step)
			}
		}
	}
}

// requireLooks looks at a file again, and finds so many versions and this trouble, if any.
func requireLooks(t *testing.T, s kmsplugin.Session, versions int, trouble string) {
	t.Helper()
	found, err := s.Versions(t.Context())
	require.Len(t, found.All, versions)
	if trouble == "" {
		require.NoError(t, err)
		return
	}
	require.ErrorIs(t, err, kmsplugin.ErrUnavailable)
	require.ErrorContains(t, err, trouble)
}

// A file that somebody copied is on nobody's disk yet.
func TestAKeyOfACopiedFileIsOnTheDiskBeforeItIsToldOf(t *testing.T) {
	ring := ringOf(t, 2)
	one, two := encoded(t, newRing(ring.Keys[0].id, ring.Keys[0])), encoded(t, ring)
	file, disk := onWeakDisk(t)
	session, err := file.Open(t.Context())
	require.NoError(t, err)
	for versions, data := range [][]byte{one, two} {
		disk.put(file.Path(), data)
		requireLooks(t, session, versions+1, "")
		certain, _ := disk.left(file.Path())
		require.Equal(t, data, certain)
	}
}

func TestAFileThatDoesNotReachTheDiskIsReadWithAndWrapsNothing(t *testing.T) {
	for _, what := range []string{"file", "folder"} {
		t.Run(what, func(t *testing.T) {
			file, disk := onWeakDisk(t)
			_, err := file.Create(t.Context())
			require.NoError(t, err)
			content, err := os.ReadFile(file.Path())
			require.NoError(t, err)

			disk.fail(map[string]string{"file": "sync kek.json", "folder": "sync " + filepath.Base(disk.folder)}[what])
			session, err := file.Open(t.Context())
			require.NoError(t, err)
			requireLooks(t, session, 1, "may not be on the disk")
			_, err = file.Rotate(t.Context())
			require.ErrorIs(t, err, errBroken)
			disk.fail("nothing") // as the system may, whose second answer means nothing

			requireLooks(t, session, 1, "a fresh copy of the file in its place")
			disk.put(file.Path(), content)
			requireLooks(t, session, 1, "")
		})
	}
}

func TestAChangeThatDoesNotReachTheDiskIsNotServedHoweverOftenItIsLookedAt(t *testing.T) {
	file, disk := onWeakDisk(t)
	_, err := file.Create(t.Context())
	require.NoError(t, err)
	session, err := file.Open(t.Context())
	require.NoError(t, err)
	requireLooks(t, session, 1, "")
	_, err = At(file.Path()).Rotate(t.Context())
	require.NoError(t, err)
	disk.fail("sync kek.json")
	for range 3 {
		requireLooks(t, session, 1, "may not be on the disk")
		disk.fail("nothing")
	}
}

// A disk that hangs is trouble, and one look waits for it.
func TestOneLookAtATime(t *testing.T) {
	file, disk := onWeakDisk(t)
	_, err := file.Create(t.Context())
	require.NoError(t, err)
	session, err := file.Open(t.Context())
	require.NoError(t, err)
	requireLooks(t, session, 1, "")
	asked := false
	disk.before = func(step string) error {
		if step == "read kek.json" {
			asked = true
			requireLooks(t, session, 1, "does its disk answer?")
		}
		return nil
	}
	_, err = At(file.Path()).Rotate(t.Context())
	require.NoError(t, err)
	requireLooks(t, session, 2, "")
	require.True(t, asked)
	disk.steps = nil
	requireLooks(t, session, 2, "")
	require.Empty(t, disk.steps, "nothing was done to it")
}

// Its own user may use a file in a folder that only its owner may list.
func TestAFolderThatCannotBeReadDoesNotKeepItsFileFromBeingDurable(t *testing.T) {
	file, disk := onWeakDisk(t)
	_, err := file.Create(t.Context())
	require.NoError(t, err)
	for all, trouble := range map[error]string{nil: "", errBroken: "may not be on the disk"} {
		synced := false
		disk.before = func(step string) error {
			switch step {
			case "open " + filepath.Base(disk.folder):
				return &fs.PathError{Op: "open", Path: disk.folder, Err: syscall.EACCES}
			case "sync all":
				synced = true
				return all
			}
			return nil
		}
		session, err := file.Open(t.Context())
		require.NoError(t, err)
		requireLooks(t, session, 1, trouble)
		require.True(t, synced)
	}
}

// A rename comes just after the open.
func TestAFileReplacedWhileItIsReadIsReadAgain(t *testing.T) {
	file, disk := onWeakDisk(t)
	_, err := file.Create(t.Context())
	require.NoError(t, err)
	rotations := 0
	disk.before = func(step string) error {
		if step == "stat kek.json" && rotations < 3 {
			rotations++
			_, err := At(file.Path()).Rotate(t.Context())
			return err
		}
		return nil
	}
	infos, err := file.List()
	require.NoError(t, err)
	require.Len(t, infos, 4)
}

func TestANewKeyNeedsAllItsRandomness(t *testing.T) {
	for enough := range 16 + kek.Size {
		random := func() *bytes.Reader { return bytes.NewReader(make([]byte, enough)) }
		file, disk := onWeakDisk(t)
		file.random = random()
		info, err := file.Create(t.Context())
		require.ErrorContains(t, err, "randomness", "%d bytes", enough)
		require.Zero(t, info)
		require.NoFileExists(t, file.Path())
		require.NotContains(t, disk.steps, "open .kek.json.new")
	}
}

func TestAKeyIsNeverOpenToOthersForAMoment(t *testing.T) {
	old := syscall.Umask(0)
	defer syscall.Umask(old)
	file, disk := onWeakDisk(t)
	looked := 0
	disk.before = func(string) error {
		for _, path := range []string{file.Path(), keptfile.Temporary(file.Path())} {
			if info, err := os.Lstat(path); err == nil {
				require.Zero(t, info.Mode().Perm()&0o077)
				looked++
			}
		}
		return nil
	}
	for _, change := range changes(t, file) {
		require.NoError(t, change())
	}
	require.Greater(t, looked, 10)
}

// Who can write the folder can wait for the moment before the temporary file.
func TestAKeyIsNeverWrittenIntoWhatSomebodyElsePutThere(t *testing.T) {
	for name, plant := range map[string]func(path, theirs string) error{
		"a file": func(path, theirs string) error { return os.Link(theirs, path) },
		"a link": func(path, theirs string) error { return os.Symlink(theirs, path) },
	} {
		t.Run(name, func(t *testing.T) {
			theirs := filepath.Join(t.TempDir(), "theirs")
			require.NoError(t, os.WriteFile(theirs, nil, 0o666))
			for change := range changes(t, nil) {
				file, disk := onWeakDisk(t)
				for _, earlier := range changes(t, file)[:change] {
					require.NoError(t, earlier())
				}
				disk.before = func(step string) error {
					if step == "open .kek.json.new" {
						return plant(keptfile.Temporary(file.Path()), theirs)
					}
					return nil
				}
				require.ErrorIs(t, changes(t, file)[change](), fs.ErrExist)
				data, err := os.ReadFile(theirs)
				require.NoError(t, err)
				require.Empty(t, data)
			}
		})
	}
}
