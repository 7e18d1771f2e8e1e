package providers

import (
	"bytes"
	"context"
	"hash/maphash"
	"iter"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/envelope"
	"github.com/kube-atrest/atrest/internal/stored"
)

// warmAtOnce is how many DEKs are unwrapped at once by [Transformers.Warm], of all
// plugins and for all callers together.
const warmAtOnce = 32

// Warm has the DEKs of stored values unwrapped ahead of those who read them one
// after another, 32 at a time, and returns how many it asked for when
// all are there. A value that is of no KMS v2 provider is passed over, and what
// cannot be unwrapped is left to its reader. values may reuse what it yields.
// What it holds depends on the number of DEKs, not of values.
func (t *Transformers) Warm(ctx context.Context, values iter.Seq[[]byte]) int {
	asked := map[uint64]struct{}{}
	seed := maphash.MakeSeed()
	var under sync.WaitGroup
	defer under.Wait()
	for value := range values {
		provider, payload := t.kmsV2Of(value)
		if provider == nil {
			continue
		}
		_, tail, _ := stored.Split(payload)
		id := maphash.Bytes(seed, tail)
		if _, known := asked[id]; known {
			continue
		}
		unwrap := provider.Warm(payload)
		if unwrap == nil {
			continue
		}
		asked[id] = struct{}{}
		select {
		case t.warming <- struct{}{}:
		case <-ctx.Done():
			return len(asked)
		}
		under.Go(func() {
			defer func() { <-t.warming }()
			_ = unwrap(ctx) // its reader asks again, and is told
		})
	}
	return len(asked)
}

// kmsV2Of is the KMS v2 provider that a value was stored with, and its payload.
func (t *Transformers) kmsV2Of(value []byte) (*envelope.Provider, []byte) {
	if !bytes.HasPrefix(value, []byte(stored.KMSv2.Prefix)) {
		return nil, nil
	}
	for _, u := range t.plugins {
		source, ok := u.source.(v2)
		if !ok {
			continue
		}
		for _, p := range u.providers {
			if payload, ok := bytes.CutPrefix(value, []byte(stored.KMSv2.PrefixFor(p.KMS().Name))); ok {
				return source.Provider, payload
			}
		}
	}
	return nil, nil
}

// ReadsKMS reports whether values of a resource may be of a KMS v2 provider.
func (t *Transformers) ReadsKMS(resource schema.GroupResource) bool {
	return slices.ContainsFunc(t.configuration.For(resource), func(p *config.Provider) bool { return p.Kind() == config.KMSv2 })
}
