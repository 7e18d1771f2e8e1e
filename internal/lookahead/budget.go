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
	spent int64 // bytes, with those that are granted to reads under way
	pages int
	own   int64         // bytes that are its share
	spare *atomic.Int64 // bytes, shared with other resources
	drawn int64         // of them
}

// expect sets the share, if there are about so many bytes more to be read in all.
func (b *budget) expect(unread int64) {
	b.own = min((b.spent+unread)/share, mostBytes)
	b.draw(b.spent - b.own - b.drawn)
}

// grant gives up to so many bytes to one more read, which is not to take more.
func (b *budget) grant(most int64) int64 {
	if b.pages >= mostPages {
		return 0
	}
	b.draw(b.spent + most - b.own - b.drawn)
	granted := max(0, min(most, b.own+b.drawn-b.spent))
	b.spent += granted
	return granted
}

// settle is for each read when it is over, and says what it took.
func (b *budget) settle(granted, took int64) {
	b.pages++
	b.giveBack(granted - took)
}

// giveBack returns what was granted and not read.
func (b *budget) giveBack(bytes int64) {
	b.spent -= bytes
	if over := min(b.drawn, b.own+b.drawn-b.spent); over > 0 {
		b.drawn -= over
		b.spare.Add(over)
	}
}

// draw takes from what all have to spare, as far as there is so much.
func (b *budget) draw(bytes int64) {
	for bytes > 0 {
		spare := b.spare.Load()
		take := min(bytes, spare)
		if take <= 0 {
			return
		}
		if b.spare.CompareAndSwap(spare, spare-take) {
			b.drawn += take
			return
		}
	}
}
