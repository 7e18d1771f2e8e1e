package outage

import (
	"context"
	"sync/atomic"

	"k8s.io/apiserver/pkg/storage/value"
)

// failure marks the error of an outage, so that it is known again wherever the
// storage keeps the chain of errors. It reads like its cause.
type failure struct{ cause error }

func (f *failure) Error() string { return f.cause.Error() }

func (f *failure) Unwrap() error { return f.cause }

// note is the first outage that a request met, for where the storage makes a
// text of the errors, or forgets them.
type note struct{ first atomic.Pointer[failure] }

type noteKey struct{}

// noting gives a context under which outages are noted.
func noting(ctx context.Context) (context.Context, *note) {
	n := &note{}
	return context.WithValue(ctx, noteKey{}, n), n
}

// marking marks outages, and notes them if the request has a note.
type marking struct{ value.Transformer }

// TransformFromStorage reads with the wrapped transformer.
func (m marking) TransformFromStorage(ctx context.Context, data []byte, at value.Context) ([]byte, bool, error) {
	out, stale, err := m.Transformer.TransformFromStorage(ctx, data, at)
	if err != nil {
		err = marked(ctx, err)
	}
	return out, stale, err
}

// TransformToStorage writes with the wrapped transformer.
func (m marking) TransformToStorage(ctx context.Context, data []byte, at value.Context) ([]byte, error) {
	out, err := m.Transformer.TransformToStorage(ctx, data, at)
	if err != nil {
		err = marked(ctx, err)
	}
	return out, err
}

func marked(ctx context.Context, err error) error {
	if !is(err) {
		return err
	}
	f := &failure{err}
	if n, ok := ctx.Value(noteKey{}).(*note); ok {
		n.first.CompareAndSwap(nil, f)
	}
	return f
}
