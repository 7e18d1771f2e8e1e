package inuse

import (
	"context"
	"time"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/healthz"
	"github.com/kube-atrest/atrest/internal/metrics"
	"github.com/kube-atrest/atrest/providers"
	"github.com/kube-atrest/atrest/reload"
)

// Status is how following the file goes; nil before it is followed.
func (k *Keeper) Status() *healthz.Reload {
	c := k.controller.Load()
	if c == nil {
		return nil
	}
	r := c.Status()
	s := &healthz.Reload{LoadedAt: r.LoadedAt, Outcome: healthz.Loaded, FailedHash: r.FailedHash, FailedSince: r.FailedSince, Retrying: r.Retrying}
	if r.LastError != nil {
		s.Outcome, s.Error = healthz.Failed, r.LastError.Error()
	}
	if r.Building != "" && r.Building != r.FailedHash {
		s.Outcome, s.BuildingHash = healthz.Building, r.Building
	}
	if r.WatchError != nil {
		s.NoEvents = r.WatchError.Error()
	}
	return s
}

// following is what the controller works with.
type following struct {
	*Keeper
	metrics metrics.Reload
	// tried are those that were built last and are not in use, as a plugin was not
	// ready. They are held until the next are built, so that a try costs the plugins
	// that are ready nothing anew.
	tried *providers.Transformers
}

// build makes the generation that is to replace the one in use.
func (f *following) build(ctx context.Context, content []byte) (*providers.Transformers, error) {
	built, err := f.options.Build(content, f.Now(), f.tried)
	f.dropTried()
	if err != nil {
		return nil, err
	}
	if err := built.Prepare(ctx); err != nil {
		f.tried = built
		return nil, err
	}
	return built, nil
}

func (f *following) dropTried() {
	if f.tried != nil {
		f.tried.Close()
		f.tried = nil
	}
}

func (f *following) loaded(before *providers.Transformers, s reload.Status) {
	now := f.Now()
	f.metrics.Succeeded(s.Hash)
	f.options.Logger.Info("Reloaded the encryption configuration", "file", f.options.Path, "hash", s.Hash)
	for _, change := range config.Diff(before.Configuration(), now.Configuration()) {
		f.options.Logger.Info("Encryption changed", "change", change.String())
	}
	f.warn(now.Configuration())
	select {
	case f.changed <- struct{}{}:
	default: // it was not looked at since the one before
	}

	f.tending.Lock()
	defer f.tending.Unlock()
	for _, removed := range before.Removed(now, f.options.Clock) {
		f.options.Logger.Info("Removed from the encryption configuration after it was read with: "+
			"values that still need it can no longer be read, put it back as a reader if there are any",
			"removed", removed.Name, "reads", removed.Reads, "lastReadAgo", f.options.Clock.Since(removed.LastRead).Round(time.Second))
	}
}

func (f *following) failed(s reload.Status) {
	if s.FailedHash == "" {
		f.dropTried() // there is no content that would be tried again
	}
	f.metrics.Failed()
	f.tellFailed(s)
}

func (f *following) tellFailed(s reload.Status) {
	f.options.Logger.Error(s.LastError, "Kept the encryption configuration in use", "hash", s.Hash, "refusedHash", s.FailedHash, "retrying", s.Retrying)
}

func (f *following) cleared(s reload.Status) {
	f.dropTried()
	f.options.Logger.Info("The file holds the encryption configuration in use again", "file", f.options.Path, "hash", s.Hash)
}
