package atrest_test

import (
	"crypto/rand"
	"os"
	"slices"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/kube-atrest/atrest/envelope"
	"github.com/kube-atrest/atrest/internal/faultplugin"
	"github.com/kube-atrest/atrest/reload"
)

// seriesOf are the label values of a metric that are told of the apiserver of
// these tests.
func seriesOf(t *testing.T, metric, label string) []string {
	families, err := legacyregistry.DefaultGatherer.Gather()
	require.NoError(t, err)
	var found []string
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == metric && labelOf(m, "apiserver_id_hash") == envelope.HashKeyID("test-apiserver") { // a hash is a hash
				found = append(found, labelOf(m, label))
			}
		}
	}
	return found
}

// gaugesOf are the states that the metrics tell of a provider.
func gaugesOf(t *testing.T, provider string) map[string]float64 {
	families, err := legacyregistry.DefaultGatherer.Gather()
	require.NoError(t, err)
	found := map[string]float64{}
	for _, f := range families {
		if f.GetType() != dto.MetricType_GAUGE {
			continue
		}
		for _, m := range f.GetMetric() {
			if labelOf(m, "provider_name") == provider {
				found[f.GetName()] = m.GetGauge().GetValue()
			}
		}
	}
	return found
}

func TestTheMetricsTellOfThisApiserverWhatIsInUse(t *testing.T) {
	const configInfo = "apiserver_encryption_config_controller_last_config_info"
	p := faultplugin.Start(t)
	first, second := configuration(p, "secrets"), configuration(p, "configmaps")
	path, put := place(t, first)
	o := optionsFor(path)
	clock := fakeTime(o)
	e := start(t, o)
	require.Equal(t, []string{reload.Hash([]byte(first))}, seriesOf(t, configInfo, "hash"))
	stored(t, e, secrets)
	stepUntil(t, clock, func() bool {
		return len(seriesOf(t, "apiserver_envelope_encryption_key_id_hash_total", "key_id_hash")) > 0
	})
	require.Contains(t, seriesOf(t, "apiserver_envelope_encryption_key_id_hash_total", "key_id_hash"), envelope.HashKeyID("1"))

	follow(t, e)
	put(second)
	stepUntil(t, clock, func() bool { return uses(e, second) })
	eventually(t, func() bool {
		return slices.Equal([]string{reload.Hash([]byte(second))}, seriesOf(t, configInfo, "hash"))
	})
}

func TestWhatIsReadAndWrittenIsCountedWithinSeconds(t *testing.T) {
	p, name := faultplugin.Start(t), "counted"+rand.Text()
	path, _ := place(t, fileOf(rule("secrets", kms(name, p.Endpoint()))))
	o := optionsFor(path)
	clock := fakeTime(o)
	e := start(t, o)
	_, _, err := read(t, e, stored(t, e, secrets))
	require.NoError(t, err)
	eventually(t, func() bool {
		clock.Step(2 * time.Second)
		return slices.Equal([]float64{1, 1}, operationsWith(t, "k8s:enc:kms:v2:"+name+":"))
	})
}

// operationsWith are how many values were read, and written, under a prefix.
func operationsWith(t *testing.T, prefix string) (counts []float64) {
	families, err := legacyregistry.DefaultGatherer.Gather()
	require.NoError(t, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "apiserver_storage_transformation_operations_total" && labelOf(m, "transformer_prefix") == prefix {
				counts = append(counts, m.GetCounter().GetValue())
			}
		}
	}
	return counts
}

func labelOf(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

const (
	healthyAlert = "atrest_kms_provider_healthy == 0"
	writesAlert  = "(atrest_kms_writes_until_timestamp_seconds > 0) - time() < 40"
)

// alertsOf are the two alerts of docs/operations.md on a plugin that fire for a
// provider.
func alertsOf(t *testing.T, provider string, now time.Time) (firing []string) {
	t.Helper()
	page, err := os.ReadFile("docs/operations.md")
	require.NoError(t, err)
	require.Contains(t, string(page), "- `"+healthyAlert+"`")
	require.Contains(t, string(page), "- `"+writesAlert+"`")
	gauges := gaugesOf(t, provider)
	if healthy, known := gauges["atrest_kms_provider_healthy"]; known && healthy == 0 {
		firing = append(firing, healthyAlert)
	}
	if until := gauges[writesUntil]; until > 0 && until-float64(now.UnixNano())/1e9 < 40 {
		firing = append(firing, writesAlert)
	}
	return firing
}

const writesUntil = "atrest_kms_writes_until_timestamp_seconds"

func TestAnAlertEndsWhenItsProviderIsRemoved(t *testing.T) {
	id := rand.Text() // the metrics are those of the process
	leaves, stays := "leaves"+id, "stays"+id
	p, q := faultplugin.Start(t), faultplugin.Start(t)
	both := fileOf(rule("secrets", kms(leaves, p.Endpoint()), kms(stays, q.Endpoint())))
	path, put := place(t, both)
	o := optionsFor(path)
	clock := fakeTime(o)
	e := start(t, o)
	follow(t, e)
	stored(t, e, secrets)
	stepUntil(t, clock, func() bool { return gaugesOf(t, leaves)[writesUntil] > 0 })
	require.NotEmpty(t, gaugesOf(t, stays))
	require.Empty(t, alertsOf(t, leaves, clock.Now()))

	// It goes at its worst.
	p.Kill()
	stepUntil(t, clock, func() bool { return gaugesOf(t, leaves)["atrest_kms_provider_healthy"] == 0 })
	clock.Step(2 * time.Minute) // in small steps it takes a busy machine too long
	stepUntil(t, clock, func() bool { return len(alertsOf(t, leaves, clock.Now())) == 2 })
	without := fileOf(rule("secrets", kms(stays, q.Endpoint()), aesgcm))
	put(without)
	stepUntil(t, clock, func() bool { return uses(e, without) })
	require.Empty(t, gaugesOf(t, leaves))

	until := gaugesOf(t, stays)[writesUntil]
	stepUntil(t, clock, func() bool { return gaugesOf(t, stays)[writesUntil] > until })
	require.Empty(t, gaugesOf(t, leaves), "nobody who still reads with it tells of it again")
	require.Empty(t, alertsOf(t, stays, clock.Now()))

	put(both)
	p.Serve()
	stepUntil(t, clock, func() bool { return uses(e, both) })
	stepUntil(t, clock, func() bool { return gaugesOf(t, leaves)[writesUntil] > 0 })
	stepUntil(t, clock, func() bool { return len(alertsOf(t, leaves, clock.Now())) == 0 })
}

// A server that is restarted in an outage has an alert too.
func TestAnAlertFiresForAPluginThatNeverCame(t *testing.T) {
	name := "never" + rand.Text()
	p := faultplugin.New(t)
	path, _ := place(t, fileOf(rule("secrets", kms(name, p.Endpoint()))))
	o := optionsFor(path)
	clock := fakeTime(o)
	follow(t, start(t, o))
	stepUntil(t, clock, func() bool { return len(alertsOf(t, name, clock.Now())) == 2 })
	p.Serve()
	stepUntil(t, clock, func() bool { return len(alertsOf(t, name, clock.Now())) == 0 })
}

// gauge is the value of a metric without labels.
func gauge(t *testing.T, name string) float64 {
	families, err := legacyregistry.DefaultGatherer.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	return -1
}
