package kmsplugin

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// opened is a session with what is needed to close it when nobody calls it any more.
type opened struct {
	session Session
	seen    string // what the credentials were
	// ended is closed when the session says that it is over.
	ended chan struct{}
	stop  context.CancelFunc

	mu      sync.Mutex
	running int // calls
	closed  bool
	idle    chan struct{} // closed when it is closed and no call runs
}

var errClosed = fmt.Errorf("%w: the session is closed", ErrUnavailable)

// open opens the back end. What keeps the session alive ends with ctx. Gone is closed when nothing
// of a session is left that came too late.
func open(ctx context.Context, b Backend, c Config) (o *opened, gone <-chan struct{}, err error) {
	opening, cancel := c.within(ctx, c.OpenTimeout)
	defer cancel()
	over := make(chan struct{})
	session, err := answered(opening, b.Open, func(late Session, err error) {
		defer close(over)
		if err != nil {
			return
		}
		closing, cancel := c.within(context.WithoutCancel(ctx), c.CallTimeout)
		defer cancel()
		_, _ = guarded(closing, func(ctx context.Context) (any, error) { return nil, late.Close(ctx) })
	})
	if err != nil {
		return nil, over, err
	}
	close(over)
	o = &opened{session: session, ended: make(chan struct{}), idle: make(chan struct{})}
	renewing, stop := context.WithCancel(ctx)
	o.stop = stop
	if renewer, ok := session.(interface{ Renew(context.Context) error }); ok {
		go func() {
			defer close(o.ended)
			// Whatever the reason: another one is opened.
			_, _ = guarded(renewing, func(ctx context.Context) (any, error) { return nil, renewer.Renew(ctx) })
		}()
	}
	return o, over, nil
}

// use has f call the session, unless it is closed.
func (o *opened) use(f func(Session) error) error {
	if !o.begin() {
		return errClosed
	}
	defer o.end()
	return f(o.session)
}

func (o *opened) begin() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return false
	}
	o.running++
	return true
}

func (o *opened) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.running--; o.closed && o.running == 0 {
		close(o.idle)
	}
}

// close waits for the calls that run, and closes the session.
func (o *opened) close(ctx context.Context) error {
	o.stop()
	o.mu.Lock()
	o.closed = true
	if o.running == 0 {
		close(o.idle)
	}
	o.mu.Unlock()
	<-o.idle
	return o.session.Close(ctx)
}

// answered is what f returns, or the error of ctx if that ends before, whatever f does.
// What comes too late is handed to late, if that is not nil, and so is what f returned itself if
// that is an error.
func answered[T any](ctx context.Context, f func(context.Context) (T, error), late func(T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	done := make(chan answer, 1)
	go func() {
		value, err := guarded(ctx, f)
		done <- answer{value, err}
	}()
	select {
	case a := <-done:
		if a.err != nil && late != nil {
			late(a.value, a.err)
		}
		return a.value, withCause(ctx, a.err)
	case <-ctx.Done():
	}
	if late != nil {
		go func() {
			a := <-done
			late(a.value, a.err)
		}()
	}
	var none T
	return none, context.Cause(ctx)
}

// withCause is an error, with why ctx ended if that is all it says.
func withCause(ctx context.Context, err error) error {
	if ended := ctx.Err(); ended != nil && errors.Is(err, ended) {
		return fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	return err
}
