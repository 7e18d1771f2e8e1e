package node

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// watch asks somebody again and again, in a goroutine of its own, and keeps what was told last.
type watch[T comparable] struct {
	mu     sync.Mutex
	last   T
	cancel context.CancelFunc
	ended  chan struct{}
}

// soon is the first pause between two questions: whom it is about has perhaps just been started.
const soon = 50 * time.Millisecond

// watching begins at once, and goes on later and later, up to every so often. Another answer than
// the one before is followed by a call of told.
func watching[T comparable](ctx context.Context, clk clock.WithTicker, every time.Duration, ask func(context.Context) T, told func()) *watch[T] {
	ctx, cancel := context.WithCancel(ctx)
	w := &watch[T]{cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(w.ended)
		for pause := min(soon, every); ; pause = min(2*pause, every) {
			answer := ask(ctx)
			if ctx.Err() != nil { // it was cut short, and tells nothing
				return
			}
			w.mu.Lock()
			another := w.last != answer
			w.last = answer
			w.mu.Unlock()
			if another {
				told()
			}
			timer := clk.NewTimer(pause)
			select {
			case <-ctx.Done():
				timer.Stop()
				return
			case <-timer.C():
			}
		}
	}()
	return w
}

func (w *watch[T]) now() T {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last
}

// end ends it and waits for that.
func (w *watch[T]) end() {
	w.cancel()
	<-w.ended
}
