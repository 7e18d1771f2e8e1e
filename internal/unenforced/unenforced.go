// Package unenforced has kube-apiserver's own transformers run as they would in
// a process of their own. Under GODEBUG=fips140=only the Go runtime refuses
// their AES-GCM, which takes its nonces from outside, and a test of this library
// in that mode has nothing to compare with.
//
// What they are made with is made inside of [fips140.WithoutEnforcement]. It is
// for tests alone.
package unenforced

import (
	"context"
	"crypto/fips140"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage/value"
)

// Resources is r with each of its transformers a [Transformer].
func Resources(r value.ResourceTransformers) value.ResourceTransformers { return resources{r} }

type resources struct{ value.ResourceTransformers }

func (r resources) TransformerForResource(resource schema.GroupResource) value.Transformer {
	return Transformer(r.ResourceTransformers.TransformerForResource(resource))
}

// Transformer is t without the enforcement of FIPS 140-only mode.
func Transformer(t value.Transformer) value.Transformer { return transformer{t} }

type transformer struct{ value.Transformer }

func (u transformer) TransformFromStorage(ctx context.Context, data []byte, at value.Context) (out []byte, stale bool, err error) {
	fips140.WithoutEnforcement(func() { out, stale, err = u.Transformer.TransformFromStorage(ctx, data, at) })
	return out, stale, err
}

func (u transformer) TransformToStorage(ctx context.Context, data []byte, at value.Context) (out []byte, err error) {
	fips140.WithoutEnforcement(func() { out, err = u.Transformer.TransformToStorage(ctx, data, at) })
	return out, err
}
