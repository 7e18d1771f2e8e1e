package reload

import (
	"context"
	"slices"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// watching is what one call of a Notifier gave; zero before and after.
type watching struct {
	events <-chan struct{}
	stop   context.CancelFunc
}

// end returns when everything behind it has ended.
func (w *watching) end() {
	if w.events == nil {
		return
	}
	w.stop()
	for range w.events {
	}
	*w = watching{}
}

// begin asks for events of every name that path goes by. Links and folders may
// be replaced meanwhile, so the names are read again after; what a path does
// that never rests is left to the poll.
func (w *watching) begin(ctx context.Context, notifier Notifier, path string) error {
	const attempts = 3
	for range attempts {
		w.end()
		names := namesOf(path)
		ctx, stop := context.WithCancel(ctx)
		events, err := notifier.Notify(ctx, names)
		if err != nil {
			stop()
			return err
		}
		*w = watching{events: events, stop: stop}
		if slices.Equal(names, namesOf(path)) {
			return nil
		}
	}
	return nil
}

// watch asks for events unless there are any. That they cannot be had is logged
// once, until they can.
func (c *Controller) watch(ctx context.Context) {
	if c.watching.events != nil {
		return
	}
	err := c.watching.begin(ctx, c.config.Notifier, c.config.Path)
	status := c.Status()
	log := klog.FromContext(ctx).WithValues("file", c.config.Path)
	switch {
	case err != nil && status.WatchError == nil:
		log.Error(err, "No events from the encryption config's file, its changes are seen by the poll alone", "poll", c.config.Poll)
	case err == nil && status.WatchError != nil:
		log.Info("Events from the encryption config's file are back")
	}
	status.WatchError = err
	c.status.Store(&status)
}

// alarm rings once after the time it was last set to.
type alarm struct {
	clock clock.Clock
	timer clock.Timer
}

// set replaces the earlier time; zero means not to ring.
func (a *alarm) set(wait time.Duration) {
	a.stop()
	if wait > 0 {
		a.timer = a.clock.NewTimer(wait)
	}
}

func (a *alarm) ring() <-chan time.Time {
	if a.timer == nil {
		return nil
	}
	return a.timer.C()
}

func (a *alarm) stop() {
	if a.timer != nil {
		a.timer.Stop()
		a.timer = nil
	}
}
