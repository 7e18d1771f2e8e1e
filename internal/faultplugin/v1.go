package faultplugin

import (
	"context"
	"encoding/base64"
	"sync/atomic"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// V1 is a KMS v1 plugin in memory, as envelope/kmsv1 calls one. Its wrapping is
// base64, that of the golden records. The zero value is well.
type V1 struct {
	// Wrap and Unwrap answer instead, when they are set.
	Wrap, Unwrap func([]byte) ([]byte, error)
	// Encrypts, Decrypts and Closes count the calls.
	Encrypts, Decrypts, Closes atomic.Int64
}

// Encrypt wraps.
func (p *V1) Encrypt(_ context.Context, dek []byte) ([]byte, error) {
	p.Encrypts.Add(1)
	if p.Wrap != nil {
		return p.Wrap(dek)
	}
	return []byte(base64.StdEncoding.EncodeToString(dek)), nil
}

// Decrypt unwraps.
func (p *V1) Decrypt(_ context.Context, wrapped []byte) ([]byte, error) {
	p.Decrypts.Add(1)
	if p.Unwrap != nil {
		return p.Unwrap(wrapped)
	}
	dek, err := base64.StdEncoding.Strict().DecodeString(string(wrapped))
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, "not wrapped here")
	}
	return dek, nil
}

// Wake never says anything: a plugin in memory has no connection.
func (*V1) Wake() <-chan struct{} { return nil }

// Close is counted.
func (p *V1) Close() error {
	p.Closes.Add(1)
	return nil
}
