package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

// everyCommand calls f for each that is not hidden.
func everyCommand(c *cobra.Command, f func(*cobra.Command)) {
	if c.Hidden {
		return
	}
	f(c)
	for _, below := range c.Commands() {
		everyCommand(below, f)
	}
}

func TestEveryCommandHasAPageWithItsFlags(t *testing.T) {
	folder := t.TempDir()
	root := newRoot(streams{})
	written, err := writePages(folder, root, "v1.2.3")
	require.NoError(t, err)
	commands := 0
	everyCommand(root, func(c *cobra.Command) {
		commands++
		content, err := os.ReadFile(filepath.Join(folder, pageName(c)+".1"))
		require.NoError(t, err)
		text := string(content)
		require.True(t, strings.HasPrefix(text, `.TH "`+strings.ToUpper(pageName(c))+`" 1 "" "atrest v1.2.3" "atrest"`), text)
		c.Flags().VisitAll(func(f *pflag.Flag) {
			require.Contains(t, text, roff("--"+f.Name)+"\\fR", pageName(c))
		})
		// What is no macro of ours begins no line with what begins a macro.
		for _, line := range strings.Split(text, "\n") {
			if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
				require.Regexp(t, regexp.MustCompile(`^\.(TH|SH|B|BR|TP|nf|fi)( |$)`), line)
			}
		}
	})
	require.Equal(t, commands, written)
	require.Greater(t, commands, 10)
}

func TestTextsMeanNothingToTheFormatter(t *testing.T) {
	require.Equal(t, "\\&.so /etc/passwd\n  \\(aqa\\(aq \\-\\-b \\en\n\\(aqc", roff(".so /etc/passwd\n  'a' --b \\n\n'c"))
}

// Where there is a formatter it has nothing to say against the pages.
func TestTheFormatterTakesThePages(t *testing.T) {
	groff, err := exec.LookPath("groff")
	if err != nil {
		t.Skip("there is no groff here")
	}
	folder := t.TempDir()
	_, err = writePages(folder, newRoot(streams{}), "v1.2.3")
	require.NoError(t, err)
	pages, err := filepath.Glob(filepath.Join(folder, "*.1"))
	require.NoError(t, err)
	require.NotEmpty(t, pages)
	command := exec.Command(groff, append([]string{"-man", "-ww", "-Tascii", "-rLL=100n", "-z"}, pages...)...)
	said, err := command.CombinedOutput()
	require.NoError(t, err, string(said))
	require.Empty(t, string(said))
}
