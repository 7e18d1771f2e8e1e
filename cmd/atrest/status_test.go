package main

import (
	"bytes"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/internal/hashed"
	"github.com/kube-atrest/atrest/operate/audit"
	"github.com/kube-atrest/atrest/operate/overview"
	"github.com/kube-atrest/atrest/operate/rotation"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// crowded is a fleet with names as long as there are.
func crowded() overview.Overview {
	left, deks := 179.6, 1234567
	provider := overview.Provider{Name: "the-kms-provider-of-the-production-cluster", Role: rotation.RoleWrites, KeyIDHash: hashed.ID("a"),
		Health: overview.Health(overview.NotWell), Problem: "0123456789_0123456789", WritesLeft: &left, LastWrite: noon.Add(-9*time.Minute - 59*time.Second), DEKs: &deks}
	a := overview.Apiserver{Name: "kubernetes-admin@control-plane-1.production.example.com", AnsweredAt: noon, Seen: true, ConfigHash: hashed.ID("c"),
		ConfigSince: noon.Add(-26*time.Hour - 365*24*time.Hour), Providers: []overview.Provider{provider, {Name: "short", Health: overview.Silent}}}
	report := &audit.Report{Prefix: "/registry/", Objects: 12, Resources: []audit.Resource{
		{Name: "oauthauthorizetokens.oauth.openshift.io", Objects: 12345678, Forms: []audit.Count{
			{Form: audit.Form{Kind: config.KMSv2, Name: provider.Name, KeyIDHash: hashed.ID("a"), DEKSource: audit.Seed}, Objects: 12345678, Bytes: 1 << 40, DEKs: 1000000, DEKsAtLeast: true}}},
		{Name: "pods", Objects: 5, Forms: []audit.Count{{Form: audit.Form{Kind: audit.Plaintext}, Objects: 5}}}}}
	return overview.Overview{At: noon, Verdict: overview.NotWell, Summary: "Not well: it is crowded.", Apiservers: []overview.Apiserver{a, {Name: "cp-2"}},
		Problems: []overview.Problem{{Verdict: overview.NotWell, Apiservers: []string{a.Name}, Provider: provider.Name, What: "it is crowded"},
			{Verdict: overview.Unknown, Apiservers: []string{"cp-2"}, What: "cp-2 cannot be seen"}},
		Notes: []string{"a note"}, Etcd: &overview.Etcd{Place: "etcd", Report: report}}
}

func printed(t *testing.T, o overview.Overview, whole bool, p paint) []string {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, printStatus(&out, o, whole, p))
	return strings.Split(out.String(), "\n")
}

func TestTheTablesOfStatusFit(t *testing.T) {
	lines := printed(t, crowded(), false, false)
	require.Equal(t, []string{
		"APISERVER     CONFIG        AGE   PROVIDER      ROLE    KEY_ID        HEALTH    LEFT  WROTE  DEKS",
	}, lines[:1])
	for _, line := range lines {
		require.LessOrEqual(t, utf8.RuneCountInString(line), tableWidth, line)
	}
	require.Equal(t, tableWidth, utf8.RuneCountInString(lines[1]), "no more is cut than has to be")
	whole := printed(t, crowded(), true, false)
	require.Contains(t, whole[1], "kubernetes-admin@control-plane-1.production.example.com  sha256:")
	require.Contains(t, whole[1], "0123456789 0123456789")
}

func TestWhatIsShort(t *testing.T) {
	rows := [][]string{{"A", "B"}, {"short", "too"}}
	require.Equal(t, [][]string{{"A", "B"}, {"short", "too"}}, fitted(rows, 0, 1))
	long := strings.Repeat("é", 200)
	require.Equal(t, tableWidth, utf8.RuneCountInString(fitted([][]string{{long, "B"}}, 0)[0][0])+3)
	require.Equal(t, least, utf8.RuneCountInString(fitted([][]string{{"long enough", long}}, 0)[0][0]), "what is not to be cut stays as it is")
	require.Equal(t, "kub…cp-1", middle("kubernetes-cp-1", 8))
}

// Red are the rows that something is said of, and what is said.
func TestWhatIsNotWellIsRed(t *testing.T) {
	red := []string{}
	for _, line := range printed(t, crowded(), false, true) {
		if text, is := strings.CutPrefix(strings.TrimLeft(line, " "), "\x1b[31m"); is {
			require.True(t, strings.HasSuffix(text, "\x1b[0m"))
			red = append(red, strings.Fields(strings.TrimSuffix(text, "\x1b[0m"))[0])
			continue
		}
		require.NotContains(t, line, "\x1b")
	}
	require.Equal(t, []string{"kuber…le.com", "cp-2", "it", "cp-2", "Not"}, red)
	well := overview.Overview{Verdict: overview.Well, Summary: "All is well."}
	require.Contains(t, printed(t, well, false, true), "\x1b[32mAll is well.\x1b[0m")
	unknown := overview.Overview{Verdict: overview.Unknown, Summary: "Unknown."}
	require.Contains(t, printed(t, unknown, false, true), "\x1b[31mUnknown.\x1b[0m")
}

// What an apiserver told steers no terminal.
func TestWhatAnApiserverTellsIsPrintedAsText(t *testing.T) {
	o := crowded()
	o.Apiservers[0].Providers[0].Name = "\x1b[2J\nvault"
	o.Problems[0].Why = "\x1b[2J\nwell"
	o.Notes = []string{"\x1b[2J\nwell"}
	o.Summary = "\x1b[2J\nwell"
	require.NotContains(t, strings.Join(printed(t, o, true, false), "\n"), "\x1b")
	require.Len(t, printed(t, o, true, false), len(printed(t, crowded(), true, false)))
}
