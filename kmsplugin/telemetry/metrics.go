package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"

	"github.com/kube-atrest/atrest/internal/hashed"
	"github.com/kube-atrest/atrest/kmsplugin"
)

// Metrics are those of one plugin, in a registry of their own. Every label has few values:
// names of operations, gRPC codes, and of key_ids the hash of the one that is announced.
type Metrics struct {
	registry *prometheus.Registry
	register prometheus.Registerer // with the name of the plugin, if it has one

	requests, calls         *prometheus.CounterVec   // by operation and code
	requestTimes, callTimes *prometheus.HistogramVec // by operation
	looks                   *prometheus.CounterVec   // by code
	opened                  *prometheus.CounterVec   // by reason
	announced               *prometheus.GaugeVec     // by hash of the key_id
	announcements           prometheus.Counter
	gone, refused           prometheus.Counter
	versions, well, looked  prometheus.Gauge
}

// buckets are the upper bounds of a time, in seconds: from a file in memory to the time after
// which an apiserver has given up.
var buckets = []float64{.0001, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 30}

// NewMetrics are of a plugin that has done nothing yet. Its name is the label plugin_instance of
// each of them, unless it is empty.
func NewMetrics(instance string) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry()}
	m.register = m.registry
	if instance != "" {
		m.register = prometheus.WrapRegistererWith(prometheus.Labels{"plugin_instance": instance}, m.registry)
	}
	m.requests = m.counters("requests_total", "Calls of apiservers that were answered, by method and gRPC code.", "method", "code")
	m.requestTimes = m.times("request_duration_seconds", "Time that calls of apiservers took, by method.", "method")
	m.calls = m.counters("backend_calls_total", "Calls of the back end that were answered or given up, by operation and gRPC code.", "operation", "code")
	m.callTimes = m.times("backend_call_duration_seconds", "Time that calls of the back end took, by operation.", "operation")
	m.looks = m.counters("polls_total", "Looks at the back end's versions, by gRPC code: OK if a version is announced and the last test DEK came back.", "code")
	m.opened = m.counters("sessions_opened_total", "Sessions that were opened and took over, by reason: start, credentials, ended.", "reason")
	m.announced = prometheus.NewGaugeVec(options("announced_info", "1 for the key_id that is announced, by the hash that apiservers show as key_id_hash."), []string{"key_id_hash"})
	m.register.MustRegister(m.announced)
	m.announcements = m.counters("announcements_total", "How often another key_id was announced, the first one included.").WithLabelValues()
	m.gone = m.counters("versions_gone_total", "Versions that unwrapped and do no more, meant or not.").WithLabelValues()
	m.refused = m.counters("connections_refused_total", "Clients that were turned away, as too many were connected.").WithLabelValues()
	m.versions = m.gauge("versions", "Versions of the key that unwrap.")
	m.well = m.gauge("healthy", "1 if at the last look a version was announced and a test DEK had come back, 0 if not.")
	m.looked = m.gauge("last_poll_timestamp_seconds", "When the back end was looked at last; 0 before the first look.")
	return m
}

func options(name, help string) prometheus.GaugeOpts {
	return prometheus.GaugeOpts{Namespace: "atrest", Subsystem: "kms_plugin", Name: name, Help: help}
}

func (m *Metrics) counters(name, help string, labels ...string) *prometheus.CounterVec {
	vec := prometheus.NewCounterVec(prometheus.CounterOpts(options(name, help)), labels)
	m.register.MustRegister(vec)
	return vec
}

func (m *Metrics) times(name, help, label string) *prometheus.HistogramVec {
	o := options(name, help)
	vec := prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: o.Namespace, Subsystem: o.Subsystem, Name: o.Name, Help: o.Help, Buckets: buckets}, []string{label})
	m.register.MustRegister(vec)
	return vec
}

func (m *Metrics) gauge(name, help string) prometheus.Gauge {
	gauge := prometheus.NewGauge(options(name, help))
	m.register.MustRegister(gauge)
	return gauge
}

// Observer counts what it is told. It is for one [kmsplugin.Keeper] and one [kmsplugin.Server].
func (m *Metrics) Observer() kmsplugin.Observer {
	return kmsplugin.Observer{
		Called:   func(c kmsplugin.Call) { count(m.calls, m.callTimes, c) },
		Answered: func(c kmsplugin.Call) { count(m.requests, m.requestTimes, c) },
		Looked:   m.look,
		Opened:   func(why kmsplugin.Reason) { m.opened.WithLabelValues(string(why)).Inc() },
		Refused:  m.refused.Inc,
	}
}

func count(calls *prometheus.CounterVec, times *prometheus.HistogramVec, c kmsplugin.Call) {
	calls.WithLabelValues(c.Operation, codeName(c.Code)).Inc()
	times.WithLabelValues(c.Operation).Observe(c.Took.Seconds())
}

// codeName is one of seventeen names: a back end may return a status with any number.
func codeName(code codes.Code) string {
	if code > codes.Unauthenticated {
		return codes.Unknown.String()
	}
	return code.String()
}

func (m *Metrics) look(l kmsplugin.Look) {
	m.looks.WithLabelValues(codeName(l.Code)).Inc()
	m.looked.Set(float64(l.At.UnixMilli()) / 1000)
	m.versions.Set(float64(l.Versions))
	m.gone.Add(float64(len(l.Gone)))
	well := 0.
	if l.Code == codes.OK {
		well = 1
	}
	m.well.Set(well)
	if l.Announced {
		m.announcements.Inc()
		m.announced.Reset()
		m.announced.WithLabelValues(hashed.ID(l.KeyID)).Set(1)
	}
}
