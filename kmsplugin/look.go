package kmsplugin

import (
	"context"
	"fmt"
	"time"
)

// soon is how soon after a look another one is made because a call asks for it.
const soon = time.Second

// ask is for a look.
type ask struct {
	probe bool          // with a test DEK, whenever the last one was
	done  chan struct{} // closed when the look is over, if somebody waits
}

// look has the versions looked at again, and waits until that is done: for a look that begins
// after this call. It is an error if there is none in time.
func (k *Keeper) look(ctx context.Context, a ask) error {
	ctx, cancel := k.config.within(ctx, k.config.CallTimeout)
	defer cancel()
	a.done = make(chan struct{})
	select {
	case k.asks <- a:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case <-a.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// nudge has the versions looked at again, and waits for nothing.
func (k *Keeper) nudge(a ask) {
	select {
	case k.asks <- a:
	default: // it looks already
	}
}

// Check has the back end looked at now, with a DEK that is wrapped and unwrapped as a test, and
// returns what Status tells then. Those who call meanwhile share a look, and there is at most
// one a second. If it takes longer than [Config.CallTimeout] that is an error.
func (k *Keeper) Check(ctx context.Context) error {
	if err := k.look(ctx, ask{probe: true}); err != nil {
		return fmt.Errorf("the back end was not looked at in time: %w", err)
	}
	_, err := k.Status(ctx)
	return err
}
