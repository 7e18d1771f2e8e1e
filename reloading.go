package atrest

import (
	"context"
	"fmt"
	"time"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/internal/metrics"
	"github.com/kube-atrest/atrest/providers"
	"github.com/kube-atrest/atrest/reload"
)

// Run follows the file until ctx ends, or e is closed, if automatic reload is on.
// Call it from a hook that runs after the server has started. A second call is
// refused: one server follows the file for all that are stored through e.
func (e *Encryption) Run(ctx context.Context) error {
	if e == nil || !e.options.AutomaticReload {
		<-ctx.Done()
		return nil
	}
	if !e.followed.CompareAndSwap(false, true) {
		return fmt.Errorf("the encryption config at %s is followed already: install encryption in the config of one server, "+
			"and wrap the storage options of others with RESTOptions", e.options.ConfigFile)
	}
	e.ended.Add(1)
	defer e.ended.Done()
	ctx, end := e.whileOpen(ctx)
	defer end()
	r := &reloading{Encryption: e, metrics: metrics.Reload{APIServerID: e.apiServerID}}
	defer r.dropTried()
	controller, err := reload.NewController(reload.Config{
		Path: e.options.ConfigFile, Hash: e.hash, Set: e.set, Clock: e.clock, Build: r.build,
		Hooks: reload.Hooks{Loaded: r.loaded, Failed: r.failed, Reworded: r.tellFailed, Cleared: r.cleared},
	})
	if err != nil {
		return err
	}
	e.controller.Store(controller)
	controller.Run(ctx)
	return nil
}

// whileOpen is ctx until e is closed.
func (e *Encryption) whileOpen(ctx context.Context) (_ context.Context, end func()) {
	ctx, cancel := context.WithCancel(ctx)
	forget := context.AfterFunc(e.ctx, cancel)
	return ctx, func() { forget(); cancel() }
}

// reloading is what the controller works with.
type reloading struct {
	*Encryption
	metrics metrics.Reload
	// Of one build at a time: what is in use, and the transformers that were
	// built last and are not, because a plugin was not ready. Those are held
	// until the next are built, so that a try costs the plugins that are ready
	// nothing anew.
	before, tried *providers.Transformers
}

// build makes the generation that is to replace the one in use.
func (r *reloading) build(ctx context.Context, content []byte) (reload.Generation, error) {
	r.before = r.inUse()
	built, err := r.Encryption.build(content, r.before, r.tried)
	r.dropTried()
	if err != nil {
		return nil, err
	}
	if err := built.Prepare(ctx); err != nil {
		r.tried = built
		return nil, err
	}
	return built, nil
}

func (r *reloading) dropTried() {
	if r.tried != nil {
		r.tried.Close()
		r.tried = nil
	}
}

func (r *reloading) loaded(s reload.Status) {
	inUse := r.inUse()
	r.metrics.Succeeded(s.Hash)
	r.logger.Info("Reloaded the encryption configuration", "file", r.options.ConfigFile, "hash", s.Hash)
	for _, change := range config.Diff(r.before.Configuration(), inUse.Configuration()) {
		r.logger.Info("Encryption changed", "change", change.String())
	}
	r.warn(inUse.Configuration())
	select {
	case r.reloaded <- struct{}{}:
	default: // it was not looked at since the one before
	}

	r.tending.Lock()
	defer r.tending.Unlock()
	for _, removed := range r.before.Removed(inUse, r.clock) {
		r.logger.Info("Removed from the encryption configuration after it was read with: "+
			"values that still need it can no longer be read, put it back as a reader if there are any",
			"removed", removed.Name, "reads", removed.Reads, "lastReadAgo", r.clock.Since(removed.LastRead).Round(time.Second))
	}
	r.before = nil
}

func (r *reloading) failed(s reload.Status) {
	if s.FailedHash == "" {
		r.dropTried() // there is no content that would be tried again
	}
	r.metrics.Failed()
	r.tellFailed(s)
}

func (r *reloading) tellFailed(s reload.Status) {
	r.logger.Error(s.LastError, "Kept the encryption configuration in use", "hash", s.Hash, "refusedHash", s.FailedHash, "retrying", s.Retrying)
}

func (r *reloading) cleared(s reload.Status) {
	r.dropTried()
	r.logger.Info("The file holds the encryption configuration in use again", "file", r.options.ConfigFile, "hash", s.Hash)
}
