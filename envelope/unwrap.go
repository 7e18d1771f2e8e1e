package envelope

import (
	"bytes"
	"context"
	"fmt"

	"k8s.io/apiserver/pkg/storage/value"

	"github.com/kube-atrest/atrest/internal/plugin"
	"github.com/kube-atrest/atrest/internal/stored"
)

// openCold reads the whole object, finds or unwraps its DEK, and opens it.
func (p *Provider) openCold(ctx context.Context, payload []byte, at value.Context) ([]byte, bool, error) {
	object, err := stored.Parse(payload)
	if err != nil {
		return nil, false, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	raw := rawTail(payload, &object)
	dek := p.cache.findSource(&object.Source, raw)
	if dek == nil {
		if dek, err = p.unwrap(ctx, &object.Source, raw); err != nil {
			return p.openDoubted(&object, raw, at, err)
		}
	}
	plaintext, stale, err := p.openWith(dek, p.writer.now.Load(), object.Data, at)
	if err != nil && !dek.proven.Load() {
		return p.openDoubted(&object, raw, at, err)
	}
	return plaintext, stale, err
}

// openDoubted opens an object whose DEK was not unwrapped, or to what does not open it,
// with the one in doubt, if there is one. If that does not open it either, nothing more
// is known than before.
func (p *Provider) openDoubted(o *stored.Object, raw []byte, at value.Context, cause error) ([]byte, bool, error) {
	dek := p.doubted.find(o.Source.Tail())
	if dek == nil {
		return nil, false, cause
	}
	if plaintext, err := dek.open(o.Data, at.AuthenticatedData()); err != nil {
		clear(plaintext)
		return nil, false, cause
	}
	p.cache.addSource(&o.Source, raw, dek)
	return p.openWith(dek, p.writer.now.Load(), o.Data, at)
}

// rawTail is the part of payload by which [Provider.Open] will find the DEK of
// such an object the next time, or nil when its data does not come first and
// last: then looking at the rest is not enough to read it.
func rawTail(payload []byte, o *stored.Object) []byte {
	data, tail, ok := stored.Split(payload)
	if !ok || len(data) == 0 || &data[0] != &o.Data[0] {
		return nil
	}
	return tail
}

// unwrap has the plugin unwrap a DEK, once for all who wait for it. As the call
// may outlast its caller, it has a copy of raw.
func (p *Provider) unwrap(ctx context.Context, s *stored.DEKSource, raw []byte) (*knownDEK, error) {
	raw = bytes.Clone(raw)
	return p.unwraps.Unwrap(ctx, p.followed, plugin.Call[*knownDEK]{
		ID: string(s.Tail()), KeyID: s.KeyID,
		Find: func() (*knownDEK, bool) {
			dek := p.cache.findSource(s, raw)
			return dek, dek != nil
		},
		Decrypt: func(ctx context.Context) (*knownDEK, *plugin.Trouble, error) {
			dek, t, err := p.callDecrypt(ctx, s)
			if err != nil && !plugin.OfTheValue(err) {
				p.samples.Refused(s)
			}
			if err != nil {
				return nil, t, err
			}
			if !p.era.isOver(dek) {
				p.samples.Unwrapped(s, s.KeyID == p.followed.Load().KeyID)
			}
			p.cache.addSource(s, raw, dek)
			p.opts.Observer.DEKUnwrapped(p.cache.len())
			return dek, nil, nil
		},
	})
}

// callDecrypt asks the plugin for a DEK.
func (p *Provider) callDecrypt(ctx context.Context, s *stored.DEKSource) (*knownDEK, *plugin.Trouble, error) {
	era := p.era.now.Load()
	secret, err := p.plugin.Decrypt(ctx, wrappedOf(s))
	if err != nil {
		return nil, plugin.TroubleOf("decrypt", err), err
	}
	defer clear(secret)
	open, err := newOpener(s.Type, secret)
	if err != nil {
		err = fmt.Errorf("%w: %w", plugin.ErrNoKey, err)
		return nil, plugin.Troublef(BadAnswer, "decrypt: %w", err), err
	}
	return p.newDEK(open, s.KeyID, fingerprintOf(secret), era), nil, nil
}

// newDEK is a DEK that the plugin unwrapped in an era.
func (p *Provider) newDEK(open opener, keyID string, f fingerprint, era uint32) *knownDEK {
	dek := &knownDEK{opener: open, keyID: keyID, fingerprint: f, since: p.opts.Clock.Now(), use: p.usage.of(keyID)}
	dek.era.Store(era)
	return dek
}
