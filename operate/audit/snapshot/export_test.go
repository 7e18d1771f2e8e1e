package snapshot

import (
	"bytes"
	"context"
)

// Of is a file that is not on a disk.
func Of(ctx context.Context, content []byte) (*File, error) {
	f := &File{path: "memory", file: bytes.NewReader(content), close: func() error { return nil }}
	return f, f.check(ctx, int64(len(content)))
}
