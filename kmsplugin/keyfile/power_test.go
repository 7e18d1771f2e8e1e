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
)

var errBroken = errors.New("input/output error")

// changes are what writes a key file, by the number of versions it then has.
func changes(t *testing.T, file *File) []func() error {
	return []func() error{
		func() error { _, err := file.Create(t.Context()); return err },
		func() error { _, err := file.Rotate(t.Context()); return err },
		func() error { _, err := file.Rotate(t.Context()); return err },
	}
}

func TestAPowerCutLeavesTheFileBeforeOrTheFileAfter(t *testing.T) {
	file, disk := onWeakDisk(t)
	for versions, change := range changes(t, file) {
		disk.before = func(step string) error {
			_, possible := disk.left(file.path)
			for _, data := range possible {
				keys, err := decode(data)
				require.NoError(t, err, "change %d, before %s", versions+1, step)
				require.Contains(t, []int{versions, versions + 1}, len(keys))
			}
			return nil
		}
		require.NoError(t, change())
		certain, _ := disk.left(file.path)
		keys, err := decode(certain)
		require.NoError(t, err, "after change %d", versions+1)
		require.Len(t, keys, versions+1, "what was reported as done is there")
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
				require.NoFileExists(t, temporary(file.path), step)
			}
			_, possible := disk.left(file.path)
			for _, data := range possible {
				_, err := decode(data)
				require.NoError(t, err, step)
			}
		}
	}
}

// A file that somebody copied is on nobody's disk yet.
func TestAKeyOfACopiedFileWrapsNothingBeforeItIsOnTheDisk(t *testing.T) {
	keys := newKeys(t, 2)
	one, two := encoded(t, keys[:1]), encoded(t, keys)
	file, disk := onWeakDisk(t)
	disk.put(file.path, one)
	plugin, err := file.Open()
	require.NoError(t, err)
	certain, _ := disk.left(file.path)
	require.Equal(t, one, certain, "at the start")

	disk.put(file.path, two)
	status, err := plugin.Status(t.Context())
	require.NoError(t, err)
	require.Equal(t, kmsplugin.Healthy, status.Healthz)
	certain, _ = disk.left(file.path)
	require.Equal(t, two, certain, "when Status tells of it")
	sealed, err := plugin.Encrypt(t.Context(), "", []byte("DEK"))
	require.NoError(t, err)
	require.Equal(t, status.KeyID, sealed.KeyID)
}

func TestAFileThatDoesNotReachTheDiskIsReadWithAndWrapsNothing(t *testing.T) {
	for _, what := range []string{"file", "folder"} {
		t.Run(what, func(t *testing.T) {
			file, disk := onWeakDisk(t)
			_, err := file.Create(t.Context())
			require.NoError(t, err)
			sound, err := file.Open()
			require.NoError(t, err)
			sealed, err := sound.Encrypt(t.Context(), "", []byte("DEK"))
			require.NoError(t, err)
			content, err := os.ReadFile(file.path)
			require.NoError(t, err)

			disk.fail(map[string]string{"file": "sync kek.json", "folder": "sync " + filepath.Base(disk.folder)}[what])
			plugin, err := file.Open()
			require.NoError(t, err)
			_, err = file.Rotate(t.Context())
			require.ErrorIs(t, err, errBroken)
			disk.fail("nothing") // as the system may, whose second answer means nothing

			requireHealthz(t, plugin, sealed.KeyID, "may not be on the disk")
			_, err = plugin.Encrypt(t.Context(), "", []byte("DEK"))
			require.ErrorIs(t, err, kmsplugin.ErrUnavailable)
			require.ErrorContains(t, err, "a fresh copy of the file in its place")
			dek, err := plugin.Decrypt(t.Context(), "", sealed)
			require.NoError(t, err)
			require.Equal(t, "DEK", string(dek))

			disk.put(file.path, content)
			requireHealthz(t, plugin, sealed.KeyID, kmsplugin.Healthy)
		})
	}
}

func requireHealthz(t *testing.T, p *Plugin, keyID, healthz string) {
	t.Helper()
	status, err := p.Status(t.Context())
	require.NoError(t, err)
	require.Equal(t, keyID, status.KeyID)
	require.Contains(t, status.Healthz, healthz)
}

func TestANewKeyNeedsAllItsRandomness(t *testing.T) {
	for enough := range 16 + kekSize {
		random := func() *bytes.Reader { return bytes.NewReader(make([]byte, enough)) }
		file, disk := onWeakDisk(t)
		file.random = random()
		info, err := file.Create(t.Context())
		require.ErrorContains(t, err, "randomness", "%d bytes", enough)
		require.Zero(t, info)
		require.NoFileExists(t, file.path)
		require.NotContains(t, disk.steps, "open .kek.json.new")
	}
}

func TestAKeyIsNeverOpenToOthersForAMoment(t *testing.T) {
	old := syscall.Umask(0)
	defer syscall.Umask(old)
	file, disk := onWeakDisk(t)
	looked := 0
	disk.before = func(string) error {
		for _, path := range []string{file.path, temporary(file.path)} {
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
						return plant(temporary(file.path), theirs)
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
