//go:build cgo

package pkcs11

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/kube-atrest/atrest/kmsplugin"
)

// gate lets one in at a time. Who comes while one is in for whom nobody waits any more is told so
// at once, as a call of the module may never return.
type gate struct {
	place chan struct{}
	late  atomic.Int32
}

func newGate() *gate { return &gate{place: make(chan struct{}, 1)} }

// enter waits as long as ctx lasts; who enters is waited for as long as until does.
func (g *gate) enter(ctx, until context.Context) (leave func(), err error) {
	select {
	case g.place <- struct{}{}:
		return g.leave(until), nil
	default:
	}
	if g.late.Load() > 0 {
		return nil, errHang
	}
	select {
	case g.place <- struct{}{}:
		return g.leave(until), nil
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: a call that was made before has not returned: %w", kmsplugin.ErrUnavailable, context.Cause(ctx))
	}
}

func (g *gate) leave(until context.Context) func() {
	inTime := context.AfterFunc(until, func() { g.late.Add(1) })
	return func() {
		if !inTime() {
			g.late.Add(-1)
		}
		<-g.place
	}
}
