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
	"github.com/kube-atrest/atrest/kmsplugin/plugintest"
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
		"no command":      {nil, "no command: there is keyfile, pkcs11, tpm, vault", "atrest-kms-plugin --help"},
		"unknown command": {[]string{"rotate"}, `no command "rotate"`, "atrest-kms-plugin --help"},
		"help of none":    {[]string{"help", "nosuch"}, `no command "nosuch"`, "atrest-kms-plugin help --help"},
		"no verb":         {[]string{"keyfile"}, "no command: there is serve, create, rotate", "atrest-kms-plugin keyfile --help"},
		"unknown verb":    {[]string{"keyfile", "trim"}, `no command "trim"`, "atrest-kms-plugin keyfile --help"},
		"unknown flag":    {[]string{"keyfile", "list", "--keys"}, "unknown flag: --keys", "atrest-kms-plugin keyfile list --help"},
		"wrong value":     {[]string{"keyfile", "serve", "-v", "much"}, `invalid argument "much"`, "atrest-kms-plugin keyfile serve --help"},
		"wrong poll":      {[]string{"keyfile", "serve", "--poll", "0s", "--key-file", "x", "--listen", "unix:///x"}, "--poll is 0s", "atrest-kms-plugin keyfile serve --help"},
		"arguments":       {[]string{"keyfile", "rotate", "kek.json"}, `unexpected argument "kek.json"`, "atrest-kms-plugin keyfile rotate --help"},
		"serve nothing":   {[]string{"keyfile", "serve"}, "not given: --listen, --key-file", "atrest-kms-plugin keyfile serve --help"},
		"rotate nothing":  {[]string{"keyfile", "rotate"}, "not given: --key-file", "atrest-kms-plugin keyfile rotate --help"},
		"list nothing":    {[]string{"keyfile", "list", "--key-file", ""}, "not given: --key-file", "atrest-kms-plugin keyfile list --help"},
	} {
		t.Run(name, func(t *testing.T) {
			got := runCommand(t, test.args...)
			require.Equal(t, exitUsage, got.code)
			require.Empty(t, got.stdout)
			require.Contains(t, got.stderr, "atrest-kms-plugin: ")
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
		for _, args := range [][]string{{"list"}, {"rotate"}, {"stage"}, {"activate"}, {"serve", "--listen", plugintest.Endpoint(t)}} {
			got := runCommand(t, append(append([]string{"keyfile"}, args...), "--key-file", path)...)
			require.Equal(t, test.code, got.code, got.stderr)
			require.Empty(t, got.stdout)
			require.Contains(t, got.stderr, test.remedy)
		}
	}
}

func TestHelpTeaches(t *testing.T) {
	commands := [][]string{{"--help"}, {"keyfile", "--help"}, {"help", "keyfile", "serve"}}
	for _, command := range newKeyFileGroup().Commands() {
		commands = append(commands, []string{"keyfile", command.Name(), "--help"})
	}
	commands = append(commands, []string{"vault", "--help"})
	for _, command := range newVaultGroup().Commands() {
		commands = append(commands, []string{"vault", command.Name(), "--help"})
	}
	require.Len(t, commands, 16)
	for _, args := range commands {
		got := runCommand(t, args...)
		require.Equal(t, exitDone, got.code)
		require.Contains(t, got.stdout, "Usage:")
		require.Empty(t, got.stderr)
		for line := range strings.Lines(got.stdout) {
			require.LessOrEqual(t, len(line), 145, line)
		}
	}
	require.Contains(t, runCommand(t, "--help").stdout, "Exit codes:")
	help := runCommand(t, "keyfile", "--help").stdout
	for _, part := range []string{"keyfile create", "keyfile serve", "rotate --key-file", "keyfile activate KEY_ID"} {
		require.Contains(t, help, part)
	}
}

func TestTheSnippetInTheHelpIsAnEncryptionConfiguration(t *testing.T) {
	_, snippet, found := strings.Cut(keyFileHelp, "--encryption-provider-config:\n")
	require.True(t, found)
	snippet, _, found = strings.Cut(snippet, "\nThen rotate")
	require.True(t, found)
	snippet = regexp.MustCompile(`(?m)^  `).ReplaceAllString(snippet, "")

	var config apiserverv1.EncryptionConfiguration
	require.NoError(t, yaml.UnmarshalStrict([]byte(snippet), &config))
	require.Equal(t, "EncryptionConfiguration", config.Kind)
	kms := config.Resources[0].Providers[0].KMS
	require.Equal(t, "v2", kms.APIVersion)
	require.Contains(t, keyFileHelp, "--listen "+kms.Endpoint, "what is served is what is dialled")
}
