// Package faults holds the library to docs/operations.md: every row of that
// page is a test here, against a plugin whose every answer can be spoiled and
// on a clock that stands still. Beside it stand a simulation with a model, and
// reloads under load.
package faults

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kube-atrest/atrest/internal/hashed"
	"github.com/stretchr/testify/require"
	"k8s.io/component-base/metrics/legacyregistry"

	dto "github.com/prometheus/client_model/go"
)

// row is a row of the operations page: what stands in its columns "What is
// seen" and "What goes on", and the test that shows it.
type row struct {
	id string
	// seen is the column as it stands there. What is in backticks has to be
	// found by the test's look.
	seen   string
	goesOn string
	test   func(*trial)
}

// trial is one run of a row's test.
type trial struct {
	*testing.T
	row
	before counts // what others counted in this process
	looked bool
}

var rows = slices.Concat(writerRows(), readingRows, readerRows(), startRows, reloadRows, keyRows)

func TestOperations(t *testing.T) {
	for _, r := range rows {
		t.Run(r.id, func(t *testing.T) {
			t.Parallel()
			trial := &trial{T: t, row: r, before: countsNow(t)}
			r.test(trial)
			require.True(t, trial.looked, "the test never looks at what is seen")
		})
	}
}

// look holds what s shows at this moment to the row.
func (t *trial) look(s *server) {
	t.Helper()
	t.looked = true
	missing := ""
	require.Eventually(t, func() bool {
		shown := s.shown(t)
		for _, fragment := range quoted(t.seen) {
			if !strings.Contains(shown, fragment) {
				missing = fragment + "\nis not in\n" + shown
				return false
			}
		}
		return true
	}, patience, tick, "%s", lazy(func() string { return missing }))
}

// lazy is a text that is made when it is needed.
type lazy func() string

func (l lazy) String() string { return l() }

// shown is all that an operator can look at: the check's text, the state as
// JSON, the metrics and the log.
func (s *server) shown(t *trial) string {
	check := "ok"
	if err := s.check(); err != nil {
		check = err.Error()
	}
	state, err := json.Marshal(s.Status())
	require.NoError(t, err)
	return strings.Join([]string{"kms-providers: " + check, string(state), s.metrics(t, t.id, t.before), s.log.String()}, "\n")
}

// counts are what every counter and histogram of the process has counted, by its
// series.
type counts map[string]float64

func countsNow(t testing.TB) counts {
	now := counts{}
	for _, f := range gathered(t) {
		for _, m := range f.GetMetric() {
			now[seriesOf(f, m)] = counted(m)
		}
	}
	return now
}

func gathered(t testing.TB) []*dto.MetricFamily {
	families, err := legacyregistry.DefaultGatherer.Gather()
	require.NoError(t, err)
	return families
}

func seriesOf(f *dto.MetricFamily, m *dto.Metric) string {
	return f.GetName() + fmt.Sprint(m.GetLabel())
}

func counted(m *dto.Metric) float64 {
	return m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
}

// metrics are those of the server and of its providers, whose names begin
// with provider, and what is counted is so since before. Labels that only say whose
// they are are left out.
func (s *server) metrics(t testing.TB, provider string, before counts) string {
	families := gathered(t)
	server := hashed.ID(s.name)
	var lines []string
	for _, f := range families {
		for _, m := range f.GetMetric() {
			ours, labels := false, []string{}
			for _, l := range m.GetLabel() {
				switch value := l.GetValue(); l.GetName() {
				case "provider_name", "transformer_prefix":
					ours = ours || strings.HasPrefix(strings.TrimPrefix(value, "k8s:enc:kms:v2:"), provider)
				case "apiserver_id_hash":
					ours = ours || value == server
				case "key_id_hash", "resource", "transformation_type":
				default:
					labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), value))
				}
			}
			if ours {
				value := m.GetGauge().GetValue() + counted(m) - before[seriesOf(f, m)]
				lines = append(lines, fmt.Sprintf("%s{%s} %v", f.GetName(), strings.Join(labels, ","), value))
			}
		}
	}
	return strings.Join(lines, "\n")
}
