package kmsplugin

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/klog/v2"
)

// Destroy destroys the version of a key_id in the back end, for ever: what is wrapped under it,
// and all that is under that, is lost. Whether something still is "atrest retire" tells.
//
// It is refused of the version that is announced, pinned or not, or that the back end wraps
// with; while something is wrong; and by a back end that does not destroy. [Keeper.Run] has
// to run.
func (k *Keeper) Destroy(ctx context.Context, keyID string) error {
	done := make(chan error, 1)
	waiting, cancel := k.config.within(ctx, k.config.CallTimeout)
	defer cancel()
	select {
	case k.orders <- func() { done <- k.destroy(ctx, keyID) }:
	case <-waiting.Done():
		return fmt.Errorf("nothing was destroyed: the back end is still looked at: %w", context.Cause(waiting))
	}
	return <-done
}

// destroy runs on the goroutine that decides what is announced, so that nothing is announced
// meanwhile.
func (k *Keeper) destroy(ctx context.Context, keyID string) error {
	s := k.state.Load()
	if s.trouble != nil {
		return fmt.Errorf("nothing is destroyed while something is wrong: %w", s.trouble)
	}
	v, known := s.byKeyID[keyID]
	if !known {
		return fmt.Errorf("%w %.64q: none of the %d versions", ErrUnknownKey, keyID, s.versions)
	}
	switch v.KeyID() {
	case s.keyID: // which one that is pinned is, too
		return fmt.Errorf("%w: %s is the one that is announced: have another one wrap first", ErrInvalid, v)
	case s.writes:
		return fmt.Errorf("%w: %s is the one that the back end wraps with, and will be announced: have another one wrap first", ErrInvalid, v)
	}
	_, err := call(ctx, k, k.ahead, s.open, "destroy", func(ctx context.Context, session Session) (any, error) {
		destroyer, ok := session.(interface {
			Destroy(context.Context, Version) error
		})
		if !ok {
			return nil, fmt.Errorf("%w: this back end destroys nothing: do it with the tools of what holds the keys", errors.ErrUnsupported)
		}
		return nil, destroyer.Destroy(ctx, v)
	})
	if err != nil {
		return fmt.Errorf("%s was not destroyed, or that is not known: %w", v, err)
	}
	klog.FromContext(ctx).Info("a version was destroyed", "version", oneLine(v.Label), "keyID", v.KeyID())
	return nil
}
