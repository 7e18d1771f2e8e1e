package snapshot

import (
	"bytes"
	"context"
	"io"
)

// Of is a file that is not on a disk.
func Of(ctx context.Context, content []byte) (*File, error) {
	return OfReader(ctx, bytes.NewReader(content), int64(len(content)))
}

// OfReader is a file of a size that is read from elsewhere.
func OfReader(ctx context.Context, content io.ReaderAt, size int64) (*File, error) {
	f := &File{path: "memory", file: content, close: func() error { return nil }}
	return f, f.check(ctx, size)
}

// Unpack unpacks with a limit, and closes what comes of it.
func Unpack(ctx context.Context, content io.ReaderAt, size, limit int64) error {
	unpacked, err := unpacked(ctx, content, size, limit)
	if unpacked != nil {
		_ = unpacked.remove()
	}
	return err
}
