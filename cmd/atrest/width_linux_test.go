package main

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

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
	form := audit.Form{Kind: config.KMSv2, Name: long, KeyID: long, KeyIDHash: "sha256:" + strings.Repeat("ab", 32)}
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
