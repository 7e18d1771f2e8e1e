package atrest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/storage/value"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/envelope"
	"github.com/kube-atrest/atrest/internal/lookahead"
	"github.com/kube-atrest/atrest/internal/metrics"
	"github.com/kube-atrest/atrest/providers"
	"github.com/kube-atrest/atrest/reload"
	"github.com/kube-atrest/atrest/transformer"
)

// Encryption is the encryption at rest of one apiserver while it runs. Safe for
// concurrent use. A nil one is that of a server without --encryption-provider-config,
// and has all methods: it adds nothing, leaves what it would wrap as it is, and is well.
type Encryption struct {
	options     Options
	apiServerID string
	process     string // names this one in its Status
	logger      klog.Logger
	clock       clock.WithTickerAndDelayedExecution
	hash        string

	set        *reload.Set                       // of *providers.Transformers
	followed   atomic.Bool                       // Run was called
	controller atomic.Pointer[reload.Controller] // nil before Run
	reloaded   chan struct{}                     // a token: another content has taken effect
	ctx        context.Context                   // ends with Close
	stop       context.CancelFunc
	ahead      *lookahead.Scout
	ended      sync.WaitGroup
	close      sync.Once

	tending sync.Mutex // held by the one who tends the transformers in use
}

// tendEvery is how often what was counted, and the health of KMS plugins, go
// into the metrics.
const tendEvery = 2 * time.Second

// Start reads the file, makes its providers and begins to follow its KMS
// plugins. It waits until each plugin that is written with was asked once, so
// that a server starts able to write if its plugins are there; if they are not
// it starts all the same, and is not ready until they come. A file that cannot
// be used is an error that names the file, the field and the remedy. apiServerID
// names the server in metrics.
//
// Without a file it returns nil: nothing is to be encrypted. The caller closes
// what it got. ctx bounds the start, not what was started.
func (o *Options) Start(ctx context.Context, apiServerID string) (*Encryption, error) {
	if errs := o.Validate(); len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	if o.ConfigFile == "" {
		return nil, nil
	}
	e := &Encryption{options: *o, apiServerID: apiServerID, process: uuid.NewString(),
		logger: klog.FromContext(ctx), clock: clock.RealClock{}, reloaded: make(chan struct{}, 1)}
	if o.KMS.Clock != nil {
		e.clock = o.KMS.Clock
	}
	content, err := reload.Read(o.ConfigFile)
	if err != nil {
		return nil, fmt.Errorf("--%s: %w", flagConfigFile, err)
	}
	first, err := e.build(content)
	if err != nil {
		return nil, fmt.Errorf("--%s=%s: %w", flagConfigFile, o.ConfigFile, err)
	}
	first.Commit(func() {})
	var away *providers.NotReady
	if err := first.Prepare(ctx); err != nil && !errors.As(err, &away) {
		first.Close()
		return nil, fmt.Errorf("waiting for the KMS plugins of %q: %w", o.ConfigFile, err)
	}
	e.begin(first)
	return e, nil
}

// begin takes first into use.
func (e *Encryption) begin(first *providers.Transformers) {
	e.hash = first.Configuration().Hash()
	e.set = reload.NewSet(first, reload.SetOptions{Clock: e.clock, Unreadable: unreadable})
	metrics.Reload{APIServerID: e.apiServerID}.Started(e.hash)
	e.warn(first.Configuration())

	e.ahead = e.newScout()
	e.ctx, e.stop = context.WithCancel(context.Background())
	e.ended.Go(func() { e.tend(e.ctx) })
}

// inUse are the transformers in use.
func (e *Encryption) inUse() *providers.Transformers {
	return e.set.Current().(*providers.Transformers)
}

// warn tells of what works in a configuration and is seldom meant.
func (e *Encryption) warn(c *config.Configuration) {
	counts := map[string]int{}
	for _, w := range c.Warnings() {
		counts[string(w.Kind)]++
		e.logWarning(w)
	}
	metrics.ConfigWarnings(counts)
}

func (e *Encryption) logWarning(w config.Warning) {
	e.logger.Info("Warning about the encryption configuration", "field", w.Path, "kind", w.Kind, "warning", w.Message)
}

// unreadable reports whether a read failed for want of a provider or key, which the
// configuration before may have had, if only by the same name. An outage is none:
// what is wrong with the plugins in use has to be seen.
func unreadable(err error) bool {
	return errors.Is(err, transformer.ErrNoProvider) || errors.Is(err, envelope.ErrUnknownKEK) || errors.Is(err, transformer.ErrCorrupt)
}

// build makes the transformers of a content of the file; before is as of
// [providers.Build].
func (e *Encryption) build(content []byte, before ...*providers.Transformers) (*providers.Transformers, error) {
	parsed, err := config.Parse(content, config.Options{
		Reload: e.options.AutomaticReload,
		KMSv1:  utilfeature.DefaultFeatureGate.Enabled(features.KMSv1),
	})
	if err != nil {
		return nil, err
	}
	o := e.options.buildOptions(e.apiServerID)
	o.Logger = e.logger
	return providers.Build(parsed, o, before...)
}

// ResourceTransformers are the transformers of every resource, always those of
// the configuration in use.
func (e *Encryption) ResourceTransformers() value.ResourceTransformers {
	if e == nil {
		return nil // and no interface that holds nil
	}
	return e.set
}

// tend tends the transformers in use until ctx ends.
func (e *Encryption) tend(ctx context.Context) {
	ticker := e.clock.NewTicker(tendEvery)
	defer ticker.Stop()
	for {
		e.tending.Lock()
		e.inUse().Tend(e.clock.Now())
		e.tending.Unlock()
		metrics.Flush()
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
	}
}

// Close ends everything, the hook and Run too, and waits for it. Call it when the
// server has answered its last request: reads and writes that come later fail.
func (e *Encryption) Close() {
	if e == nil {
		return
	}
	e.close.Do(func() {
		e.stop()
		e.ahead.Close()
		e.ended.Wait()
		e.inUse().Forget()
		e.set.Close()
	})
}
