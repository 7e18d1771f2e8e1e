package main

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/operate/audit"
	"github.com/kube-atrest/atrest/operate/migrate"
	"github.com/kube-atrest/atrest/operate/preflight"
	"github.com/kube-atrest/atrest/operate/reencrypt"
)

// Each table with the longest names that it may have fits a terminal, and a file or a pipe
// has the names as they are.
func TestTablesFitATerminalAndAreWholeElsewhere(t *testing.T) {
	long := strings.Repeat("verylongname.", 12) + "end"
	form := audit.Form{Kind: config.KMSv2, Name: long, KeyIDHash: "sha256:" + strings.Repeat("ab", 32)}
	report := &audit.Report{Opened: true, Resources: []audit.Resource{{Name: long, Forms: []audit.Count{{Form: form, Objects: 1 << 40, Bytes: 1 << 40}}}}}
	for name, print := range map[string]func(io.Writer) error{
		"audit": func(w io.Writer) error { return printReport(w, report) },
		"check": (&checked{Resources: []rule{{Resource: long, WrittenWith: long, ReadWith: []string{long, long}}}}).print,
		"plugins": func(w io.Writer) error {
			return printPlugins(w, []preflight.Result{{Names: []string{long}, Endpoint: "unix:///" + long}})
		},
		"diff": func(w io.Writer) error {
			return printChanges(w, []change{{Resource: long, WrittenWith: long, WasWrittenWith: long, AlsoReadWith: []string{long}, NoLongerReadWith: []string{long}}})
		},
		"migrate": func(w io.Writer) error {
			return printPlan(w, &reencrypt.Result{ToRewrite: []reencrypt.ToRewrite{{Resource: long, Objects: 1 << 40, From: form, To: form}}})
		},
		"rewritten": func(w io.Writer) error {
			return printRewritten(w, []reencrypt.Rewritten{{Resource: long, Counts: migrate.Counts{Rewritten: 1 << 40, Conflicts: 1 << 40}, Took: "17h59m59s"}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			tty, text := terminal(t)
			require.NoError(t, print(tty))
			for line := range strings.Lines(text()) {
				require.LessOrEqual(t, utf8.RuneCountInString(strings.TrimRight(line, "\r\n")), tableWidth, line)
			}
			var whole bytes.Buffer
			require.NoError(t, print(&whole))
			require.Contains(t, whole.String(), long)
		})
	}
}

func TestAWideTerminalIsUsed(t *testing.T) {
	tty, text := terminal(t)
	require.NoError(t, unix.IoctlSetWinsize(int(tty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 180}))
	name := strings.Repeat("0123456789", 14)
	require.NoError(t, printCut(tty, [][]string{{"NAME"}, {name}}, 0))
	require.Contains(t, text(), name)
}

// Two key_ids that differ in their middle would look the same.
func TestAKeyIDThatIsAskedForIsWhole(t *testing.T) {
	tty, text := terminal(t)
	arn := "arn:aws:kms:eu-central-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab"
	form := audit.Form{Kind: config.KMSv2, Name: strings.Repeat("name", 20), KeyID: arn, KeyIDHash: "sha256:" + strings.Repeat("ab", 32)}
	require.NoError(t, printReport(tty, &audit.Report{Resources: []audit.Resource{{Name: "secrets", Forms: []audit.Count{{Form: form}}}}}))
	require.Contains(t, text(), arn)
}
