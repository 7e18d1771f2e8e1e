package kmsv1

import (
	"bytes"
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/kube-atrest/atrest/envelope"
	"github.com/kube-atrest/atrest/internal/plugin"
)

// ask asks the plugin how it is. KMS v1 has no Status: a plugin that is written
// with is probed, and one that is only read with is asked again for what Decrypt
// failed on. It is called by the follower's goroutine alone.
func (p *Provider) ask(ctx context.Context, role envelope.Role) {
	switch role {
	case envelope.Writes:
		p.ping(ctx)
	case envelope.Reads:
		p.recheck(ctx)
	}
}

// ping has the plugin wrap and unwrap what a DEK looks like, and holds it to its
// answer. What comes of it is noted of Encrypt: that a plugin unwraps other values
// does not say that it keeps what it wraps. A plugin in doubt is also tried by
// what was read before: it may remember what it wrapped last, and unwrap nothing
// else.
func (p *Provider) ping(ctx context.Context) {
	known, asked := p.followed.Load(), p.opts.Clock.Now()
	made, t := p.probe(ctx)
	if t == nil {
		t = p.unwrapProbe(ctx, made)
	}
	var others *plugin.Trouble
	if good := p.samples.Good(always); t == nil && good != nil && (known.Doubt != nil || known.Decrypt.Trouble != nil) {
		others, _ = p.unwrapSample(ctx, good)
	}
	if ctx.Err() != nil {
		return // it is closing: what failed says nothing of the plugin
	}
	now := p.opts.Clock.Now()
	p.followed.Learn(func(k plugin.Known) plugin.Known {
		k.Encrypt = k.Encrypt.After(t, asked, now)
		if t == nil {
			return k.AfterTrial(others, asked, now)
		}
		return k.Answered(t, now)
	})
}

// probe is what a plugin was tried with: a secret like a DEK, which nothing is
// sealed with, and what it was wrapped to.
type probe struct {
	secret  [dekSize]byte
	wrapped []byte
}

// probe has the plugin wrap a fresh probe.
func (p *Provider) probe(ctx context.Context) (made probe, t *plugin.Trouble) {
	if _, err := io.ReadFull(p.opts.Random, made.secret[:]); err != nil {
		return made, plugin.Troublef(plugin.Failed, "make a probe: %w", err)
	}
	made.wrapped, t = p.wrap(ctx, made.secret[:])
	return made, t
}

// unwrapProbe holds the plugin to what it has wrapped.
func (p *Provider) unwrapProbe(ctx context.Context, made probe) (t *plugin.Trouble) {
	asked := p.opts.Clock.Now()
	got, err := p.plugin.Decrypt(ctx, made.wrapped)
	switch {
	case err != nil:
		t = troubleOf("decrypt", err)
	case subtle.ConstantTimeCompare(got, made.secret[:]) != 1:
		t = plugin.Troublef(plugin.BadAnswer, "decrypt: the plugin does not give back what it was given to encrypt")
	}
	if ctx.Err() == nil {
		kept := p.kept.Load().After(t, asked, p.opts.Clock.Now())
		p.kept.Store(&kept)
	}
	return t
}

// recheck tries the plugin, if that is due, by a DEK that a value was read with, or
// could not be. If there is none, nothing is known against it.
func (p *Provider) recheck(ctx context.Context) {
	asked := p.opts.Clock.Now()
	if !p.followed.Load().TrialIsDue(envelope.Reads, p.opts.HealthyPoll, asked) {
		return
	}
	wrapped := p.samples.Best(always)
	var t *plugin.Trouble
	telling := false
	if wrapped != nil {
		t, telling = p.unwrapSample(ctx, wrapped)
	}
	if ctx.Err() != nil {
		return
	}
	now := p.opts.Clock.Now()
	p.followed.Learn(func(k plugin.Known) plugin.Known { return k.AfterSample(t, telling, asked, now) })
}

// always: KMS v1 names no KEK.
func always(*[]byte) bool { return true }

// unwrapSample has the plugin unwrap a stored value's DEK. That it has no such KEK
// is the value's matter, and nothing to be tried by again. telling reports whether
// t is about the plugin.
func (p *Provider) unwrapSample(ctx context.Context, wrapped *[]byte) (t *plugin.Trouble, telling bool) {
	_, t, err := p.callDecrypt(ctx, *wrapped)
	if t == nil || ctx.Err() != nil {
		return nil, true
	}
	if plugin.OfTheValue(err) {
		p.samples.Forget(wrapped)
		return nil, false
	}
	return t, true
}

// wrap has the plugin wrap a secret.
func (p *Provider) wrap(ctx context.Context, secret []byte) ([]byte, *plugin.Trouble) {
	wrapped, err := p.plugin.Encrypt(ctx, secret)
	if err != nil {
		return nil, troubleOf("encrypt", err)
	}
	if bytes.Contains(wrapped, secret) {
		return nil, plugin.Troublef(plugin.BadAnswer, "encrypt: the plugin gave the DEK back in the clear")
	}
	if err := checkWrapped(wrapped); err != nil {
		return nil, plugin.Troublef(plugin.BadAnswer, "encrypt: %w", err)
	}
	if before := p.latest.Swap(&wrapped); before != nil && bytes.Equal(*before, wrapped) {
		return nil, plugin.Troublef(plugin.BadAnswer, "encrypt: the plugin gave the same answer for two secrets")
	}
	return wrapped, nil
}

// wrote learns what the Encrypt of a write came to, if that is news. A plugin that
// was not seen to unwrap what it wraps since it had trouble is not well by wrapping
// more: it is asked.
func (p *Provider) wrote(t *plugin.Trouble) {
	before, kept := p.followed.Load().Encrypt, p.kept.Load()
	if t == nil && before.Trouble == nil {
		return
	}
	if t == nil && (kept.Trouble != nil || kept.WellAt.Before(before.Ill)) {
		p.followed.Look()
		return
	}
	now := p.opts.Clock.Now()
	p.followed.Learn(func(k plugin.Known) plugin.Known {
		k.Encrypt = k.Encrypt.After(t, now, now)
		return k
	})
	p.followed.Look()
}

// checkWrapped reports what keeps an answer of Encrypt from being stored.
func checkWrapped(wrapped []byte) error {
	switch {
	case len(wrapped) == 0:
		return errors.New("the plugin's answer is empty")
	case len(wrapped) > maxWrapped:
		return fmt.Errorf("the plugin's answer has %d bytes, more than the %d that can be stored", len(wrapped), maxWrapped)
	}
	return nil
}

// SetRole says what the provider is used for from now on. One that begins to
// write does so at once if it was made ready ([Provider.Prepare]), else as soon
// as its plugin was seen to wrap and unwrap. It waits for nobody.
func (p *Provider) SetRole(r envelope.Role) {
	if proof := p.proof.Swap(nil); proof != nil && r == envelope.Writes {
		p.followed.Learn(func(k plugin.Known) plugin.Known {
			k.Encrypt, k.Decrypt = k.Encrypt.Moot(proof.at).Well(proof.at), k.Decrypt.Well(proof.at)
			return k
		})
	}
	p.followed.SetRole(r)
}

// Prepare makes the provider ready to write, or says why it cannot be: its
// plugin has to wrap and unwrap. Nothing changes of a provider that reads. It
// fails when ctx ends, and with [envelope.ErrClosed].
func (p *Provider) Prepare(ctx context.Context) error {
	if p.followed.Role() == envelope.Writes {
		return p.prepareWriter(ctx)
	}
	var t *plugin.Trouble
	if err := p.followed.Do(ctx, func(ctx context.Context) { t = p.prove(ctx) }); err != nil {
		return err
	}
	return t.Cause()
}

// proof is a probe that was made ahead of writing, and when the plugin was last
// seen to unwrap it.
type proof struct {
	probe
	at time.Time
}

// prove has the plugin wrap once, and unwrap each time, but for what is known since
// a moment ago. What it no longer unwraps is wrapped anew at the next try. What
// comes of trying a file is told of that file, and changes nothing of what runs.
func (p *Provider) prove(ctx context.Context) *plugin.Trouble {
	now, last := p.opts.Clock.Now(), p.proof.Load()
	if last != nil && now.Sub(last.at) < time.Second {
		return nil
	}
	if last == nil {
		made, t := p.probe(ctx)
		if t != nil {
			return t
		}
		last = &proof{probe: made}
	}
	t := p.unwrapProbe(ctx, last.probe)
	switch {
	case t == nil:
		p.proof.Store(&proof{last.probe, now})
	case !t.LostContact() || now.Sub(last.at) >= p.opts.HealthyPoll:
		p.proof.Store(nil)
	}
	return t
}

func (p *Provider) prepareWriter(ctx context.Context) error {
	if err := p.followed.Asked(ctx); err != nil {
		return err
	}
	if !p.followed.Fresh() {
		if err := p.followed.Ask(ctx); err != nil {
			return err
		}
	}
	if c := p.followed.Condition(); c.Trouble != nil {
		return c.Err
	}
	return p.followed.Load().Ailing(envelope.Writes).Cause()
}
