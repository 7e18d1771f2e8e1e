package faults

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/kube-atrest/atrest/envelope"
	"github.com/kube-atrest/atrest/healthz"
	"github.com/kube-atrest/atrest/internal/faultplugin"
)

const page = "../../docs/operations.md"

func pageText(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	return string(text)
}

// cells are the rows of the page's tables that begin with something in
// backticks and have n cells.
func cells(text string, n int) [][]string {
	var found [][]string
	for line := range strings.Lines(text) {
		parts := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		if !strings.HasPrefix(line, "| `") || len(parts) != n {
			continue
		}
		for i := range parts {
			parts[i] = strings.TrimSpace(parts[i])
		}
		found = append(found, parts)
	}
	return found
}

// quoted are the fragments that stand in backticks.
func quoted(text string) []string {
	var found []string
	for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(text, -1) {
		found = append(found, m[1])
	}
	return found
}

// faultRows are the rows of faults on the page, in five cells. What goes on stands in
// the fourth, or before a table of four for all of its rows.
func faultRows(text string) [][]string {
	var found [][]string
	goesOn := ""
	for line := range strings.Lines(text) {
		said, begins := strings.CutPrefix(strings.TrimSpace(line), "What goes on: **")
		if begins || strings.HasPrefix(line, "## ") {
			goesOn = ""
		}
		if begins {
			goesOn = strings.TrimSuffix(said, "**")
		}
		for _, row := range cells(line, 4) {
			if goesOn != "" {
				found = append(found, slices.Insert(row, 3, goesOn))
			}
		}
		found = append(found, cells(line, 5)...)
	}
	return found
}

// The page and the tests have the same rows, and say the same of what is seen and
// what goes on.
func TestThePageHasTheRowsThatAreTested(t *testing.T) {
	var ours, theirs [][]string
	for _, r := range rows {
		ours = append(ours, []string{"`" + r.id + "`", r.seen, r.goesOn})
	}
	for _, c := range faultRows(pageText(t)) {
		theirs = append(theirs, []string{c[0], c[2], c[3]})
		require.NotEmpty(t, c[1], "%s: what happened", c[0])
		require.NotEmpty(t, c[4], "%s: what to do", c[0])
	}
	require.ElementsMatch(t, ours, theirs)
}

func TestThePageHasTheOptionsWithTheirDefaults(t *testing.T) {
	defaults := [][]string{
		{"`KMS.WriteWindow`", fmt.Sprint(envelope.DefaultWriteWindow)},
		{"`KMS.HealthyPoll`", fmt.Sprint(envelope.DefaultHealthyPoll)},
		{"`KMS.UnhealthyPoll`", fmt.Sprint(envelope.DefaultUnhealthyPoll)},
		{"`KMS.MaxWrites`", fmt.Sprint(envelope.DefaultMaxWrites)},
		{"`KMS.MaxDEKs`", fmt.Sprint(envelope.DefaultMaxDEKs)},
		{"`KMS.MaxDEKAge`", fmt.Sprint(time.Duration(0))},
		{"`timeout`", fmt.Sprint(envelope.DefaultTimeout)},
	}
	var theirs [][]string
	for _, c := range cells(pageText(t), 3) {
		if !strings.Contains(c[0], "_") {
			theirs = append(theirs, c[:2])
		}
	}
	require.Equal(t, defaults, theirs)

	o := reflect.TypeFor[envelope.Options]()
	for i := range o.NumField() {
		name := o.Field(i).Name
		if !slices.Contains([]string{"Mode", "Clock", "Random", "Observer"}, name) { // a flag, and what tests hand in
			require.Contains(t, pageText(t), "| `KMS."+name+"` |")
		}
	}
}

// Every metric of ours is on the page, and every one on the page is there.
func TestThePageHasTheMetrics(t *testing.T) {
	sources, err := filepath.Glob("../metrics/*.go")
	require.NoError(t, err)
	require.NotEmpty(t, sources)
	var ours []string
	for _, name := range sources {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		for _, m := range regexp.MustCompile(`(?:gauge\(|Namespace: "atrest", Name: )"(\w+)"`).FindAllSubmatch(text, -1) {
			ours = append(ours, "`atrest_"+string(m[1])+"`")
		}
	}
	var onPage, theirs []string
	for _, c := range cells(pageText(t), 3) {
		switch {
		case strings.HasPrefix(c[0], "`atrest_kms_plugin_"): // of another process: kmsplugin/telemetry holds them
		case strings.HasPrefix(c[0], "`atrest_"):
			onPage = append(onPage, c[0])
		case strings.HasPrefix(c[0], "`apiserver_"):
			theirs = append(theirs, strings.Trim(c[0], "`"))
		}
	}
	require.ElementsMatch(t, ours, onPage)
	require.NotEmpty(t, theirs)

	useEveryMetric(t)
	families, err := legacyregistry.DefaultGatherer.Gather()
	require.NoError(t, err)
	for _, f := range families {
		theirs = slices.DeleteFunc(theirs, func(name string) bool { return name == f.GetName() })
	}
	require.Empty(t, theirs, "nothing feeds these")
}

// useEveryMetric does what the metrics with labels need to have a value.
func useEveryMetric(t *testing.T) {
	p := faultplugin.Start(t)
	cold := elsewhere(t, 1, "metrics", p)[0]
	s := start(t, fileOf(rule("secrets", kms("metrics", p)))).follow()
	s.mustRead(secrets, cold)
	s.mustWrite(secrets)
	next := fileOf(rule("secrets", kms("metrics", p), identity))
	s.put(next)
	s.loaded(next)
	s.until(func() bool { return strings.Contains(s.log.String(), "Reloaded") }, "the reload is told")
	p.Set(func(b *faultplugin.Behaviour) { b.KeyID = "" })
	s.clock.Step(healthyPoll)
	s.until(func() bool { return !s.healthy() }, "the key_id is refused")
	s.until(func() bool { return s.provider("metrics").Reads == 1 }, "the use is told")
}

// The JSON on the page is what the type can hold, with every field of it.
func TestThePageHasTheFieldsOfTheState(t *testing.T) {
	block := regexp.MustCompile("(?s)\n```json\n(.*?)\n```\n").FindStringSubmatch(pageText(t))
	require.Len(t, block, 2)
	example := json.NewDecoder(strings.NewReader(block[1]))
	example.DisallowUnknownFields()
	var status healthz.Status
	require.NoError(t, example.Decode(&status))
	require.NotNil(t, status.Reload)
	require.Len(t, status.Providers, 1)
	for _, v := range []any{status, *status.Reload, status.Providers[0]} {
		fields := reflect.ValueOf(v)
		for i := range fields.NumField() {
			require.False(t, fields.Field(i).IsZero(), "%T.%s", v, fields.Type().Field(i).Name)
		}
	}
}

func TestLinksOfThePageLeadToWhatIsThere(t *testing.T) {
	text := pageText(t)
	for _, m := range regexp.MustCompile(`\]\(([^)]+)\)`).FindAllStringSubmatch(text, -1) {
		file, heading, _ := strings.Cut(m[1], "#")
		if file == "" {
			title := strings.ReplaceAll(heading, "-", " ")
			require.Contains(t, strings.ToLower(text), "\n## "+title+"\n")
			continue
		}
		_, err := os.Stat(filepath.Join(filepath.Dir(page), filepath.FromSlash(file)))
		require.NoError(t, err)
	}
}
