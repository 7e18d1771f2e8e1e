package kmsv1

import (
	"context"
	"sync/atomic"

	"k8s.io/apiserver/pkg/storage/value"

	"github.com/kube-atrest/atrest/internal/erase"
	"github.com/kube-atrest/atrest/internal/redact"
	"github.com/kube-atrest/atrest/transformer"
)

const dekSize = 32 // bytes, of a DEK made here; one of 16 or 24 is read

// dek is an unwrapped DEK. It belongs to one value. Safe for concurrent use.
type dek struct {
	redact.As
	gcm transformer.Provider
	// cbc opens a value that was written before Kubernetes v1.25. It is nil
	// from when the DEK is known to be that of an AES-GCM value.
	cbc atomic.Pointer[transformer.Provider]
	// proven is set once it has opened its value: until then the plugin may
	// have answered with another key.
	proven atomic.Bool
}

// newDEK makes the DEK of a value that is to be written. The secret is not kept.
func newDEK(secret []byte) (*dek, error) {
	d := &dek{As: "DEK"}
	d.proven.Store(true)
	var err error
	erase.Do(func() { d.gcm, err = transformer.NewAESGCM(secret) })
	return d, err
}

// newStoredDEK makes the DEK of a value that was stored, at a time unknown.
func newStoredDEK(secret []byte) (*dek, error) {
	d, err := newDEK(secret)
	if err != nil {
		return nil, err
	}
	var cbc transformer.Provider
	erase.Do(func() { cbc, err = transformer.NewAESCBC(secret) })
	d.cbc.Store(&cbc)
	d.proven.Store(false)
	return d, err
}

// open decrypts the data of a record and reports whether it did so as AES-CBC.
// The error says that it did not open and nothing more.
func (d *dek) open(ctx context.Context, data []byte, at value.Context) (plaintext []byte, asCBC bool, err error) {
	cbc := d.cbc.Load()
	plaintext, _, err = d.gcm.Open(ctx, data, at)
	if cbc == nil {
		return plaintext, false, err
	}
	if err == nil {
		d.cbc.Store(nil)
		return plaintext, false, nil
	}
	plaintext, _, err = (*cbc).Open(ctx, data, at)
	return plaintext, err == nil, err
}
