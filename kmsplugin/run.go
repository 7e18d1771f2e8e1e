package kmsplugin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

// Run opens the back end and keeps up with it until ctx ends; then it closes it. It has to
// run while the Service is served, and is called once. Log lines go to the logger in
// ctx.
func (k *Keeper) Run(ctx context.Context) error {
	if !k.running.CompareAndSwap(false, true) {
		return errors.New("kmsplugin: Run was called before: make another Keeper")
	}
	r := &runner{Keeper: k, retry: firstRetry, log: reporter{logger: klog.FromContext(ctx), clock: k.config.Clock}}
	for ctx.Err() == nil {
		r.turn(ctx)
		r.answer()
		r.wait(ctx)
	}
	k.state.Store(k.state.Load().with(fmt.Errorf("%w: the plugin stops", ErrUnavailable)))
	r.answer()
	r.end(context.WithoutCancel(ctx))
	return nil
}

// Start has [Keeper.Run] run until stop is called, and returns when the back end was looked at
// once, or a second later: a quick one never shows an apiserver that it starts. The values
// in ctx hold for as long, its end does not. stop waits for the end of Run; it has its
// place after the end of [Server.Serve].
func (k *Keeper) Start(ctx context.Context) (stop func() error) {
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- k.Run(running) }()
	timer := k.config.Clock.NewTimer(soon)
	defer timer.Stop()
	select {
	case <-k.first:
	case <-timer.C():
	case <-ctx.Done():
	}
	return sync.OnceValue(func() error { cancel(); return <-ended })
}

// runner is the one goroutine that changes the state of a Keeper.
type runner struct {
	*Keeper
	open    *opened
	coming  *coming           // another one, until it is there
	ready   *opened           // the same then, until it tells its versions
	late    []<-chan struct{} // each closed when nothing is left of one that came too late
	failed  error             // why the last one could not be opened, or nil
	tried   time.Time         // when that began
	looked  time.Time         // when it was looked last
	retry   time.Duration
	started sync.Once
	asked   []chan struct{} // to be closed when the next look is over
	probes  bool            // the next look does, whenever the last one did
	log     reporter
	closing sync.WaitGroup
}

// firstRetry is how soon something that is wrong is looked at again; each time twice as
// late, and at last every [Config.Poll].
const firstRetry = time.Second

// turn looks at everything once.
func (r *runner) turn(ctx context.Context) {
	before := r.state.Load()
	r.looked = r.config.Clock.Now()
	after, replaced := r.next(ctx, before)
	if ctx.Err() != nil {
		r.drop(context.WithoutCancel(ctx), replaced)
		return
	}
	r.state.Store(after)
	r.drop(ctx, replaced)
	r.report(before, after)
	if after.trouble == nil && !r.open.isOver() {
		r.retry = firstRetry
	}
}

// next is the state after a look, and the session that is of no use any more.
func (r *runner) next(ctx context.Context, before *state) (after *state, replaced *opened) {
	found, replaced, trouble := r.versions(ctx)
	if trouble != nil && len(found.All) == 0 {
		after = before.with(trouble)
		after.open = r.open
		return after, replaced
	}
	byKeyID, err := found.byKeyID()
	if err != nil {
		after = before.with(err)
		after.open = r.open
		return after, replaced
	}
	after = &state{open: r.open, byKeyID: byKeyID, versions: len(found.All), announcing: before.announcing, keyID: before.keyID, probed: before.probed, partial: found.Partial, withheld: found.Withheld, ever: byKeyID}
	if trouble != nil || found.Partial {
		after.ever = before.together(byKeyID)
	}
	if trouble != nil {
		after.trouble = trouble
		return after, replaced
	}
	now := r.config.Clock.Now()
	if after.announcing, err = before.announcing.next(found, r.config, now); err != nil {
		after.trouble = err
		return after, replaced
	}
	after.keyID, after.writes = after.announcing.version.KeyID(), found.All[found.Writes].KeyID()
	if r.probes || before.trouble != nil || after.keyID != before.keyID || now.Sub(before.probed) >= r.config.Probe {
		if after.trouble = r.probe(ctx, r.open, *after.announcing.version); after.trouble == nil {
			after.probed = now
		}
	}
	return after, replaced
}

// together are the versions of before and those that were seen now.
func (s *state) together(now map[string]Version) map[string]Version {
	all := maps.Clone(now)
	for keyID, v := range s.ever {
		if _, has := all[keyID]; !has {
			all[keyID] = v
		}
	}
	return all
}

// with is the state with something wrong. What unwraps goes on to.
func (s *state) with(trouble error) *state {
	after := *s
	after.trouble = trouble
	return &after
}

// ask asks a session for its versions. Its ctx ends before the call does: what the session has
// found by then unwraps, and would be lost with the call.
func (r *runner) ask(ctx context.Context, o *opened) (Versions, error) {
	early, cancel := r.config.within(ctx, r.config.CallTimeout-r.config.CallTimeout/10)
	defer cancel()
	return call(ctx, r.Keeper, r.ahead, o, "versions", func(_ context.Context, s Session) (Versions, error) {
		found, err := s.Versions(early)
		return found, withCause(early, err)
	})
}

// probe has a session wrap and unwrap something under a version. It need not be secret, and is not zeros,
// which a back end that does nothing would return.
func (r *runner) probe(ctx context.Context, o *opened, v Version) error {
	dek := []byte("as long as a DEK, used for none.")
	sealed, err := r.wrap(ctx, r.ahead, o, v, dek)
	if err != nil {
		return fmt.Errorf("a test DEK cannot be wrapped: %w", err)
	}
	got, err := r.unwrap(ctx, r.ahead, o, v, sealed)
	switch {
	case err != nil:
		return fmt.Errorf("a test DEK that was wrapped cannot be unwrapped: %w", err)
	case !bytes.Equal(got, dek):
		return fmt.Errorf("%w: a test DEK came back as another one: nothing is wrapped with this back end", ErrUnavailable)
	}
	return nil
}

// wait returns when there is something to look at, and keeps who asked for it. It does not for
// who asks less than [soon] after the last look: that would have the back end asked as
// often as somebody names key_ids that there are not.
func (r *runner) wait(ctx context.Context) {
	every := r.config.Poll
	var over, came <-chan struct{}
	if r.state.Load().trouble != nil || r.open.isOver() {
		every = min(r.retry, every)
		r.retry = 2 * every
	} else {
		over = r.open.ended
	}
	if r.coming != nil {
		came = r.coming.done
	}
	timer := r.config.Clock.NewTimer(every)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
		case <-timer.C():
		case <-over:
		case <-came:
		case order := <-r.orders:
			order()
		case asked := <-r.asks:
			r.take(asked)
			r.retry = soon // if it is trouble still, somebody waits for its end
			if early := soon - r.config.Clock.Since(r.looked); early > 0 {
				if early < every {
					timer.Reset(early)
				}
				continue
			}
		}
		return
	}
}

// take keeps what is asked for until the next look.
func (r *runner) take(asked ask) {
	r.probes = r.probes || asked.probe
	if asked.done != nil {
		r.asked = append(r.asked, asked.done)
	}
}

// answer lets those go on who asked for a look.
func (r *runner) answer() {
	for _, asked := range r.asked {
		close(asked)
	}
	r.asked, r.probes = nil, false
	r.started.Do(func() { close(r.first) })
}

// drop closes a session once its calls have returned, and waits for nobody.
func (r *runner) drop(ctx context.Context, o *opened) {
	if o == nil {
		return
	}
	r.closing.Go(func() {
		ctx, cancel := r.config.within(context.WithoutCancel(ctx), r.config.CallTimeout)
		defer cancel()
		began := r.began()
		_, err := answered(ctx, func(ctx context.Context) (any, error) { return nil, o.close(ctx) }, nil)
		r.called("close", began, err)
		if err != nil {
			klog.FromContext(ctx).Error(bounded(err), "a session could not be closed")
		}
	})
}
