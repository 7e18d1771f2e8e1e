package harness

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Atrest is the file of the command atrest, of the tree that is being tested. It is built
// once for all tests of a package: linking it takes seconds.
func Atrest(t *testing.T) (path string) {
	t.Helper()
	built.once.Do(func() { built.folder, built.err = buildAtrest() })
	require.NoError(t, built.err)
	return filepath.Join(built.folder, "atrest")
}

// built is what [Main] removes when all tests have run.
var built struct {
	once   sync.Once
	folder string
	err    error
}

func buildAtrest() (folder string, err error) {
	folder, err = os.MkdirTemp("", "atrest-built-")
	if err != nil {
		return "", err
	}
	text, err := exec.Command("go", "build", "-o", folder, "github.com/kube-atrest/atrest/cmd/atrest").CombinedOutput()
	if err != nil {
		return folder, fmt.Errorf("build atrest: %w: %s", err, text)
	}
	return folder, nil
}

func removeBuilt() error {
	if built.folder == "" {
		return nil
	}
	return os.RemoveAll(built.folder)
}
