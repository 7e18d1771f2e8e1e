package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/yaml"
	apiserverv1 "k8s.io/apiserver/pkg/apis/apiserver/v1"

	"github.com/kube-atrest/atrest/kmsplugin/keyfile"
)

// result is what a user of the command gets to see.
type result struct {
	code           int
	stdout, stderr string
}

func runCommand(t *testing.T, args ...string) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), args, &stdout, &stderr)
	return result{code, stdout.String(), stderr.String()}
}

// newKeyFile is a sound key file with one key.
func newKeyFile(t *testing.T) (path string, info keyfile.KeyInfo) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "kek.json")
	info, err := keyfile.At(path).Create(t.Context())
	require.NoError(t, err)
	return path, info
}

func TestMistakesOnTheCommandLine(t *testing.T) {
	for name, test := range map[string]struct {
		args    []string
		problem string
		help    string
	}{
		"no command":      {nil, "no command: serve, rotate or list", "atrest-keyfile --help"},
		"unknown command": {[]string{"destroy"}, `no command "destroy"`, "atrest-keyfile --help"},
		"unknown flag":    {[]string{"list", "--keys"}, "unknown flag: --keys", "atrest-keyfile list --help"},
		"wrong value":     {[]string{"serve", "-v", "much"}, `invalid argument "much"`, "atrest-keyfile serve --help"},
		"arguments":       {[]string{"rotate", "kek.json"}, `unexpected argument "kek.json"`, "atrest-keyfile rotate --help"},
		"serve nothing":   {[]string{"serve"}, "not given: --listen, --key-file", "atrest-keyfile serve --help"},
		"rotate nothing":  {[]string{"rotate"}, "not given: --key-file", "atrest-keyfile rotate --help"},
		"list nothing":    {[]string{"list", "--key-file", ""}, "not given: --key-file", "atrest-keyfile list --help"},
	} {
		t.Run(name, func(t *testing.T) {
			got := runCommand(t, test.args...)
			require.Equal(t, exitUsage, got.code)
			require.Empty(t, got.stdout)
			require.Contains(t, got.stderr, "atrest-keyfile: ")
			require.Contains(t, got.stderr, test.problem)
			require.Contains(t, got.stderr, "run '"+test.help+"'")
		})
	}
}

func TestKeyFilesThatCannotBeUsedHaveTheirExitCodes(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "kek.json")
	damaged, _ := newKeyFile(t)
	require.NoError(t, os.Truncate(damaged, 10))
	open, _ := newKeyFile(t)
	require.NoError(t, os.Chmod(open, 0o644))
	for path, test := range map[string]struct {
		code   int
		remedy string
	}{
		missing: {exitNoKeyFile, "restore it from a copy"},
		damaged: {exitBadKeyFile, "restore it from a copy"},
		open:    {exitBadKeyFile, "chmod 600 " + open},
	} {
		for _, args := range [][]string{{"list"}, {"rotate"}, {"serve", "--listen", "unix://" + missing + ".sock"}} {
			got := runCommand(t, append(args, "--key-file", path)...)
			require.Equal(t, test.code, got.code, got.stderr)
			require.Empty(t, got.stdout)
			require.Contains(t, got.stderr, test.remedy)
		}
	}
}

func TestHelpTeaches(t *testing.T) {
	for _, args := range [][]string{{"--help"}, {"serve", "--help"}, {"rotate", "--help"}, {"list", "--help"}, {"help", "serve"}} {
		got := runCommand(t, args...)
		require.Equal(t, exitDone, got.code)
		require.Contains(t, got.stdout, "Usage:")
		require.Empty(t, got.stderr)
	}
	help := runCommand(t, "--help").stdout
	for _, part := range []string{"serve --create", "rotate --key-file", "Exit codes:"} {
		require.Contains(t, help, part)
	}
}

func TestTheSnippetInTheHelpIsAnEncryptionConfiguration(t *testing.T) {
	_, snippet, found := strings.Cut(rootHelp, "--encryption-provider-config:\n")
	require.True(t, found)
	snippet, _, found = strings.Cut(snippet, "\nThen rotate")
	require.True(t, found)
	snippet = regexp.MustCompile(`(?m)^  `).ReplaceAllString(snippet, "")

	var config apiserverv1.EncryptionConfiguration
	require.NoError(t, yaml.UnmarshalStrict([]byte(snippet), &config))
	require.Equal(t, "EncryptionConfiguration", config.Kind)
	kms := config.Resources[0].Providers[0].KMS
	require.Equal(t, "v2", kms.APIVersion)
	require.Contains(t, rootHelp, "--listen "+kms.Endpoint, "what is served is what is dialled")
}
