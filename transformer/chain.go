package transformer

import (
	"context"
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage/value"

	"github.com/kube-atrest/atrest/internal/metrics"
	"github.com/kube-atrest/atrest/internal/tally"
)

// Entry is a provider and where a chain uses it.
type Entry struct {
	// Prefix is all that stands before the provider's payload, key or provider
	// name and last colon included. It is empty for identity, which then has
	// every value to look at.
	Prefix string
	// Label is the metrics' transformer_prefix: the format's prefix without the
	// name, or "identity". Many entries may share it.
	Label string
	// Provider seals and opens the payload.
	Provider Provider
	// Reads counts the values that the entry opened, if it is set.
	Reads *Reads
}

// Reads is a count of values that were opened. The zero value is one at zero.
// Safe for concurrent use.
type Reads struct{ count tally.Counter }

// Load is the count so far, which never is less than it was before.
func (r *Reads) Load() uint64 { return r.count.Load() }

// Chain is the transformer of one resource. It writes with its first entry and
// reads with any: the entries whose prefix a value has are tried in order until
// one opens it. A value is stale if it was not the first entry that did, or if
// the provider says so.
//
// A Chain never changes and is safe for concurrent use. It neither modifies nor
// keeps what it is given, and does not keep what it returns; identity returns
// its input. Errors name the resource, the etcd key and the key or provider the
// value was stored with, never a byte of the value.
type Chain struct {
	resource *schema.GroupResource
	links    []link
	write    *metrics.Operation
	unknown  *metrics.Operation
}

var _ value.Transformer = (*Chain)(nil)

// link is an Entry, ready for use.
type link struct {
	prefix   string
	provider Provider
	read     *metrics.Operation
	reads    *Reads
}

// opened counts a read begun at start.
func (l *link) opened(at tally.Spot, start metrics.Moment) {
	l.read.Record(at, start, nil)
	if l.reads != nil {
		l.reads.count.Add(at)
	}
}

func (l *link) matches(data []byte) bool {
	return len(data) >= len(l.prefix) && string(data[:len(l.prefix)]) == l.prefix
}

// NewChain builds the chain of resource, whose first entry writes. A chain of
// no entries refuses every read and write with [ErrNoProvider].
func NewChain(resource schema.GroupResource, entries []Entry) *Chain {
	c := &Chain{
		resource: &resource,
		links:    make([]link, len(entries)),
		unknown:  metrics.NewOperation(&resource, metrics.FromStorage, metrics.PrefixUnknown),
	}
	for i, e := range entries {
		c.links[i] = link{
			prefix:   e.Prefix,
			provider: e.Provider,
			reads:    e.Reads,
			read:     metrics.NewOperation(&resource, metrics.FromStorage, e.Label),
		}
	}
	if len(entries) > 0 {
		c.write = metrics.NewOperation(&resource, metrics.ToStorage, entries[0].Label)
	}
	return c
}

// TransformToStorage seals data with the first entry.
func (c *Chain) TransformToStorage(ctx context.Context, data []byte, at value.Context) ([]byte, error) {
	if len(c.links) == 0 {
		return nil, c.sealError("no provider", at, ErrNoProvider)
	}
	start := metrics.Now()
	first := &c.links[0]
	out, err := first.provider.Seal(ctx, first.prefix, data, at)
	c.write.Record(tally.SpotOf(at), start, err)
	if err != nil {
		return nil, c.sealError(first.name(), at, err)
	}
	return out, nil
}

// TransformFromStorage opens data with the first entry that has its prefix and
// can. If none has, the error is [ErrNoProvider]; if none can, it wraps what
// each of them answered: [ErrCorrupt], or what kept a KMS plugin from answering.
func (c *Chain) TransformFromStorage(ctx context.Context, data []byte, at value.Context) ([]byte, bool, error) {
	start := metrics.Now()
	var tried *link
	var causes []error
	for i := range c.links {
		l := &c.links[i]
		if !l.matches(data) {
			continue
		}
		out, stale, err := l.provider.Open(ctx, data[len(l.prefix):], at)
		if err == nil {
			l.opened(tally.SpotOf(at), start)
			return out, stale || i != 0, nil
		}
		if l.prefix == "" {
			continue // identity refuses what is encrypted: the value is for another entry
		}
		if tried == nil {
			tried = l
		}
		causes = append(causes, err)
	}
	return nil, false, c.readError(start, data, at, tried, causes)
}

// readError counts a read that failed, and describes it.
func (c *Chain) readError(start metrics.Moment, data []byte, at value.Context, tried *link, causes []error) error {
	if tried == nil {
		err := c.noProviderError(data, at)
		c.unknown.Record(tally.SpotOf(at), start, err)
		return err
	}
	err := c.openError(data, at, causes)
	tried.read.Record(tally.SpotOf(at), start, err)
	return err
}

// String names the resource and the prefixes.
func (c *Chain) String() string { return fmt.Sprintf("%s: %s", c.resource, c.configured()) }

// Format is the same as String under every verb, and so reaches no key.
func (c *Chain) Format(s fmt.State, _ rune) { _, _ = io.WriteString(s, c.String()) }
