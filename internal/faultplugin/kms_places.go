package faultplugin

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// places is how many calls [LeaksSlots] and [Hangs] leave room for.
const places = 32

// work is how long a call of the KMS takes in a place: most of the time that the plugin's takes.
const work = 10 * time.Millisecond

// enter takes a place among the calls of a method, where that is what leaks them.
func (p *KMS) enter(ctx context.Context, leaks Flaw) (leave func(), err error) {
	if p.flaws[FarAway] {
		select {
		case <-ctx.Done():
			return nil, status.FromContextError(ctx.Err()).Err()
		case <-time.After(5 * work):
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.flaws[MixesCallers] && leaks == LeaksSlots:
		p.running++
		running := p.running
		p.mu.Unlock()
		time.Sleep(work) // the KMS takes a while
		p.mu.Lock()
		if running > 16 {
			err = status.Error(codes.Unknown, "another call is on this connection to the KMS")
			p.running--
		}
		return func() { p.mu.Lock(); p.running--; p.mu.Unlock() }, err
	case p.flaws[leaks]:
		slots := p.slots
		p.mu.Unlock()
		defer p.mu.Lock()
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return nil, status.FromContextError(ctx.Err()).Err()
		}
		select { // the KMS takes a while
		case <-ctx.Done():
			return nil, status.FromContextError(ctx.Err()).Err()
		case <-time.After(work):
			return func() { <-slots }, nil
		}
	}
	return func() {}, nil
}

// hang waits, as [Hangs] has it, for the trouble to end, in one of a few places.
func (p *KMS) hang() {
	p.mu.Lock()
	mended, slots := p.mended, p.slots
	p.mu.Unlock()
	if p.flaws[Hangs] && mended != nil {
		slots <- struct{}{}
		<-mended
		<-slots
	}
}

// keepsPlace takes a place and gives it back when the trouble has ended, whatever becomes of the call.
func (p *KMS) keepsPlace(ctx context.Context) {
	p.mu.Lock()
	mended, slots := p.mended, p.slots
	p.mu.Unlock()
	select {
	case slots <- struct{}{}:
		go func() { <-mended; <-slots }()
	case <-ctx.Done():
	}
}
