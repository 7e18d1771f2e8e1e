package reload

import (
	"context"
	"errors"
)

// building is a content that is being built, beside the goroutine that looks at
// the file; zero for none.
type building[G Generation] struct {
	hash string
	done chan built[G]
	stop context.CancelFunc
}

// built is what came of it.
type built[G Generation] struct {
	next G
	err  error
}

// build begins to build a content.
func (c *Controller[G]) build(ctx context.Context, l look) {
	ctx, stop := context.WithCancel(ctx)
	b := building[G]{hash: l.hash, done: make(chan built[G], 1), stop: stop}
	c.building = b
	status := c.Status()
	status.LastAttempt, status.Building = c.config.Clock.Now(), l.hash
	c.status.Store(&status)
	go func() {
		next, err := c.config.Build(ctx, l.content)
		b.done <- built[G]{next, err}
	}()
}

// abandon ends the building under way, and reports whether there is one: the
// file holds another content by now, or none, or nobody follows it any longer.
// What was built all the same is closed.
func (c *Controller[G]) abandon() bool {
	if c.building.done == nil {
		return false
	}
	c.building.stop()
	if b := <-c.building.done; b.err == nil {
		b.next.Close()
	}
	c.ended()
	return true
}

// ended notes that nothing is being built.
func (c *Controller[G]) ended() Status {
	c.building = building[G]{}
	status := c.Status()
	status.Building = ""
	c.status.Store(&status)
	return status
}

// built takes in what came of building a content.
func (c *Controller[G]) built(b built[G]) {
	hash := c.building.hash
	c.building.stop()
	status := c.ended()
	if errors.Is(b.err, context.Canceled) {
		return // nobody follows the file any longer
	}
	if b.err != nil {
		c.failed(status, hash, b.err)
		return
	}
	before := c.config.Set.Current()
	if !c.config.Set.swap(b.next) {
		c.failed(status, hash, ErrClosed)
		return
	}
	status = Status{
		Hash:        hash,
		LoadedAt:    c.config.Clock.Now(),
		LastAttempt: status.LastAttempt,
		WatchError:  status.WatchError,
	}
	c.status.Store(&status)
	if loaded := c.config.Hooks.Loaded; loaded != nil {
		loaded(before, status)
	}
}
