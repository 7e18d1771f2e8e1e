package atrest_test

import (
	"crypto/fips140"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest"
	"github.com/kube-atrest/atrest/envelope"
)

func text(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	return string(b)
}

// blocks are what stands in the fenced blocks of a language.
func blocks(markdown, language string) []string {
	fenced := regexp.MustCompile("(?s)\n```" + language + "\n(.*?)\n```\n")
	var found []string
	for _, m := range fenced.FindAllStringSubmatch(markdown, -1) {
		found = append(found, m[1])
	}
	return found
}

func TestGoInTheREADMEIsThatOfTheExamples(t *testing.T) {
	snippets := blocks(text(t, "README.md"), "go")
	require.Len(t, snippets, 2, "one for each of the Examples")
	examples := text(t, "example_test.go")
	for _, snippet := range snippets {
		inside := regexp.MustCompile(`(?m)^(.)`).ReplaceAllString(snippet, "\t$1")
		require.Contains(t, examples, "\n"+inside+"\n")
	}
}

func TestFlagsInTheDocsAreThoseOfAddFlags(t *testing.T) {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	options := atrest.NewOptions()
	if fips140.Enforced() {
		options.DEKSource = string(envelope.Counter) // as without it, of which the table tells
	}
	options.AddFlags(flags)
	var want []string
	flags.VisitAll(func(f *pflag.Flag) {
		byDefault := "none"
		if f.DefValue != "" {
			byDefault = "`" + f.DefValue + "`"
		}
		want = append(want, fmt.Sprintf("| `--%s` | %s | %s |", f.Name, byDefault, f.Usage))
	})
	got := regexp.MustCompile("(?m)^\\| `--.*$").FindAllString(text(t, "docs/flags.md"), -1)
	require.Equal(t, want, got)
}

func TestCIRunsTheREADMEsTestCommand(t *testing.T) {
	commands := blocks(text(t, "README.md"), "sh")
	require.Contains(t, commands, "go run ./apiserver/quickstart\ngo test work")
	require.Regexp(t, `(?m)^go test work$`, text(t, ".ci/run"))
}

func TestLinksLeadToWhatIsThere(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)]+)\)`)
	for _, file := range []string{"README.md", "CONTRIBUTING.md"} {
		found := link.FindAllStringSubmatch(text(t, file), -1)
		require.NotEmpty(t, found, file)
		for _, m := range found {
			if strings.HasPrefix(m[1], "https://") {
				continue
			}
			target, _, _ := strings.Cut(m[1], "#")
			_, err := os.Stat(filepath.FromSlash(target))
			require.NoError(t, err, file)
		}
	}
}
