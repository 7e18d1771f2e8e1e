package harness

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/apiserver/internal/local"
)

// Plugin is the key-file plugin in the test's process. It stops when the test ends.
type Plugin struct{ *local.Plugin }

// NewPlugin returns a plugin with fresh keys that does not serve yet.
func NewPlugin(t *testing.T) Plugin {
	t.Helper()
	p, err := local.NewPlugin(t.Context(), filepath.Join(t.TempDir(), "keys"), filepath.Join(SocketDir(t), "kms.sock"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Stop()) })
	return Plugin{p}
}

// StartPlugin returns a plugin with fresh keys that serves.
func StartPlugin(t *testing.T) Plugin {
	t.Helper()
	p := NewPlugin(t)
	require.NoError(t, p.Start(t.Context()))
	return p
}

// ConfigFile is an EncryptionConfiguration that a test writes and changes.
type ConfigFile struct {
	Path string
	t    *testing.T
}

// NewConfigFile writes the entries of "resources" into a file, below the right heading.
func NewConfigFile(t *testing.T, entries ...string) *ConfigFile {
	t.Helper()
	return NewConfigFileAt(t, filepath.Join(t.TempDir(), "encryption.yaml"), entries...)
}

// NewConfigFileAt is the same for a file at path.
func NewConfigFileAt(t *testing.T, path string, entries ...string) *ConfigFile {
	t.Helper()
	f := &ConfigFile{Path: path, t: t}
	f.Write(entries...)
	return f
}

// Write replaces the entries, in one step as an operator should.
func (f *ConfigFile) Write(entries ...string) {
	f.t.Helper()
	f.WriteText("apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n" + strings.Join(entries, ""))
}

// WriteText replaces the whole file.
func (f *ConfigFile) WriteText(text string) {
	f.t.Helper()
	next := f.Path + ".next"
	require.NoError(f.t, os.WriteFile(next, []byte(text), 0o600))
	require.NoError(f.t, os.Rename(next, f.Path))
}

// Flags are those that make a server use the file and follow its changes.
func (f *ConfigFile) Flags() []string {
	return []string{"--encryption-provider-config=" + f.Path, "--encryption-provider-config-automatic-reload"}
}

// Entry is one entry of a configuration: the resources, and their providers in order.
func Entry(resources string, providers ...string) string {
	entry := fmt.Sprintf("- resources: [%s]\n  providers:\n", resources)
	for _, provider := range providers {
		entry += "  - " + provider + "\n"
	}
	return entry
}

// Identity is the provider that stores plaintext.
const Identity = "identity: {}"

// KMS is a provider of this name that asks the plugin.
func (p Plugin) KMS(name string) string {
	return fmt.Sprintf("kms: {apiVersion: v2, name: %s, endpoint: %q}", name, p.Endpoint())
}
