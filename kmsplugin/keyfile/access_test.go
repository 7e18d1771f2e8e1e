package keyfile_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/kmsplugin/keyfile"
)

// everyUse calls all that reads a key file.
func everyUse(file *keyfile.File) map[string]error {
	ctx, sound := context.Background(), keyfile.At(file.Path()+".sound")
	_, _ = sound.Create(ctx)
	defer os.Remove(sound.Path())
	_, list := file.List()
	_, versions := open(file).Versions(ctx)
	_, rotate := file.Rotate(ctx)
	_, stage := file.Stage(ctx)
	_, activate := file.Activate(ctx, "")
	_, merge := file.Merge(ctx, sound.Path())
	_, merged := sound.Merge(ctx, file.Path())
	_, imported := sound.Import(ctx, file.Path())
	return map[string]error{"List": list, "Versions": versions, "Rotate": rotate, "Stage": stage, "Activate": activate,
		"Merge": merge, "Merge from": merged, "Import from": imported}
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
		_, err := open(file).Versions(t.Context())
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
	for length := 0; length < len(sound); length += 29 {
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

func TestErrorsNameTheFile(t *testing.T) {
	file := keyfile.At(filepath.Join(t.TempDir(), "kek.json"))
	for use, err := range everyUse(file) {
		require.ErrorContains(t, err, "key file "+file.Path()+": ", use)
		require.False(t, errors.Is(err, keyfile.ErrDamaged))
	}
}
