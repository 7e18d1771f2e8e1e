package reload

import (
	"bytes"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config")
	writeFile(t, path, "content")
	content, err := Read(path)
	require.NoError(t, err)
	require.Equal(t, "content", string(content))

	largest := bytes.Repeat([]byte("x"), maxSize)
	writeFile(t, path, string(largest))
	content, err = Read(path)
	require.NoError(t, err)
	require.Equal(t, largest, content)
}

func TestReadSaysWhatIsWrongAndWithWhichFile(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	writeFile(t, path("empty"), "")
	writeFile(t, path("large"), string(make([]byte, maxSize+1)))
	require.NoError(t, syscall.Mkfifo(path("pipe"), 0o600))

	for name, want := range map[string]string{
		"none":  "no such file or directory",
		"empty": "is empty",
		"large": "is larger than the limit of 1048576 bytes",
		"pipe":  "is not a regular file",
		".":     "is not a regular file",
	} {
		content, err := Read(path(name))
		require.ErrorContains(t, err, want, name)
		require.ErrorContains(t, err, path(name))
		require.Empty(t, content)
	}
	_, err := Read(path("none"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

// As sha256sum(1) prints it.
func TestHash(t *testing.T) {
	require.Equal(t, "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", Hash([]byte("abc")))
}
