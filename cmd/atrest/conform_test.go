package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/kmsplugin/conformance"
)

func TestThePageOfPluginsNamesWhatThereIs(t *testing.T) {
	content, err := os.ReadFile("../../docs/plugins.md")
	require.NoError(t, err)
	text := string(content)
	flags := flagsOf(commands()["conform"])
	others := regexp.MustCompile(`--dport|iptables[^']*|--hold-down`) // the last one is of atrest-kms-plugin
	for _, flag := range flagsIn(others.ReplaceAllString(text, "")) {
		require.True(t, flags[flag], flag)
	}
	for _, link := range regexp.MustCompile(`\]\(([^)#]+)\)`).FindAllStringSubmatch(text, -1) {
		require.FileExists(t, filepath.Join("../../docs", strings.TrimSuffix(link[1], "/keyfile")+map[bool]string{true: "/keyfile/doc.go"}[strings.HasSuffix(link[1], "/keyfile")]))
	}
	for _, check := range conformance.Checks() {
		require.Contains(t, text, "| `"+check.ID+"` |", "it is on the scoreboard")
	}
}

// Each need is met by a flag, so that a check that was not tried says which.
func TestEachNeedHasAFlag(t *testing.T) {
	flags := flagsOf(commands()["conform"])
	for _, check := range conformance.Checks() {
		for _, need := range check.Needs {
			require.True(t, flags[flagsFor([]conformance.Need{need})], "%s of %s", need, check.ID)
		}
	}
}
