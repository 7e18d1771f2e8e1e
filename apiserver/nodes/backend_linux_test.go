package nodes

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/apiserver/internal/harness"
	"github.com/kube-atrest/atrest/operate/bundle"
)

// backend is a KMS with a key for each keyID.
type backend interface {
	// plugin is what a bundle has of a keyID, run by a program or, if that is zero, by the
	// one that the nodes have.
	plugin(keyID bundle.KeyID, program bundle.Program) bundle.DraftPlugin
}

// keyFiles is a folder with a key file for each keyID, which all nodes see.
type keyFiles struct {
	t      *testing.T
	folder string
}

func newKeyFiles(t *testing.T) *keyFiles { return &keyFiles{t, t.TempDir()} }

func (k *keyFiles) plugin(keyID bundle.KeyID, program bundle.Program) bundle.DraftPlugin {
	k.t.Helper()
	return bundle.DraftPlugin{KeyID: keyID, Settings: settings(program, fmt.Sprintf("keyFile: {path: %q, poll: 200ms}\n", k.key(keyID)))}
}

// key is the file of a keyID.
func (k *keyFiles) key(keyID bundle.KeyID) (path string) {
	k.t.Helper()
	path = filepath.Join(k.folder, "kek-"+keyID.String()+".json")
	if _, err := os.Stat(path); err != nil {
		said, err := exec.Command(harness.KMSPlugin(k.t), "keyfile", "create", "--key-file", path).CombinedOutput()
		require.NoError(k.t, err, "%s", said)
	}
	return path
}

// settings are those of a back end, run by a program.
func settings(program bundle.Program, backend string) []byte {
	text := fmt.Sprintf("apiVersion: %s\nkind: %s\n%s", bundle.APIVersion, bundle.SettingsKind, backend)
	if program.Path != "" {
		text += fmt.Sprintf("program: {path: %q, sha256: %q}\n", program.Path, program.SHA256)
	}
	return []byte(text)
}
