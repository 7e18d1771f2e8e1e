package audit

import (
	"context"
	"errors"
)

// ErrNotFound says that nothing is stored under an etcd key.
var ErrNotFound = errors.New("etcd has no such key")

// Entry is what stands under an etcd key.
type Entry struct {
	Value []byte
	// ModRevision is etcd's when it was written, and Cluster the id of the etcd
	// cluster.
	ModRevision int64
	Cluster     uint64
}

// Finder looks for one object. The error wraps [ErrNotFound] if it is not there.
type Finder interface {
	Find(ctx context.Context, key string) (Entry, error)
}
