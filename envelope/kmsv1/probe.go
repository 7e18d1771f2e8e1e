package kmsv1

import (
	"bytes"
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
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

// ping has the plugin wrap and unwrap the four bytes that kube-apiserver probes
// with, and holds it to its answer. What comes of it is noted of Encrypt: that a
// plugin unwraps other values does not say that it keeps what it wraps.
func (p *Provider) ping(ctx context.Context) {
	asked := p.opts.Clock.Now()
	wrapped, t := p.wrap(ctx, ping)
	if t == nil {
		t = p.unwrapPing(ctx, wrapped)
	}
	if ctx.Err() != nil {
		return // it is closing: what failed says nothing of the plugin
	}
	now := p.opts.Clock.Now()
	p.followed.Learn(func(k plugin.Known) plugin.Known {
		k.Encrypt = k.Encrypt.After(t, asked, now)
		if t == nil {
			return k.AfterDecrypt("", nil, asked, now)
		}
		return k.Alive(t)
	})
}

// ping is what a probe has wrapped.
var ping = []byte("ping")

// unwrapPing holds the plugin to what it has wrapped.
func (p *Provider) unwrapPing(ctx context.Context, wrapped []byte) (t *plugin.Trouble) {
	asked := p.opts.Clock.Now()
	got, err := p.plugin.Decrypt(ctx, wrapped)
	switch {
	case err != nil:
		t = troubleOf("decrypt", err)
	case subtle.ConstantTimeCompare(got, ping) != 1:
		t = plugin.Troublef(plugin.BadAnswer, "decrypt: the plugin does not give back what it was given to encrypt")
	}
	if ctx.Err() == nil {
		kept := p.kept.Load().After(t, asked, p.opts.Clock.Now())
		p.kept.Store(&kept)
	}
	return t
}

// recheck has the plugin try again what Decrypt failed on, if that still counts.
func (p *Provider) recheck(ctx context.Context) {
	wrapped := p.suspect.Load()
	if wrapped == nil || !p.followed.Load().DoubtsDecrypt() {
		return
	}
	asked := p.opts.Clock.Now()
	_, t, err := p.callDecrypt(ctx, *wrapped)
	if ctx.Err() != nil {
		return
	}
	now := p.opts.Clock.Now()
	p.followed.Learn(func(k plugin.Known) plugin.Known {
		if plugin.OfTheValue(err) {
			k.Decrypt = k.Decrypt.Moot(now) // it answers, and the value alone is the matter
			return k
		}
		return k.AfterDecrypt("", t, asked, now)
	})
}

// wrap has the plugin wrap a secret.
func (p *Provider) wrap(ctx context.Context, secret []byte) ([]byte, *plugin.Trouble) {
	wrapped, err := p.plugin.Encrypt(ctx, secret)
	if err != nil {
		return nil, troubleOf("encrypt", err)
	}
	if len(secret) == dekSize && bytes.Contains(wrapped, secret) {
		return nil, plugin.Troublef(plugin.BadAnswer, "encrypt: the plugin gave the DEK back in the clear")
	}
	if err := checkWrapped(wrapped); err != nil {
		return nil, plugin.Troublef(plugin.BadAnswer, "encrypt: %w", err)
	}
	return wrapped, nil
}

// wrote learns what the Encrypt of a write came to, if that is news. A plugin that
// does not unwrap what it wraps is not well by wrapping more.
func (p *Provider) wrote(t *plugin.Trouble) {
	if t == nil && (p.followed.Load().Encrypt.Trouble == nil || p.kept.Load().Trouble != nil) {
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
	if t := p.followed.Load().Ailing(envelope.Reads); t != nil {
		return t.Err
	}
	var t *plugin.Trouble
	if err := p.followed.Do(ctx, func(ctx context.Context) { t = p.prove(ctx) }); err != nil {
		return err
	}
	return t.Cause()
}

// proof is what a plugin has wrapped ahead of writing, and when it was last seen to
// unwrap that.
type proof struct {
	wrapped []byte
	at      time.Time
}

// prove has the plugin wrap once, and unwrap each time, but for what is known since
// a moment ago. What comes of trying a file is told of that file, and changes
// nothing of what runs.
func (p *Provider) prove(ctx context.Context) *plugin.Trouble {
	now, last := p.opts.Clock.Now(), p.proof.Load()
	if last != nil && now.Sub(last.at) < time.Second {
		return nil
	}
	if last == nil {
		wrapped, t := p.wrap(ctx, ping)
		if t != nil {
			return t
		}
		last = &proof{wrapped: wrapped}
	}
	if t := p.unwrapPing(ctx, last.wrapped); t != nil {
		return t
	}
	p.proof.Store(&proof{last.wrapped, now})
	return nil
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
