package providers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kube-atrest/atrest/envelope"
)

// Prepare asks every plugin that some resource begins to be written with: it
// has to be well, and must have wrapped and unwrapped a DEK. All are asked at
// once, and again those whose answer is old by the time when the last has answered.
// It returns a [NotReady] error if one of them cannot be written with yet, and
// that of ctx if it ends. Nothing changes of what runs, and what was made ready is
// kept for as long as somebody holds the plugin. Plugins that write for the same
// resources as before, and those that are only read with, are not waited for: the
// file makes nothing worse for them.
func (t *Transformers) Prepare(ctx context.Context) error {
	gaining := t.gaining()
	err := prepare(ctx, gaining)
	if err == nil && len(gaining) > 1 {
		err = prepare(ctx, gaining) // this calls nobody who has answered within the last second
	}
	return err
}

// prepare asks plugins once, all at once.
func prepare(ctx context.Context, plugins []*pluginUse) error {
	errs := make([]error, len(plugins))
	var asked sync.WaitGroup
	for i, u := range plugins {
		asked.Go(func() { errs[i] = u.source.Prepare(ctx) })
	}
	asked.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	for i, err := range errs {
		if err == nil { // what is known of it by now, while others were asked
			err = plugins[i].source.Ailing()
		}
		if err != nil {
			errs[i] = &NotReady{Names: plugins[i].names(), Cause: err}
		}
	}
	return errors.Join(errs...)
}

// gaining are the plugins that some resource is written with, which is written
// with another or none by what t replaces.
func (t *Transformers) gaining() []*pluginUse {
	var all []*pluginUse
	for _, r := range t.resources() {
		u := t.writerOf(r)
		if u == nil || slices.Contains(all, u) {
			continue
		}
		if before := t.replaces.writerOf(r); before == nil || before.id != u.id {
			all = append(all, u)
		}
	}
	return all
}

// resources are those that t, or what it replaces, has a rule for.
func (t *Transformers) resources() []schema.GroupResource {
	var all []schema.GroupResource
	for _, from := range []*Transformers{t, t.replaces} {
		if from == nil {
			continue
		}
		for _, rule := range from.configuration.Rules() {
			all = append(all, rule.Resource)
		}
	}
	return all
}

// writerOf is the plugin that a resource is written with, nil if there is none.
func (t *Transformers) writerOf(r schema.GroupResource) *pluginUse {
	if t == nil {
		return nil
	}
	providers := t.configuration.For(r)
	if len(providers) == 0 {
		return nil
	}
	i := slices.IndexFunc(t.plugins, func(u *pluginUse) bool { return slices.Contains(u.providers, providers[0]) })
	if i < 0 {
		return nil
	}
	return t.plugins[i]
}

// Commit takes the transformers into use in the place of those that they were
// built to replace; swap does that for whoever reads and writes. The plugins get
// the roles and names that this file has for them: what begins to write does so
// before the swap, and what no longer writes ends after it. The state of plugins
// that are not in the file is gone from the metrics. It waits for nobody; call
// it once.
func (t *Transformers) Commit(swap func()) {
	removed := t.removedPlugins()
	t.countSoFar()
	for _, u := range removed {
		u.observer.forget()
	}
	for _, u := range t.plugins {
		u.observer.forgetUnless(u.name())
	}
	for _, u := range t.plugins {
		u.observer.rename(u.name())
		if u.counts {
			u.observer.record(u.observer.recorded.useAgain)
		}
		if u.role() == envelope.Writes {
			u.source.SetRole(envelope.Writes)
		}
	}
	swap()
	for _, u := range t.plugins {
		u.source.SetRole(u.role())
	}
	for _, u := range removed {
		u.source.SetRole(envelope.Idle)
	}
	t.replaces = nil
}

// countSoFar has what was counted so far recorded by the former names.
func (t *Transformers) countSoFar() {
	if t.replaces == nil {
		return
	}
	for _, u := range t.replaces.plugins {
		u.count()
	}
}

// removedPlugins are those of what t replaces that t does not have.
func (t *Transformers) removedPlugins() []*pluginUse {
	if t.replaces == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(t.replaces.plugins), func(u *pluginUse) bool { return t.use(u.id) != nil })
}

// Forget is for the end of what is in use, when nothing replaces it: the state of
// its plugins is gone from the metrics, and nothing more is recorded of them.
func (t *Transformers) Forget() {
	for _, u := range t.plugins {
		u.observer.forget()
	}
}

// Ask has every plugin asked how it is now, all at once, and waits for the
// answers or for ctx. One that was asked within the last second is not asked
// again.
func (t *Transformers) Ask(ctx context.Context) {
	var asked sync.WaitGroup
	for _, u := range t.plugins {
		asked.Go(func() { _ = u.source.Ask(ctx) }) // what comes of it is in its health
	}
	asked.Wait()
}

// NotReady says that a KMS plugin that is to be written with is not healthy.
type NotReady struct {
	// Names are those of the providers on the plugin.
	Names []string
	Cause error
}

// Error names the providers and the cause.
func (e *NotReady) Error() string {
	return fmt.Sprintf("kms provider %q is to write and is not healthy: %v", e.Names, e.Cause)
}

// Unwrap gives the cause.
func (e *NotReady) Unwrap() error { return e.Cause }

// Retryable is true: the same file may work once the plugin is healthy.
func (e *NotReady) Retryable() bool { return true }
