package envelope

import (
	"bytes"
	"context"

	"github.com/kube-atrest/atrest/internal/stored"
)

// Warm gives what there is to do so that the stored object in payload can be
// read without a call to the plugin: a function that has its DEK unwrapped, or
// nil when the DEK is held already or payload is no stored object. Neither Warm
// nor the function keeps payload.
func (p *Provider) Warm(payload []byte) func(context.Context) error {
	_, tail, ok := stored.Split(payload)
	if ok && p.known(p.writer.now.Load(), tail) != nil {
		return nil
	}
	object, err := stored.Parse(payload)
	if err != nil {
		return nil
	}
	source, raw := object.Source, bytes.Clone(rawTail(payload, &object))
	if p.cache.findSource(&source, raw) != nil {
		return nil
	}
	return func(ctx context.Context) error {
		_, err := p.unwrap(ctx, &source, raw)
		return err
	}
}
