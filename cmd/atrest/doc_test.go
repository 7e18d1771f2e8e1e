package main

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/kmsplugin/conformance"
)

// elsewhere are the flags of other programs that the texts name.
var elsewhere = []string{"--feature-gates", "--encryption-provider-config", "--encryption-provider-config-automatic-reload", "--etcd-prefix", "--runtime-config", "--print-value-only", "--help"}

func flagsOf(c *cobra.Command) map[string]bool {
	flags := map[string]bool{}
	c.Flags().VisitAll(func(f *pflag.Flag) { flags["--"+f.Name] = true })
	for _, below := range c.Commands() {
		maps.Copy(flags, flagsOf(below))
	}
	return flags
}

func flagsIn(text string) []string {
	return regexp.MustCompile(`--[a-z][a-z0-9-]+`).FindAllString(text, -1)
}

func commands() map[string]*cobra.Command {
	all := map[string]*cobra.Command{}
	for _, c := range newRoot(streams{}).Commands() {
		if !c.Hidden {
			all[c.Name()] = c
		}
	}
	return all
}

func TestTheDocsNameEveryFlagAndNoOther(t *testing.T) {
	content, err := os.ReadFile("../../docs/atrest.md")
	require.NoError(t, err)
	inDocs := map[string]bool{}
	for _, flag := range flagsIn(string(content)) {
		inDocs[flag] = true
	}
	there := map[string]bool{}
	for _, flag := range elsewhere {
		there[flag] = true
	}
	for name, c := range commands() {
		require.Contains(t, string(content), "\n## "+name+"\n")
		for flag := range flagsOf(c) {
			require.True(t, inDocs[flag], "%s of %s is not in the docs", flag, name)
			there[flag] = true
		}
	}
	newRoot(streams{}).Flags().VisitAll(func(f *pflag.Flag) { there["--"+f.Name] = true })
	for flag := range inDocs {
		require.True(t, there[flag], "the docs name %s, which is nowhere", flag)
	}
}

func TestHelpFitsATerminal(t *testing.T) {
	var look func(*cobra.Command)
	look = func(c *cobra.Command) {
		for line := range strings.Lines(c.Long) {
			require.LessOrEqual(t, len(strings.TrimSuffix(line, "\n")), 90, "%s: %s", c.CommandPath(), line)
		}
		for _, below := range c.Commands() {
			look(below)
		}
	}
	look(newRoot(streams{}))
}

// Every command line in the docs and the help is one that the command would take.
func TestCommandLinesAreAccepted(t *testing.T) {
	content, err := os.ReadFile("../../docs/atrest.md")
	require.NoError(t, err)
	texts := []string{string(content), rootHelp}
	for _, c := range commands() {
		texts = append(texts, c.Example, c.Long)
	}
	seen := 0
	for _, text := range texts {
		text = strings.ReplaceAll(text, "\\\n", " ")
		for _, line := range regexp.MustCompile("(?m)(?:^|[ $|`])atrest ((?:status|check|diff|audit|decrypt|migrate|rotate|retire|lost|report|conform|bundle|node) [^|>#`\n(]*)").FindAllStringSubmatch(text, -1) {
			words := strings.Fields(line[1])
			command, ok := commands()[words[0]]
			require.True(t, ok, line[0])
			flags := flagsOf(command)
			for _, flag := range flagsIn(line[1]) {
				require.True(t, flags[flag], "%s in %q", flag, line[0])
			}
			seen++
		}
	}
	require.Greater(t, seen, 20)
}

func TestLinksInTheDocsLeadToWhatIsThere(t *testing.T) {
	content, err := os.ReadFile("../../docs/atrest.md")
	require.NoError(t, err)
	links := regexp.MustCompile(`\]\(([^)#]+)\)`).FindAllStringSubmatch(string(content), -1)
	require.NotEmpty(t, links)
	for _, link := range links {
		require.FileExists(t, filepath.Join("../../docs", link[1]))
	}
}

// The help of the trial names what it checks.
func TestTheHelpOfATrialNamesEachQuickCheck(t *testing.T) {
	for _, id := range conformance.Quick() {
		require.Contains(t, bundleTryHelp, id)
	}
}
