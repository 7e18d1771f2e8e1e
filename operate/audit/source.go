package audit

import (
	"context"
	"errors"
	"iter"
)

// Source holds stored objects.
type Source interface {
	// Read begins a walk over every key that starts with prefix; "" is the start
	// of all. It is done with when the objects have been ranged over, to the end
	// or not.
	Read(ctx context.Context, prefix string) (*Contents, error)
}

// Store is a source in which single keys can be looked up.
type Store interface {
	Source
	// Find is what stands under a key now; the error wraps [ErrNotFound] if
	// nothing does.
	Find(ctx context.Context, key string) (Entry, error)
	// String names the store, for errors and reports.
	String() string
}

// ErrNotFound says that nothing is stored under a key.
var ErrNotFound = errors.New("no such key")

// Contents are the objects of a source as of one revision.
type Contents struct {
	// Cluster is the id of the etcd cluster that holds them, 0 if none is known:
	// a snapshot names none.
	Cluster uint64
	// Revision is etcd's, the same for all objects.
	Revision int64
	// Total is how many objects there are.
	Total int64
	// Objects are each of them, once, in any order, and may be ranged over once.
	// An error ends the walk, and is the last thing that comes.
	Objects iter.Seq2[Object, error]
	// Parts are the etcds that are read as one, if they are several. Cluster and
	// Revision are those of the first one.
	Parts []Part
}

// Part is one of several etcds that are looked at as one.
type Part struct {
	Place    string `json:"place"`
	Cluster  uint64 `json:"cluster,omitempty,string"`
	Revision int64  `json:"revision"`
	// Objects is how many keys it has where the walk was.
	Objects int64 `json:"objects"`
	// Placed is how many of them count and are where apiservers look for them: without
	// any, nothing of theirs was looked at there. It is known at the end of a walk.
	Placed int64 `json:"-"`
}

// Object is what stands under one etcd key. The value is valid until the next
// object is asked for.
type Object struct {
	Key   string
	Value []byte
	// Astray names the etcd that it is in, if no apiserver looks for it there:
	// another one holds its resource.
	Astray string
	// ModRevision is as in [Entry], 0 of a snapshot.
	ModRevision int64

	part   *Part // that it is in, of several
	beside bool  // as Count.Beside
}

// Entry is what stands under one etcd key, for the caller to keep.
type Entry struct {
	Key   string
	Value []byte
	// ModRevision is that of the latest write to the key. It is what an
	// apiserver calls the object's resourceVersion.
	ModRevision int64
	// Cluster is the id of the etcd cluster that answered.
	Cluster uint64
}
