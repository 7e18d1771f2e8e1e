package lookahead

import "sync/atomic"

// What a resource may cost. kube-apiserver reads all of it anyway.
const (
	// share is which part of a resource's bytes may be read: at most 1 in so many.
	share = 12
	// mostBytes and mostPages may be read of one resource, however large.
	mostBytes = 16 << 20
	mostPages = 4096
	// spareBytes are what the shares of small resources may be overdrawn by, of
	// all resources together.
	spareBytes = 256 << 10
)

// budget is what the search through one resource may cost, and has.
type budget struct {
	spent int64 // bytes
	pages int
	spare *atomic.Int64 // bytes, shared with other resources
	drawn int64         // of them
}

func (b *budget) spend(bytes int64) {
	b.spent += bytes
	b.pages++
}

// left is how many bytes may still be read, if there are so many more in all.
func (b *budget) left(unread int64) int64 {
	if b.pages >= mostPages {
		return 0
	}
	own := min((b.spent+unread)/share, mostBytes)
	if over := b.spent - own - b.drawn; over > 0 {
		b.spare.Add(-over)
		b.drawn += over
	}
	return own + b.drawn + max(0, b.spare.Load()) - b.spent
}
