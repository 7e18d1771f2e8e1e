// Package metrics records what the library does, under kube-apiserver's names
// wherever the meaning is the same, so that dashboards and alerts carry over.
//
// A binary that links k8s.io/apiserver has kube-apiserver's encryption metrics
// in the legacy registry already, and a name can be registered once. So a
// metric of that name is adopted when it is there and registered when it is not.
package metrics

import (
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/kube-atrest/atrest/internal/tally"
)

// Direction is the label transformation_type.
type Direction string

// The two ways of a value.
const (
	FromStorage Direction = "from_storage"
	ToStorage   Direction = "to_storage"
)

// Values of the label transformer_prefix that are not a stored prefix.
const (
	PrefixIdentity = "identity"
	PrefixUnknown  = "unknown"
)

// adopt gives the collector that stands in the legacy registry under
// candidate's name, after registering candidate if there was none. A name
// taken by a metric of another shape leaves candidate unregistered: it still
// counts, and nothing shows it, which is better than an apiserver that does
// not start for a metric's sake.
func adopt[C metrics.Registerable](candidate C) C {
	err := legacyregistry.Register(candidate)
	var taken prometheus.AlreadyRegisteredError
	if errors.As(err, &taken) {
		if existing, ok := taken.ExistingCollector.(C); ok {
			return existing
		}
	}
	return candidate
}

// The metrics of kube-apiserver's storage layer. Help is part of a metric's
// identity in the registry and must be theirs to the letter.
var transformations = sync.OnceValue(func() (m struct {
	latency    *metrics.HistogramVec
	operations *metrics.CounterVec
}) {
	m.latency = adopt(metrics.NewHistogramVec(&metrics.HistogramOpts{
		Namespace: "apiserver", Subsystem: "storage",
		Name:           "transformation_duration_seconds",
		Help:           "Latencies in seconds of value transformation operations.",
		Buckets:        metrics.ExponentialBuckets(5e-6, 2, 25),
		StabilityLevel: metrics.ALPHA,
	}, []string{"transformation_type", "transformer_prefix"}))
	m.operations = adopt(metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: "apiserver", Subsystem: "storage",
		Name: "transformation_operations_total",
		Help: "Total number of transformations. Successful transformation will have a status 'OK' and a varied status " +
			"string when the transformation fails. The status, resource, and transformation_type fields can be used for " +
			"alerting purposes. For example, you can monitor for encryption/decryption failures using the " +
			"transformation_type (e.g., from_storage for decryption and to_storage for encryption). Additionally, these " +
			"fields can be used to ensure that the correct transformers are applied to each resource.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"resource", "transformation_type", "transformer_prefix", "status"}))
	return m
})

// Operation counts and times one kind of transformation of one resource. All
// who count the same share one, so that it costs a server memory once. Safe for
// concurrent use.
type Operation struct {
	kind
	succeeded *tally.Counter
	latency   *tally.Histogram // of the direction and prefix: not by resource
}

// kind is what an Operation counts.
type kind struct {
	resource, prefix string
	direction        Direction
}

// The operations of this process, by what they count. What they have counted
// goes into the registry by [Flush].
var operations struct {
	sync.Mutex
	byKind  map[kind]*Operation
	latency map[kind]*tally.Histogram // without a resource
}

// NewOperation gives the Operation of a resource, a direction and the stored
// prefix of a provider ([PrefixIdentity] and [PrefixUnknown] stand for none).
func NewOperation(resource schema.GroupResource, d Direction, prefix string) *Operation {
	operations.Lock()
	defer operations.Unlock()
	if operations.byKind == nil {
		operations.byKind, operations.latency = map[kind]*Operation{}, map[kind]*tally.Histogram{}
	}
	k := kind{resource: resource.String(), direction: d, prefix: prefix}
	o, ok := operations.byKind[k]
	if !ok {
		o = &Operation{kind: k, succeeded: tally.NewCounter(), latency: latencyOf(kind{direction: d, prefix: prefix})}
		operations.byKind[k] = o
	}
	return o
}

func latencyOf(k kind) *tally.Histogram {
	h, ok := operations.latency[k]
	if !ok {
		h = tally.NewHistogram()
		operations.latency[k] = h
	}
	return h
}

// Flush brings what the operations of this process have counted into the
// registry. It is for calling every few seconds.
func Flush() {
	operations.Lock()
	defer operations.Unlock()
	m := transformations()
	for k, o := range operations.byKind {
		if n := o.succeeded.Take(); n > 0 {
			m.operations.WithLabelValues(k.resource, string(k.direction), k.prefix, "OK").Add(float64(n))
		}
	}
	for k, h := range operations.latency {
		h.Take(func(n uint64, mean time.Duration) {
			child := m.latency.WithLabelValues(string(k.direction), k.prefix)
			for range n {
				child.Observe(mean.Seconds())
			}
		})
	}
}

// Moment is a reading of the monotonic clock. Reading that alone takes half the
// time of time.Now, which reads the wall clock too.
type Moment time.Duration

var epoch = time.Now()

// Now is the present moment.
func Now() Moment { return Moment(time.Since(epoch)) }

// Record counts an operation begun at start that ended now. Only successes
// are timed, as in kube-apiserver.
func (o *Operation) Record(start Moment, err error) {
	if err != nil {
		transformations().operations.WithLabelValues(o.resource, string(o.direction), o.prefix, codeOf(err)).Inc()
		return
	}
	at := tally.Pick()
	o.succeeded.Add(at)
	o.latency.Observe(at, time.Duration(Now()-start))
}

// codeOf is the label status: the gRPC code that a plugin answered with,
// however deep err wraps it, or kube-apiserver's word for everything else.
func codeOf(err error) string {
	if err == nil {
		return "OK"
	}
	var s interface{ GRPCStatus() *status.Status }
	if errors.As(err, &s) {
		return s.GRPCStatus().Code().String()
	}
	return "unknown-non-grpc"
}
