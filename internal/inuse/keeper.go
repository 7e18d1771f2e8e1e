// Package inuse keeps what was built from one file in use: it tends it, and where the
// file is followed replaces it by what is built from each content that comes.
package inuse

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/envelope"
	"github.com/kube-atrest/atrest/internal/metrics"
	"github.com/kube-atrest/atrest/providers"
	"github.com/kube-atrest/atrest/reload"
	"github.com/kube-atrest/atrest/transformer"
)

// Options are what a [Keeper] works with. All are needed.
type Options struct {
	// Path leads to the file, and Build makes the transformers of a content of it;
	// before is as of [providers.Build].
	Path  string
	Build func(content []byte, before ...*providers.Transformers) (*providers.Transformers, error)
	// APIServerID names the server in metrics.
	APIServerID string
	Logger      klog.Logger
	Clock       clock.WithTickerAndDelayedExecution
}

// Keeper keeps transformers in use. Safe for concurrent use.
type Keeper struct {
	options    Options
	set        *reload.Set[*providers.Transformers]
	controller atomic.Pointer[reload.Controller[*providers.Transformers]] // nil while it is not followed
	changed    chan struct{}

	tending sync.Mutex // held by the one who tends what is in use

	ctx   context.Context // ends with Close
	stop  context.CancelFunc
	mu    sync.Mutex // held to begin, and to stop: nothing begins after that
	ended sync.WaitGroup
}

// Keep takes first into use, and begins to tend it. The caller closes the keeper.
func Keep(first *providers.Transformers, o Options) *Keeper {
	k := &Keeper{options: o, changed: make(chan struct{}, 1)}
	k.set = reload.NewSet(first, reload.SetOptions{Clock: o.Clock, Unreadable: unreadable})
	k.ctx, k.stop = context.WithCancel(context.Background())
	metrics.Reload{APIServerID: o.APIServerID}.Started(first.Configuration().Hash())
	k.warn(first.Configuration())
	k.Go(context.Background(), k.tend)
	return k
}

// unreadable reports whether a read failed for want of a provider or key, which the
// configuration before may have had, if only by the same name. An outage is none:
// what is wrong with the plugins in use has to be seen.
func unreadable(err error) bool {
	return errors.Is(err, transformer.ErrNoProvider) || errors.Is(err, envelope.ErrUnknownKEK) || errors.Is(err, transformer.ErrCorrupt)
}

// Now are the transformers in use.
func (k *Keeper) Now() *providers.Transformers { return k.set.Current() }

// Resources are the transformers of every resource, always those in use.
func (k *Keeper) Resources() value.ResourceTransformers { return k.set }

// Changed has a token after another content has taken effect. It is for one.
func (k *Keeper) Changed() <-chan struct{} { return k.changed }

// tendEvery is how often what was counted, and the health of KMS plugins, go into the
// metrics.
const tendEvery = 2 * time.Second

// tend tends what is in use until the keeper is closed.
func (k *Keeper) tend(ctx context.Context) {
	ticker := k.options.Clock.NewTicker(tendEvery)
	defer ticker.Stop()
	for {
		k.tending.Lock()
		k.Now().Tend(k.options.Clock.Now())
		k.tending.Unlock()
		metrics.Flush()
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
	}
}

// warn tells of what works in a configuration and is seldom meant.
func (k *Keeper) warn(c *config.Configuration) {
	counts := map[string]int{}
	for _, w := range c.Warnings() {
		counts[string(w.Kind)]++
		k.Warn(w)
	}
	metrics.ConfigWarnings(counts)
}

// Warn tells of something in the configuration in use.
func (k *Keeper) Warn(w config.Warning) {
	k.options.Logger.Info("Warning about the encryption configuration", "field", w.Path, "kind", w.Kind, "warning", w.Message)
}

// Go runs something with a context that ends with ctx, and when the keeper is closed,
// which waits for it. A keeper that is closed runs nothing.
func (k *Keeper) Go(ctx context.Context, run func(context.Context)) {
	if k.begin() {
		go k.do(ctx, run)
	}
}

// begin reports whether the keeper is open, and has Close wait for an end.
func (k *Keeper) begin() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.Ended() {
		return false
	}
	k.ended.Add(1)
	return true
}

// do does what was begun.
func (k *Keeper) do(ctx context.Context, run func(context.Context)) {
	defer k.ended.Done()
	ctx, end := context.WithCancel(ctx)
	defer end()
	defer context.AfterFunc(k.ctx, end)()
	run(ctx)
}

// Close ends what runs, waits for it, and lets go of what is in use, also in the
// metrics: reads and writes that come later fail.
func (k *Keeper) Close() {
	k.mu.Lock()
	k.stop()
	k.mu.Unlock()
	k.ended.Wait()
	k.set.Close()
	k.Now().Tend(k.options.Clock.Now()) // what was counted last
	metrics.Flush()
	k.Now().Forget()
	metrics.ConfigWarnings(nil)
}

// Ended reports whether the keeper is closed.
func (k *Keeper) Ended() bool { return k.ctx.Err() != nil }

// Wait waits until ctx ends or the keeper is closed.
func (k *Keeper) Wait(ctx context.Context) {
	if k.begin() {
		k.do(ctx, func(ctx context.Context) { <-ctx.Done() })
	}
}

// Follow follows the file until ctx ends or the keeper is closed. While it does, another
// call is refused; on a closed one it fails with [reload.ErrClosed].
func (k *Keeper) Follow(ctx context.Context) (err error) {
	if !k.begin() {
		return reload.ErrClosed
	}
	k.do(ctx, func(ctx context.Context) { err = k.follow(ctx) })
	return err
}

func (k *Keeper) follow(ctx context.Context) error {
	f := &following{Keeper: k, metrics: metrics.Reload{APIServerID: k.options.APIServerID}}
	controller, err := reload.NewController(reload.Config[*providers.Transformers]{
		Path: k.options.Path, Hash: k.Now().Configuration().Hash(), Set: k.set, Clock: k.options.Clock, Build: f.build,
		Hooks: reload.Hooks[*providers.Transformers]{Loaded: f.loaded, Failed: f.failed, Reworded: f.tellFailed, Cleared: f.cleared},
	})
	if err != nil {
		return err
	}
	if !k.controller.CompareAndSwap(nil, controller) {
		return fmt.Errorf("the encryption config at %s is followed already: install encryption in the config of one server, "+
			"and wrap the storage options of others with RESTOptions", k.options.Path)
	}
	defer k.controller.Store(nil)
	defer f.dropTried()
	controller.Run(ctx)
	return nil
}
