package harness

import (
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Atrest is the file of the command atrest, of the tree that is being tested. It is built
// once for all tests of a package: linking it takes seconds.
func Atrest(t *testing.T) (path string) {
	t.Helper()
	return built.command(t, "cmd/atrest")
}

// KMSPlugin is that of the command atrest-kms-plugin.
func KMSPlugin(t *testing.T) (path string) {
	t.Helper()
	return built.command(t, "kmsplugin/cmd/atrest-kms-plugin")
}

// built is what [Main] removes when all tests have run.
var built commands

type commands struct {
	mu     sync.Mutex
	folder string
	done   map[string]error // by the package
}

// command builds a package of the project, unless that was done.
func (c *commands) command(t *testing.T, pkg string) (file string) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.folder == "" {
		var err error
		c.folder, err = os.MkdirTemp("", "atrest-built-")
		require.NoError(t, err)
		c.done = map[string]error{}
	}
	err, tried := c.done[pkg]
	if !tried {
		err = build(c.folder, pkg)
		c.done[pkg] = err
	}
	require.NoError(t, err)
	return filepath.Join(c.folder, path.Base(pkg))
}

func build(folder, pkg string) error {
	text, err := exec.Command("go", "build", "-o", folder, "github.com/kube-atrest/atrest/"+pkg).CombinedOutput()
	if err != nil {
		return fmt.Errorf("build %s: %w: %s", pkg, err, text)
	}
	return nil
}

func (c *commands) remove() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.folder == "" {
		return nil
	}
	return os.RemoveAll(c.folder)
}
