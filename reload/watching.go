package reload

import (
	"context"
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

// watch asks for events unless there are any. That they cannot be had is logged
// once, until they can.
func (c *Controller[G]) watch(ctx context.Context) {
	if c.watching.events != nil {
		return
	}
	watched, stop := context.WithCancel(ctx)
	events, err := c.config.Notifier.Notify(watched, c.config.Path)
	if err != nil {
		stop()
	} else {
		c.watching = watching{events: events, stop: stop}
	}
	c.watchReported(klog.FromContext(ctx), err)
}

func (c *Controller[G]) watchReported(log klog.Logger, err error) {
	status := c.Status()
	switch {
	case err != nil && status.WatchError == nil:
		log.Error(err, "No events from the encryption config's file, its changes are seen by the poll alone", "file", c.config.Path, "poll", c.config.Poll)
	case err == nil && status.WatchError != nil:
		log.Info("Events from the encryption config's file are back", "file", c.config.Path)
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
