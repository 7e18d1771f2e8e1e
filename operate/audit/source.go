package audit

import (
	"context"
	"iter"
)

// Source holds stored objects.
type Source interface {
	// Read begins a walk over every key that starts with prefix. It is done
	// with when the objects have been ranged over, to the end or not.
	Read(ctx context.Context, prefix string) (*Contents, error)
}

// Contents are the objects of a source as of one revision.
type Contents struct {
	// Revision is etcd's, the same for all objects.
	Revision int64
	// Cluster is the id of the etcd cluster; 0 for a snapshot.
	Cluster uint64
	// Total is how many objects there are.
	Total int64
	// Objects are each of them, once, in any order, and may be ranged over once.
	// An error ends the walk, and is the last thing that comes.
	Objects iter.Seq2[Object, error]
}

// Object is what stands under one etcd key. The value is valid until the next
// object is asked for.
type Object struct {
	Key   string
	Value []byte
}
