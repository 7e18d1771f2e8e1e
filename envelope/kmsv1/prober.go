package kmsv1

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/kube-atrest/atrest/envelope"
	"github.com/kube-atrest/atrest/internal/plugin"
)

// prober follows the health of a plugin that is written with. Its loop alone
// changes anything; any number of others read.
type prober struct {
	*plugin.Loop
	plugin Plugin
	opts   Options

	condition atomic.Pointer[plugin.Condition]
	lastOK    atomic.Pointer[time.Time]
}

// startProber begins to probe the plugin when the loop before has ended.
func startProber(p Plugin, opts Options, before *plugin.Loop) *prober {
	w := &prober{plugin: p, opts: opts}
	w.condition.Store(&plugin.Condition{
		Trouble: &plugin.Trouble{Problem: plugin.Unreachable, Err: errors.New("the plugin has not answered yet")},
		Since:   opts.Clock.Now(),
	})
	polls := plugin.Polls{Clock: opts.Clock, Healthy: opts.HealthyPoll, Unhealthy: opts.UnhealthyPoll, Wake: p.Wake()}
	w.Loop = plugin.Follow(polls, before, w.probe)
	return w
}

// probe records how the plugin is, and tells the observer if that is new.
func (w *prober) probe(ctx context.Context) error {
	trouble := w.ping(ctx)
	if ctx.Err() != nil {
		return ctx.Err() // the provider is closing: what failed says nothing of the plugin
	}
	now := w.opts.Clock.Now()
	if trouble == nil {
		w.lastOK.Store(&now)
	}
	if plugin.Record(&w.condition, trouble, now) {
		w.opts.Observer.Changed(w.health())
	}
	return trouble.Cause()
}

// ping has the plugin wrap and unwrap the four bytes that kube-apiserver probes
// with, and holds it to its answer.
func (w *prober) ping(ctx context.Context) *plugin.Trouble {
	sent := []byte("ping")
	wrapped, err := w.plugin.Encrypt(ctx, sent)
	if err != nil {
		return &plugin.Trouble{Problem: problemOf(err), Err: fmt.Errorf("encrypt: %w", err)}
	}
	if err := checkWrapped(wrapped); err != nil {
		return plugin.Troublef(plugin.BadAnswer, "encrypt: %w", err)
	}
	got, err := w.plugin.Decrypt(ctx, wrapped)
	if err != nil {
		return &plugin.Trouble{Problem: problemOf(err), Err: fmt.Errorf("decrypt: %w", err)}
	}
	if !bytes.Equal(got, sent) {
		return plugin.Troublef(plugin.BadAnswer, "decrypt: the plugin does not give back what it was given to encrypt")
	}
	return nil
}

// checkWrapped tells whether what Encrypt answered can be stored.
func checkWrapped(wrapped []byte) error {
	switch {
	case len(wrapped) == 0:
		return errors.New("the plugin's answer is empty")
	case len(wrapped) > maxWrapped:
		return fmt.Errorf("the plugin's answer has %d bytes, more than the %d that can be stored", len(wrapped), maxWrapped)
	}
	return nil
}

// health is the writing side of [Provider.Health].
func (w *prober) health() envelope.Health {
	h := envelope.Health{Writes: true}
	into(&h, w.condition.Load())
	if last := w.lastOK.Load(); last != nil {
		h.LastHealthy = *last
		if h.Problem != "" {
			h.WritesUntil = *last
		}
	}
	return h
}

func into(h *envelope.Health, c *plugin.Condition) {
	h.Since = c.Since
	if c.Trouble != nil {
		h.Problem, h.Err = envelope.Problem(c.Problem), c.Err
	}
}
