package etcd

import (
	"context"
	"fmt"
	"iter"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kube-atrest/atrest/operate/audit"
)

// What a page is to be. The number of objects adapts to their size, so that
// neither this program nor etcd has to hold much of it.
const (
	pageBytes = 2 << 20
	firstPage = 50
	largest   = 1000
	maxAnswer = 32 << 20
)

// How many objects are to be in the part that a page is taken from. To give a page of it, etcd
// goes through the keys of all of it, which for a million in pages of a thousand would be
// five hundred million.
const (
	fewest = 2 * largest
	most   = 16 * largest
)

// Read begins a walk over a prefix as of etcd's revision now. The objects come
// in the order of their keys. If etcd compacts that revision meanwhile, which
// leaves five to ten minutes under kube-apiserver, the walk ends with
// [ErrCompacted]: it is not begun anew by itself, as that may never end. It also
// ends with an error if there turn out to be more objects than etcd counted, or
// fewer: both are as of one revision, so one of them would be wrong.
func (s *Store) Read(ctx context.Context, prefix string) (*audit.Contents, error) {
	first, end := []byte(prefix), rangeEnd(prefix)
	if prefix == "" {
		first = []byte{0} // the first key there can be
	}
	answer, err := s.call(ctx, &pb.RangeRequest{Key: first, RangeEnd: end, CountOnly: true})
	if err != nil {
		return nil, err
	}
	if answer.Header == nil || answer.Header.Revision <= 0 {
		return nil, fmt.Errorf("%s: the answer names no revision: is that etcd's API v3?", s)
	}
	if prefix == "" && answer.Header.ClusterId == 0 {
		// That of k3s, kine, gives no pages up to no end. No key of Kubernetes begins with
		// such a byte, and if one did, the walk would end early.
		end = []byte{0xff}
	}
	w := &walk{store: s, next: first, part: end, end: end, revision: answer.Header.Revision, limit: firstPage, left: answer.Count,
		parts: answer.Header.ClusterId != 0} // kine reads prefixes, not from any key to any other
	return &audit.Contents{Cluster: answer.Header.ClusterId, Revision: w.revision, Total: answer.Count, Objects: w.objects(ctx)}, nil
}

// rangeEnd is the first key after all that begin with prefix; etcd takes "\x00"
// for no end.
func rangeEnd(prefix string) []byte {
	end := []byte(prefix)
	for i := len(end) - 1; i >= 0; i-- {
		if end[i] < 0xff {
			end[i]++
			return end[:i+1]
		}
	}
	return []byte{0}
}

// walk is where the next page begins, how many objects it is to have, and how
// many are to come in all.
type walk struct {
	store     *Store
	next, end []byte
	revision  int64
	limit     int64
	left      int64

	// part is the end of what the next page is taken from, at most end, if parts are to be
	// made. It is the first key after all that begin as next does for depth bytes
	// and one more, and found is how many were in it at first.
	parts bool
	part  []byte
	depth int
	found int64
}

func (w *walk) objects(ctx context.Context) iter.Seq2[audit.Object, error] {
	return func(yield func(audit.Object, error) bool) {
		for {
			page, err := w.page(ctx)
			if err != nil {
				yield(audit.Object{}, err)
				return
			}
			for _, kv := range page.Kvs {
				if !yield(audit.Object{Key: string(kv.Key), Value: kv.Value, ModRevision: kv.ModRevision}, nil) {
					return
				}
			}
			if w.next == nil {
				return
			}
		}
	}
}

// page asks for the next page, and for less if that is too much.
func (w *walk) page(ctx context.Context) (*pb.RangeResponse, error) {
	for {
		answer, err := w.store.call(ctx, &pb.RangeRequest{Key: w.next, RangeEnd: w.part, Revision: w.revision, Limit: w.limit})
		if status.Code(err) == codes.ResourceExhausted && w.limit > 1 {
			w.limit = max(1, w.limit/8)
			continue
		}
		if err != nil {
			return nil, err
		}
		return answer, w.advance(answer)
	}
}

// advance moves on behind a page. It refuses one that would lead back, so that
// no answer can make the walk endless.
func (w *walk) advance(page *pb.RangeResponse) error {
	bytes := int64(0)
	for _, kv := range page.Kvs {
		if string(kv.Key) < string(w.next) {
			return fmt.Errorf("%s: the keys of a page are not in order: is that etcd's API v3?", w.store)
		}
		w.next = append(append(w.next[:0], kv.Key...), 0)
		bytes += int64(len(kv.Key) + len(kv.Value))
	}
	w.left -= int64(len(page.Kvs))
	switch {
	case page.More && len(page.Kvs) == 0:
		return fmt.Errorf("%s: a page is empty though more are to come: is that etcd's API v3?", w.store)
	case w.left < 0:
		return fmt.Errorf("%s: it has more objects than it counted at the same revision: is that etcd's API v3?", w.store)
	case !page.More && w.left > 0 && string(w.part) == string(w.end):
		return fmt.Errorf("%s: it ends early, %d short of what it counted at the same revision: "+
			"is that etcd's API v3, and no proxy between?", w.store, w.left)
	}
	if n := int64(len(page.Kvs)); n > 0 {
		w.limit = min(max(pageBytes*n/max(bytes, 1), 1), largest)
	}
	w.goOn(page)
	return nil
}

// goOn decides what the next page is taken from, if there is one: a part of about the same
// share of the keys as the one before, of more if that had few, and of less if it has many.
func (w *walk) goOn(page *pb.RangeResponse) {
	w.found = max(w.found, page.Count)
	switch {
	case page.More && (!w.parts || page.Count <= most):
		return
	case page.More && string(w.part) == string(w.end):
		w.depth = sharedBytes(page) - 1
	case page.More:
		w.depth++
	case string(w.part) == string(w.end):
		w.next = nil
		return
	default:
		w.next = append(w.next[:0], w.part...)
		if w.found < fewest {
			w.depth--
		}
	}
	w.part, w.found = w.upTo(), 0
}

// sharedBytes is how long what all keys of a page begin with is.
func sharedBytes(page *pb.RangeResponse) int {
	first, last, n := page.Kvs[0].Key, page.Kvs[len(page.Kvs)-1].Key, 0
	for n < min(len(first), len(last)) && first[n] == last[n] {
		n++
	}
	return n
}

// upTo is the end of the part that begins with the next page.
func (w *walk) upTo() []byte {
	if w.left <= most || w.depth < 0 {
		return w.end
	}
	part := rangeEnd(string(w.next[:min(w.depth+1, len(w.next))]))
	if string(part) == "\x00" || string(w.end) != "\x00" && string(part) > string(w.end) {
		return w.end
	}
	return part
}
