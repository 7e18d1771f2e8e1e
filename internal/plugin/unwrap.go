package plugin

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/singleflight"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kube-atrest/atrest/internal/hashed"
	"github.com/kube-atrest/atrest/internal/stored"
)

// What the error of a DEK that was not unwrapped means to a caller, beside
// [stored.ErrCorrupt]. See package envelope, which names them.
var (
	ErrUnavailable = errors.New("KMS plugin is unavailable")
	ErrUnknownKEK  = errors.New("KMS plugin does not know the KEK")
	// ErrForeignDEK is a stored.ErrCorrupt: the wrapped DEK is a part of the value.
	ErrForeignDEK = fmt.Errorf("%w: the KMS plugin does not take its DEK for one that it has wrapped", stored.ErrCorrupt)
)

// ErrNoKey: the plugin answered Decrypt with what cannot be a DEK. That is the
// plugin's doing, and says nothing of the value.
var ErrNoKey = errors.New("the plugin's answer is no key")

// ErrHung: the plugin did not answer a moment ago, and was not asked again.
var ErrHung = errors.New("not asked again so soon after it did not answer")

// Call is one Decrypt of a plugin, of what was wrapped under KeyID (which KMS v1
// does not have).
type Call[DEK any] struct {
	ID    string // of what is wrapped: calls of one ID are one call
	KeyID string
	// Find looks whether the DEK is known by now.
	Find func() (DEK, bool)
	// Decrypt asks the plugin, and makes the DEK of its answer. The trouble is
	// what the plugin did wrong; an answer that is no key is an error and that.
	Decrypt func(context.Context) (DEK, *Trouble, error)
}

// Unwrapper has the DEKs of one plugin unwrapped, each once for all who wait
// for it. Safe for concurrent use. Its zero value is ready.
type Unwrapper[DEK any] struct{ calls singleflight.Group }

// Unwrap makes a call, or waits for the one under way. A caller that gives up
// does not end it for the others. A plugin that did not answer is not asked again
// for as long as it took, or until it answers another, so that reading a list
// waits for it once and not for each object.
//
// The error wraps what it means ([ErrUnavailable], [ErrUnknownKEK],
// [ErrForeignDEK] or [ErrClosed]) and what it was: that of the call, with
// [ErrHung] if it was that of an earlier one, or that of ctx.
func (u *Unwrapper[DEK]) Unwrap(ctx context.Context, f *Followed, c Call[DEK]) (dek DEK, err error) {
	call := u.calls.DoChan(c.ID, func() (any, error) {
		if dek, ok := c.Find(); ok { // by a call that ended just now
			return dek, nil
		}
		return u.ask(context.WithoutCancel(ctx), f, c)
	})
	select {
	case r := <-call:
		if r.Err != nil {
			return dek, failure(c.KeyID, r.Err)
		}
		return r.Val.(DEK), nil
	case <-ctx.Done():
		return dek, fmt.Errorf("%w: gave up waiting for %s: %w", ErrUnavailable, dekUnder(c.KeyID), ctx.Err())
	}
}

// failure says what the error of a call means.
func failure(keyID string, err error) error {
	switch {
	case errors.Is(err, ErrClosed):
		return fmt.Errorf("%w: the configuration that named it was replaced", err)
	case status.Code(err) == codes.NotFound:
		return fmt.Errorf("%w: it did not unwrap %s: %w", ErrUnknownKEK, dekUnder(keyID), err)
	case status.Code(err) == codes.InvalidArgument:
		return fmt.Errorf("%w: it did not unwrap %s: %w", ErrForeignDEK, dekUnder(keyID), err)
	}
	return fmt.Errorf("%w: it did not unwrap %s; reads under DEKs seen before go on: %w", ErrUnavailable, dekUnder(keyID), err)
}

func dekUnder(keyID string) string {
	if keyID == "" {
		return "the DEK"
	}
	return "the DEK under key_id " + hashed.ID(keyID)
}

func (u *Unwrapper[DEK]) ask(ctx context.Context, f *Followed, c Call[DEK]) (dek DEK, err error) {
	if !f.Begin() {
		return dek, ErrClosed
	}
	defer f.Done()
	now := f.config.Clock.Now
	asked := now()
	if hung := f.Load().hangs(asked); hung != nil {
		return dek, fmt.Errorf("%w: %w", ErrHung, hung)
	}
	dek, trouble, err := c.Decrypt(ctx)
	if trouble != nil && OfTheValue(err) && isOther(c.KeyID, f.Load().KeyID) {
		f.Learn(func(k Known) Known { return k.Answered(nil, now()) })
		return dek, err
	}
	f.Learn(func(k Known) Known { return k.AfterUnwrap(trouble, asked, now()) })
	if trouble != nil || f.Load().Decrypt.Trouble != nil {
		f.Look()
	}
	return dek, err
}
