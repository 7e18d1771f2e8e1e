package kmsplugin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
)

var _ Service = (*Keeper)(nil)

// A Keeper makes a [Service] of a [Backend]. One goroutine, [Keeper.Run], opens it, asks for
// its versions and decides which is announced; calls of apiservers read what it found
// from one pointer. So Status is cheap and waits for nobody, Encrypt wraps under the
// very version that Status named, and no Decrypt changes what is announced.
type Keeper struct {
	backend Backend
	config  Config
	turns   chan struct{} // one for each call of the session that may run
	ahead   chan struct{} // turns that are given to a look before anybody else
	asks    chan ask
	orders  chan func() // what the goroutine does between two looks
	state   atomic.Pointer[state]
	running atomic.Bool
	first   chan struct{} // closed when it was looked at once
}

// state is what the last look found. It is read-only.
type state struct {
	open *opened // nil until a session was opened
	// byKeyID are the versions that unwrap, by all key_ids that they have.
	byKeyID    map[string]Version
	announcing announcing
	keyID      string // of what is announced, empty if nothing is
	writes     string // key_id of what the back end wraps with, announced or not yet
	versions   int    // that unwrap
	partial    bool   // there may be others
	withheld   error  // why others there are do not unwrap, or nil
	// ever are the versions that were not seen to be gone, by key_id.
	ever    map[string]Version
	trouble error // why nothing is wrapped, or nil
	probed  time.Time
}

// errStarting is told until the back end was opened and looked at once.
var errStarting = fmt.Errorf("%w: the plugin starts, and has not reached its keys yet", ErrUnavailable)

// NewKeeper makes a Keeper, which answers that it starts until [Keeper.Run] has come further.
func NewKeeper(backend Backend, config Config) (*Keeper, error) {
	config = config.withDefaults()
	if err := config.check(); err != nil {
		return nil, err
	}
	if backend == nil {
		return nil, errors.New("kmsplugin: no back end to keep")
	}
	k := &Keeper{
		backend: backend, config: config, turns: make(chan struct{}, config.Concurrency), ahead: make(chan struct{}),
		asks: make(chan ask), orders: make(chan func()), first: make(chan struct{}),
	}
	k.state.Store(&state{trouble: errStarting})
	return k, nil
}

// Status tells the key_id that is announced, or what is wrong.
func (k *Keeper) Status(context.Context) (string, error) {
	s := k.state.Load()
	return s.keyID, s.trouble
}

// Encrypt wraps under the version that Status names.
func (k *Keeper) Encrypt(ctx context.Context, _ string, plaintext []byte) (Sealed, error) {
	if err := checkPlaintext(plaintext); err != nil {
		return Sealed{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	for {
		s := k.state.Load()
		if s.trouble != nil {
			return Sealed{}, s.trouble
		}
		sealed, err := k.wrap(ctx, nil, s.open, *s.announcing.version, plaintext)
		if errors.Is(err, errClosed) && ctx.Err() == nil && k.state.Load() != s {
			continue // another session took over
		}
		if err != nil {
			k.nudge(ask{probe: true}) // it may still tell its versions, and not wrap
			return Sealed{}, err
		}
		return sealed, nil
	}
}

// wrap wraps under a version, and takes nothing else for it.
func (k *Keeper) wrap(ctx context.Context, ahead <-chan struct{}, o *opened, v Version, plaintext []byte) (Sealed, error) {
	type wrapped struct {
		ciphertext []byte
		used       Version
	}
	keyID := v.KeyID()
	dek := bytes.Clone(plaintext) // the session may have it for longer than the caller waits
	w, err := call(ctx, k, ahead, o, "wrap", func(ctx context.Context, s Session) (w wrapped, err error) {
		defer clear(dek)
		w.ciphertext, w.used, err = s.Wrap(ctx, v, dek, []byte(keyID))
		return w, err
	})
	if err != nil {
		return Sealed{}, err
	}
	if w.used.KeyID() != keyID {
		return Sealed{}, fmt.Errorf("%w: it was wrapped under %s and not under %s, which is announced: it is thrown away, and the versions are looked at again", ErrUnavailable, w.used, v)
	}
	return Sealed{Ciphertext: w.ciphertext, KeyID: keyID}, nil
}

// Decrypt unwraps with the version of a key_id. If none is known the versions are looked
// at again, at most once a second. All of it has the time of one call.
func (k *Keeper) Decrypt(ctx context.Context, _ string, sealed Sealed) ([]byte, error) {
	if len(sealed.Annotations) > 0 {
		return nil, fmt.Errorf("%w: it carries annotations, which this plugin never makes: it was changed, or another plugin wrapped it", ErrInvalid)
	}
	ctx, cancel := k.config.within(ctx, k.config.CallTimeout)
	defer cancel()
	for {
		s := k.state.Load()
		v, known := s.byKeyID[sealed.KeyID]
		var unseen error
		if !known {
			unseen = k.look(ctx, ask{}) // what it finds is in the state
			s = k.state.Load()
			v, known = s.byKeyID[sealed.KeyID]
		}
		switch {
		case !known && ofOneValue(s.trouble):
			// What is wrong with the back end's own key, or with a test DEK, says nothing of this one.
			return nil, fmt.Errorf("%w: key_id %.64q is not known, and the versions cannot be looked at: %v", ErrUnavailable, sealed.KeyID, s.trouble)
		case !known && s.trouble != nil:
			return nil, fmt.Errorf("key_id %.64q is not known, and the versions cannot be looked at: %w", sealed.KeyID, s.trouble)
		case !known && unseen != nil:
			return nil, fmt.Errorf("key_id %.64q is not known, and the versions were not looked at in time: %w", sealed.KeyID, unseen)
		case !known && s.withheld != nil:
			return nil, fmt.Errorf("key_id %.64q is none of the %d versions that unwrap, and there are others: %w", sealed.KeyID, len(s.byKeyID), s.withheld)
		case !known && s.partial:
			return nil, fmt.Errorf("%w: key_id %.64q is none of the %d versions that were seen, and not all that may have it could be asked", ErrUnavailable, sealed.KeyID, len(s.byKeyID))
		case !known:
			return nil, fmt.Errorf("%w %.64q: none of the %d versions: if it was trimmed or deleted, bring it back; if another plugin wrapped this, serve that one under the provider's name", ErrUnknownKey, sealed.KeyID, len(s.byKeyID))
		}
		plaintext, err := k.unwrap(ctx, nil, s.open, v, sealed)
		if errors.Is(err, errClosed) && ctx.Err() == nil && k.state.Load() != s {
			continue
		}
		if err != nil && s.trouble != nil {
			k.nudge(ask{}) // somebody waits for the end of the trouble
		}
		return plaintext, err
	}
}

// ofOneValue reports whether an error, as it crosses the socket, tells of a value that it can never
// be unwrapped.
func ofOneValue(err error) bool {
	code := CodeOf(err)
	return code == codes.NotFound || code == codes.InvalidArgument
}

// unwrap unwraps with a version.
func (k *Keeper) unwrap(ctx context.Context, ahead <-chan struct{}, o *opened, v Version, sealed Sealed) ([]byte, error) {
	return call(ctx, k, ahead, o, "unwrap", func(ctx context.Context, s Session) ([]byte, error) {
		dek, err := s.Unwrap(ctx, v, sealed.Ciphertext, []byte(sealed.KeyID))
		if ctx.Err() != nil { // nobody waits for it any more
			clear(dek)
			return nil, context.Cause(ctx)
		}
		return dek, err
	})
}

// call calls a session when it is its turn. The caller has an answer when ctx ends, and the
// turn is over when the session has returned. Those who come with [Keeper.ahead], and not nil,
// go before all that wait: many calls are no trouble of the back end.
func call[T any](ctx context.Context, k *Keeper, ahead <-chan struct{}, o *opened, operation string, f func(context.Context, Session) (T, error)) (value T, err error) {
	var none T
	ctx, cancel := k.config.within(ctx, k.config.CallTimeout)
	defer cancel()
	select {
	case k.turns <- struct{}{}:
	case <-ahead:
	case <-ctx.Done():
		return none, fmt.Errorf("%w: all %d calls that may run at once do: %w", ErrThrottled, k.config.Concurrency, context.Cause(ctx))
	}
	began := k.began()
	defer func() { k.called(operation, began, err) }()
	return answered(ctx, func(ctx context.Context) (value T, err error) {
		defer k.turnOver()
		inUse := o.use(func(s Session) error {
			value, err = f(ctx, s)
			return nil
		})
		return value, errors.Join(inUse, err)
	}, nil)
}

// turnOver lets the next one call.
func (k *Keeper) turnOver() {
	select {
	case k.ahead <- struct{}{}:
	default:
		<-k.turns
	}
}
