package nodes

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/operate/bundle"
)

// another is the same program in a file of its own, with another digest: who runs it reads nothing behind its
// end.
func another(t *testing.T, path, name string) bundle.Program {
	t.Helper()
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	copied := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(copied, append(content, name...), 0o700))
	return bundle.Program{Path: copied, SHA256: digest(t, copied)}
}

func digest(t *testing.T, path string) string {
	t.Helper()
	file, err := os.Open(path)
	require.NoError(t, err)
	defer file.Close()
	hash := sha256.New()
	_, err = io.Copy(hash, file)
	require.NoError(t, err)
	return "sha256:" + hex.EncodeToString(hash.Sum(nil))
}
