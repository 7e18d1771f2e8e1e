package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/apiserver/internal/harness"
)

// badKey is key material that no error may show; its length fits no cipher.
const badKey = "c2VjcmV0LWtleS1tYXRlcmlhbA=="

func TestAConfigurationThatCannotBeUsedEndsTheStart(t *testing.T) {
	t.Parallel()
	const heading = "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\n"
	cases := map[string]struct {
		text string
		says []string // besides the file
	}{
		"empty file":        {"", []string{"empty"}},
		"unknown field":     {heading + "resources:\n- resources: [secrets]\n  provider: []\n", []string{"resources[0].provider"}},
		"no resources":      {heading, []string{"resources"}},
		"key of 19 bytes":   {heading + "resources:\n" + harness.Entry("secrets", "aescbc: {keys: [{name: k, secret: "+badKey+"}]}"), []string{"resources[0].providers[0].aescbc.keys[0].secret", "32"}},
		"two in one":        {heading + "resources:\n" + harness.Entry("secrets", "{identity: {}, aesgcm: {keys: [{name: k, secret: "+badKey+"}]}}"), []string{"resources[0].providers[0]"}},
		"not a unix socket": {heading + "resources:\n" + harness.Entry("secrets", "kms: {apiVersion: v2, name: k, endpoint: 'tcp://127.0.0.1:1'}"), []string{"resources[0].providers[0].kms.endpoint", "unix"}},
	}
	etcd := harness.Etcd(t)
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			config := harness.NewConfigFile(t)
			config.WriteText(c.text)
			server := harness.Launch(t, harness.Spec{Program: kubeAPIServer, Etcd: etcd, Flags: config.Flags()})

			require.Equal(t, 1, server.Exit())
			message := failure(t, server)
			require.Contains(t, message, config.Path)
			for _, part := range c.says {
				require.Contains(t, message, part)
			}
			require.NotContains(t, server.Log(), badKey)
		})
	}
}

func TestAFileThatIsNotThereEndsTheStart(t *testing.T) {
	t.Parallel()
	absent := filepath.Join(t.TempDir(), "absent.yaml")
	server := harness.Launch(t, harness.Spec{Program: kubeAPIServer, Etcd: harness.Etcd(t), Flags: []string{"--encryption-provider-config=" + absent}})

	require.Equal(t, 1, server.Exit())
	require.Contains(t, failure(t, server), absent)
}

func TestFlagsThatCannotBeUsedEndTheStart(t *testing.T) {
	t.Parallel()
	cases := map[string]struct{ flag, says string }{
		"unknown write mode":  {"--encryption-kms-dek-source=random", "counter"},
		"reload without file": {"--encryption-provider-config-automatic-reload", "--encryption-provider-config"},
	}
	etcd := harness.Etcd(t)
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			server := harness.Launch(t, harness.Spec{Program: kubeAPIServer, Etcd: etcd, Flags: []string{c.flag}})
			require.Equal(t, 1, server.Exit())
			require.Contains(t, failure(t, server), c.says)
		})
	}
}

func TestHelpShowsTheEncryptionFlagsTogether(t *testing.T) {
	t.Parallel()
	command, err := harness.Command(t.Context(), kubeAPIServer, "--help")
	require.NoError(t, err)
	command.Stderr = os.Stderr
	output, err := command.Output()
	require.NoError(t, err)

	_, help, found := strings.Cut(string(output), "Etcd flags:")
	require.True(t, found)
	section, _, _ := strings.Cut(help, "flags:")
	for _, flag := range []string{
		"--encryption-provider-config string",
		"--encryption-provider-config-automatic-reload",
		"--encryption-kms-dek-source",
		"--etcd-servers",
	} {
		require.Contains(t, section, flag)
	}
}

// failure returns the one line that says why the server did not start.
func failure(t *testing.T, s *harness.Server) string {
	t.Helper()
	var lines []string
	for line := range strings.Lines(s.Log()) {
		if strings.Contains(line, "command failed") || strings.HasPrefix(line, "Error:") {
			lines = append(lines, line)
		}
	}
	require.Len(t, lines, 1, "one error says it all")
	return lines[0]
}
