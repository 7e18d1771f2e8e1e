package metrics

import (
	"slices"
	"sync"
	"time"
	"weak"

	"github.com/kube-atrest/atrest/internal/tally"
)

// counts are those of one Operation on their way into the registry. They last
// until its end and one [Flush] more, so that nothing that was counted is lost.
type counts struct {
	kind
	owner     weak.Pointer[Operation]
	succeeded tally.Counter
	latency   *latency
}

// latency is of a direction and a prefix, as in kube-apiserver: not by resource.
type latency struct {
	*tally.Histogram
	users int // of all
}

// counted are the counts of this process that are not in the registry yet.
var counted struct {
	sync.Mutex
	all     []*counts
	latency map[kind]*latency // without a resource
}

// begin gives the Operation its counts.
func (o *Operation) begin() *counts {
	counted.Lock()
	defer counted.Unlock()
	if c := o.counts.Load(); c != nil {
		return c
	}
	c := &counts{kind: o.kind, owner: weak.Make(o), latency: latencyOf(kind{direction: o.direction, prefix: o.prefix})}
	c.latency.users++
	counted.all = append(counted.all, c)
	o.counts.Store(c)
	return c
}

func latencyOf(k kind) *latency {
	if counted.latency == nil {
		counted.latency = map[kind]*latency{}
	}
	l, ok := counted.latency[k]
	if !ok {
		l = &latency{Histogram: tally.NewHistogram()}
		counted.latency[k] = l
	}
	return l
}

// Flush brings what the operations of this process have counted into the
// registry, and lets the counts go of those that are no more. It is for calling
// every few seconds.
func Flush() {
	counted.Lock()
	defer counted.Unlock()
	counted.all = slices.DeleteFunc(counted.all, (*counts).flush)
	for k, l := range counted.latency {
		l.flush(k)
		if l.users == 0 {
			delete(counted.latency, k)
		}
	}
}

// flush reports whether these were the last of their Operation. That is looked
// at first: an Operation that is gone by then counts nothing afterwards.
func (c *counts) flush() bool {
	gone := c.owner.Value() == nil
	if n := c.succeeded.Take(); n > 0 {
		c.total("OK").Add(float64(n))
	}
	if gone {
		c.latency.users--
	}
	return gone
}

func (l *latency) flush(k kind) {
	l.Take(func(n uint64, mean time.Duration) {
		in := transformations().latency.WithLabelValues(string(k.direction), k.prefix)
		for range n {
			in.Observe(mean.Seconds())
		}
	})
}
