package envelope

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/kube-atrest/atrest/internal/plugin"
	"github.com/kube-atrest/atrest/internal/redact"
	"github.com/kube-atrest/atrest/internal/stored"
)

// writeDEK is all that writing under one DEK needs, built whole and then only
// used: whoever holds one can seal with it.
type writeDEK struct {
	sealer
	keyID  string
	tail   []byte // encoded source, as it ends every object sealed under it
	opener *knownDEK
}

// permit is the write DEK and since when it may be used, which is for the write
// window. It is immutable: a healthy Status replaces it by a later one.
type permit struct {
	dek   *writeDEK
	since time.Time
}

// writer keeps the permit of one provider in step with its plugin's Status.
// Its loop alone changes anything; any number of others read.
type writer struct {
	*plugin.Loop
	asker
	cache *cache // takes each new DEK, for reading
	usage *usage

	permit    atomic.Pointer[permit]
	condition atomic.Pointer[plugin.Condition]

	pending *pendingDEK // of the loop alone: made, and wrapped under a key_id that Status did not name
}

// pendingDEK is a DEK that may not be used yet.
type pendingDEK struct {
	redact.As
	secret [dekSize]byte
	source stored.DEKSource
}

// startWriter begins to follow the provider's plugin when the loop before has
// ended: at the poll rate of its state, when its connection comes up or breaks,
// and when a DEK is used up.
func startWriter(p *Provider, before *plugin.Loop) *writer {
	w := &writer{asker: p.asker(), cache: p.cache, usage: &p.usage}
	w.condition.Store(&plugin.Condition{
		Trouble: plugin.Troublef(Unreachable, "the plugin has not answered yet"),
		Since:   p.opts.Clock.Now(),
	})
	w.Loop = w.follow(before, w.probe)
	return w
}

// probe asks the plugin how it is and brings the permit into line. Only a
// plugin with nothing wrong at all prolongs it, from the moment it was asked:
// the answer may be long under way, and was true before it came.
func (w *writer) probe(ctx context.Context) error {
	asked := w.opts.Clock.Now()
	status, t := w.status(ctx)
	var dek *writeDEK
	if t == nil {
		dek, t = w.dekFor(ctx, status.KeyID)
	}
	if ctx.Err() != nil {
		return ctx.Err() // the provider is closing: what failed says nothing of the plugin
	}
	if t == nil {
		w.permit.Store(&permit{dek: dek, since: asked})
	}
	if plugin.Record(&w.condition, t, w.opts.Clock.Now()) {
		w.opts.Observer.Changed(w.health())
	}
	return t.Cause()
}

// dekFor is the DEK for writing under keyID: the present one as long as the
// key_id stays and its budget lasts, else a fresh one.
func (w *writer) dekFor(ctx context.Context, keyID string) (*writeDEK, *plugin.Trouble) {
	reason := "start"
	if p := w.permit.Load(); p != nil {
		switch {
		case p.dek.keyID != keyID:
			reason = "key_id"
		case w.runningLow(p.dek):
			reason = "used_up"
		default:
			return p.dek, nil
		}
	}
	start := w.opts.Clock.Now()
	dek, t := w.makeDEK(ctx, keyID)
	w.opts.Observer.DEKMade(reason, w.opts.Clock.Since(start), t.Cause())
	return dek, t
}

// runningLow tells whether a DEK should be replaced while it still seals: in
// the last eighth of its budget.
func (w *writer) runningLow(d *writeDEK) bool { return d.uses().left() <= w.opts.MaxWrites/8 }

// makeDEK wraps a fresh DEK and builds what writes under it. A DEK that the
// plugin wrapped under another key_id than keyID stays pending and is used or
// wrapped again next time: key_ids that do not settle cost no DEK each time.
func (w *writer) makeDEK(ctx context.Context, keyID string) (*writeDEK, *plugin.Trouble) {
	if w.pending == nil {
		w.pending = &pendingDEK{As: "DEK"}
		if _, err := io.ReadFull(w.opts.Random, w.pending.secret[:]); err != nil {
			w.pending = nil
			return nil, plugin.Troublef(Failed, "generate a DEK: %w", err)
		}
	}
	if w.pending.source.KeyID != keyID {
		if t := w.wrap(ctx, w.pending); t != nil {
			return nil, t
		}
	}
	if got := w.pending.source.KeyID; got != keyID {
		return nil, plugin.Troublef(Disagreement, "encrypt used key_id %s and status names %s: the plugin has not settled on one",
			HashKeyID(got), HashKeyID(keyID))
	}
	dek, err := w.build(w.pending)
	if err != nil {
		return nil, plugin.Troublef(Failed, "build the DEK: %w", err)
	}
	clear(w.pending.secret[:])
	w.pending = nil
	return dek, nil
}

func (w *writer) wrap(ctx context.Context, p *pendingDEK) *plugin.Trouble {
	p.source = stored.DEKSource{}
	wrapped, err := w.plugin.Encrypt(ctx, p.secret[:])
	if err != nil {
		return &plugin.Trouble{Problem: plugin.ProblemOf(err), Err: fmt.Errorf("encrypt: %w", err)}
	}
	if bytes.Contains(wrapped.Ciphertext, p.secret[:]) {
		return plugin.Troublef(BadAnswer, "encrypt: the plugin gave the DEK back in the clear")
	}
	source, err := stored.NewDEKSource(w.opts.Mode.sourceType(), wrapped.KeyID, wrapped.Ciphertext, wrapped.Annotations)
	if err != nil {
		return plugin.Troublef(BadAnswer, "encrypt: the plugin's answer cannot be stored: %w", err)
	}
	p.source = source
	return nil
}

func (w *writer) build(p *pendingDEK) (*writeDEK, error) {
	tail := p.source.Tail()
	sealer, err := w.opts.newSealer(p.secret[:], tail)
	if err != nil {
		return nil, err
	}
	open, err := newOpener(p.source.Type, p.secret[:])
	if err != nil {
		return nil, err
	}
	known := &knownDEK{opener: open, keyID: p.source.KeyID, since: w.opts.Clock.Now(), use: w.usage.of(p.source.KeyID)}
	known.proven.Store(true)
	w.usage.seals(p.source.KeyID, sealer.uses())
	w.cache.addSource(&p.source, nil, known)
	return &writeDEK{sealer: sealer, keyID: p.source.KeyID, tail: tail, opener: known}, nil
}

func (o *Options) newSealer(secret, tail []byte) (sealer, error) {
	if o.Mode == Seed {
		return newSeedSealer(secret, tail, o.Random, o.MaxWrites)
	}
	return newCounterSealer(secret, tail, o.Random, o.MaxWrites)
}

// renew waits for the loop to replace a DEK that is used up.
func (w *writer) renew(ctx context.Context, used *writeDEK) error {
	if p := w.permit.Load(); p.dek != used {
		return nil
	}
	return w.Ask(ctx)
}

// health is the writing side of [Health].
func (w *writer) health() Health {
	h := Health{Writes: true}
	h.setCondition(w.condition.Load())
	if p := w.permit.Load(); p != nil {
		h.LastHealthy = p.since
		h.WritesUntil = p.since.Add(w.opts.WriteWindow)
		h.KeyIDHash = HashKeyID(p.dek.keyID)
		h.DEKCreated = p.dek.opener.since
		h.DEKWrites = p.dek.uses().spent()
	}
	if h.Problem == "" && w.opts.Clock.Now().After(h.WritesUntil) { // Status was asked, and has not answered for that long
		h.Problem, h.Err, h.Since = TimedOut, errNoAnswer, h.WritesUntil
	}
	return h
}

var errNoAnswer = errors.New("status: the plugin has not answered for the whole write window")
