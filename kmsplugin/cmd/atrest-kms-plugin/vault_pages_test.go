package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Who does as the page or the help says has a secret-id that no other user of the machine can read.
func TestTheSecretIDOfThePagesIsItsOwnersAlone(t *testing.T) {
	page, err := os.ReadFile("../../../docs/plugins/vault.md")
	require.NoError(t, err)
	for name, text := range map[string]string{"page": string(page), "help": vaultHelp} {
		t.Run(name, func(t *testing.T) {
			lines := regexp.MustCompile(`\\\n\s*`).ReplaceAllString(text, "")
			line := regexp.MustCompile(`(?m)^.*-field=secret_id.*> *(\S+secret-id).*$`).FindStringSubmatch(lines)
			require.NotNil(t, line)
			path := filepath.Join(t.TempDir(), "secret-id")
			script := "umask 022\nvault() { echo an-id; }\n" + strings.ReplaceAll(line[0], "> "+line[1], "> "+path)
			out, err := exec.CommandContext(t.Context(), "sh", "-euc", script).CombinedOutput()
			require.NoError(t, err, "%s", out)
			info, err := os.Stat(path)
			require.NoError(t, err)
			require.Zero(t, info.Mode().Perm()&0o077, "%s", info.Mode())
		})
	}
}
