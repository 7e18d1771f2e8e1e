package telemetry

import (
	"context"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/kube-atrest/atrest/internal/hashed"
	"github.com/kube-atrest/atrest/kmsplugin"
)

const keyID = "0f3a914e21c06c8fd2f2ab64bd7ac9d10f3a914e21c06c8fd2f2ab64bd7ac9d1"

// used are metrics of which each has a value.
func used() *Metrics {
	m := NewMetrics("")
	o := m.Observer()
	for _, operation := range []string{"open", "versions", "wrap", "unwrap"} {
		o.Called(kmsplugin.Call{Operation: operation, Took: time.Millisecond})
	}
	o.Answered(kmsplugin.Call{Operation: "Encrypt", Took: 2 * time.Millisecond})
	o.Answered(kmsplugin.Call{Operation: "Encrypt", Code: codes.Unavailable, Took: time.Second})
	o.Opened(kmsplugin.AtStart)
	o.Looked(kmsplugin.Look{At: time.Unix(1700000000, 5e8), KeyID: keyID, Announced: true, Versions: 3})
	o.Refused()
	return m
}

func gathered(t *testing.T, m *Metrics) map[string]*dto.MetricFamily {
	t.Helper()
	families, err := m.registry.Gather()
	require.NoError(t, err)
	all := map[string]*dto.MetricFamily{}
	for _, f := range families {
		all[f.GetName()] = f
	}
	return all
}

func TestEveryMetricHasHelpAndIsOnThePage(t *testing.T) {
	page, err := os.ReadFile("../../docs/operations.md")
	require.NoError(t, err)
	families := gathered(t, used())
	for name, f := range families {
		require.True(t, strings.HasPrefix(name, "atrest_kms_plugin_"), name)
		require.NotEmpty(t, f.GetHelp(), name)
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, l.GetName())
		}
		if labels == nil {
			labels = []string{"none"}
		}
		require.Condition(t, func() bool {
			for line := range strings.Lines(string(page)) {
				cells := strings.Split(line, " | ")
				if cells[0] == "| `"+name+"`" {
					return len(cells) == 3 && sameLabels(cells[1], labels)
				}
			}
			return false
		}, "no row for %s with labels %v", name, labels)
	}
	for line := range strings.Lines(string(page)) {
		if name, ok := strings.CutPrefix(line, "| `atrest_kms_plugin_"); ok {
			name, _, _ = strings.Cut("atrest_kms_plugin_"+name, "`")
			require.Contains(t, families, name, "it is on the page alone")
		}
	}
}

func sameLabels(cell string, labels []string) bool {
	on := map[string]bool{}
	for l := range strings.SplitSeq(cell, ", ") {
		on[l] = true
	}
	for _, l := range labels {
		if !on[l] {
			return false
		}
	}
	return len(on) == len(labels)
}

func TestMetricsTellWhatTheyWereTold(t *testing.T) {
	m := used()
	value := func(name string) float64 {
		metric := gathered(t, m)["atrest_kms_plugin_"+name].GetMetric()
		require.Len(t, metric, 1)
		return metric[0].GetGauge().GetValue() + metric[0].GetCounter().GetValue()
	}
	require.EqualValues(t, 1, value("healthy"))
	require.EqualValues(t, 3, value("versions"))
	require.EqualValues(t, 1700000000.5, value("last_poll_timestamp_seconds"))
	require.EqualValues(t, 1, value("announcements_total"))
	require.EqualValues(t, 1, value("connections_refused_total"))
	require.Len(t, gathered(t, m)["atrest_kms_plugin_requests_total"].GetMetric(), 2)

	look := m.Observer().Looked
	look(kmsplugin.Look{Code: codes.PermissionDenied, KeyID: keyID, Versions: 2, Gone: make([]kmsplugin.Version, 1)})
	require.Zero(t, value("healthy"))
	require.EqualValues(t, 1, value("versions_gone_total"))
	require.EqualValues(t, 1, value("announcements_total"))
	look(kmsplugin.Look{KeyID: "another", Announced: true, Versions: 2})
	announced := gathered(t, m)["atrest_kms_plugin_announced_info"].GetMetric()
	require.Len(t, announced, 1, "the former one is gone")
	require.Equal(t, hashed.ID("another"), announced[0].GetLabel()[0].GetValue())
}

// A back end may return any number as a code, and a name of it must not make a series.
func TestLabelsHaveFewValues(t *testing.T) {
	m := NewMetrics("")
	for code := range codes.Code(1000) {
		m.Observer().Called(kmsplugin.Call{Operation: "wrap", Code: code})
		m.Observer().Looked(kmsplugin.Look{KeyID: code.String(), Announced: true, Code: code})
	}
	families := gathered(t, m)
	require.Len(t, families["atrest_kms_plugin_backend_calls_total"].GetMetric(), 17)
	require.Len(t, families["atrest_kms_plugin_polls_total"].GetMetric(), 17)
	require.Len(t, families["atrest_kms_plugin_announced_info"].GetMetric(), 1)
}

func TestNoKeyIDIsServedInTheClear(t *testing.T) {
	answer := httptest.NewRecorder()
	used().Handler(fixed{}).ServeHTTP(answer, httptest.NewRequestWithContext(context.Background(), "GET", "/metrics", nil))
	require.Equal(t, 200, answer.Code)
	require.Contains(t, answer.Body.String(), hashed.ID(keyID))
	require.NotContains(t, answer.Body.String(), keyID)
}

// A plugin that does nothing yet has the counters whose growth is an alert.
func TestWhatIsAlertedOnIsThereFromTheStart(t *testing.T) {
	families := gathered(t, NewMetrics(""))
	for _, name := range []string{"healthy", "versions_gone_total", "connections_refused_total", "last_poll_timestamp_seconds", "announcements_total"} {
		require.Contains(t, families, "atrest_kms_plugin_"+name)
	}
}

// Two plugins on a host are told apart by it.
func TestEachMetricNamesItsPlugin(t *testing.T) {
	m := NewMetrics("secrets-a")
	m.Observer().Called(kmsplugin.Call{Operation: "wrap"})
	m.Observer().Answered(kmsplugin.Call{Operation: "Encrypt"})
	m.Observer().Looked(kmsplugin.Look{KeyID: keyID, Announced: true})
	for name, family := range gathered(t, m) {
		for _, metric := range family.GetMetric() {
			named := map[string]string{}
			for _, label := range metric.GetLabel() {
				named[label.GetName()] = label.GetValue()
			}
			require.Equal(t, "secrets-a", named["plugin_instance"], name)
		}
	}
}
