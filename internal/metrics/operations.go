// Package metrics records what the library does, under kube-apiserver's names
// wherever the meaning is the same, so that dashboards and alerts carry over.
//
// A binary that links k8s.io/apiserver has kube-apiserver's encryption metrics
// in the legacy registry already, and a name can be registered once. So a
// metric of that name is adopted when it is there and registered when it is not.
package metrics

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
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

// kind is what an Operation counts.
type kind struct {
	resource  *schema.GroupResource
	direction Direction
	prefix    string
}

// Operation counts and times one kind of transformation of one resource. One
// that never succeeded holds no counts, and nothing is kept of one that is let
// go: servers have resources that come and go. Safe for concurrent use.
type Operation struct {
	kind
	counts atomic.Pointer[counts] // nil before the first success
}

// NewOperation gives an Operation of a resource, a direction and the stored
// prefix of a provider ([PrefixIdentity] and [PrefixUnknown] stand for none).
// Several of the same are added up. The resource may be shared, and not change.
func NewOperation(resource *schema.GroupResource, d Direction, prefix string) *Operation {
	return &Operation{kind: kind{resource: resource, direction: d, prefix: prefix}}
}

// Record counts, at a spot, an operation begun at start that ended now. Only
// successes are timed, as in kube-apiserver.
func (o *Operation) Record(at tally.Spot, start Moment, err error) {
	if err != nil {
		o.kind.total(codeOf(err)).Inc()
		return
	}
	c := o.counts.Load()
	if c == nil {
		c = o.begin()
	}
	c.succeeded.Add(at)
	c.latency.Observe(at, time.Duration(Now()-start))
	runtime.KeepAlive(o) // until it has counted: see Flush
}

// total is the number of operations that ended with a status, in the registry.
func (k kind) total(status string) metrics.CounterMetric {
	return transformations().operations.WithLabelValues(k.resource.String(), string(k.direction), k.prefix, status)
}

// Moment is a reading of the monotonic clock. Reading that alone takes half the
// time of time.Now, which reads the wall clock too.
type Moment time.Duration

var epoch = time.Now()

// Now is the present moment.
func Now() Moment { return Moment(time.Since(epoch)) }

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
