package atrest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"sync"
	"time"

	"github.com/google/uuid"
	"k8s.io/apiserver/pkg/features"
	apihealthz "k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/apiserver/pkg/storage/value"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/healthz"
	"github.com/kube-atrest/atrest/internal/hashed"
	"github.com/kube-atrest/atrest/internal/inuse"
	"github.com/kube-atrest/atrest/internal/lookahead"
	"github.com/kube-atrest/atrest/providers"
	"github.com/kube-atrest/atrest/reload"
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

	keeper *inuse.Keeper
	ahead  *lookahead.Scout
	close  sync.Once
}

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
	e := &Encryption{options: *o, apiServerID: apiServerID, process: uuid.NewString(), logger: klog.FromContext(ctx), clock: clock.RealClock{}}
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
		first.Forget()
		return nil, fmt.Errorf("waiting for the KMS plugins of %q: %w", o.ConfigFile, err)
	}
	e.begin(first)
	return e, nil
}

// begin takes first into use.
func (e *Encryption) begin(first *providers.Transformers) {
	e.keeper = inuse.Keep(first, inuse.Options{
		Path: e.options.ConfigFile, Build: e.build, APIServerID: e.apiServerID, Logger: e.logger, Clock: e.clock,
	})
	e.ahead = e.newScout()
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

// Run follows the file until ctx ends, or e is closed, if automatic reload is on.
// Call it from a hook that runs after the server has started. A second call is
// refused: one server follows the file for all that are stored through e.
func (e *Encryption) Run(ctx context.Context) error {
	switch {
	case e == nil:
		<-ctx.Done()
		return nil
	case !e.options.AutomaticReload:
		e.keeper.Wait(ctx)
		return nil
	}
	return e.keeper.Follow(ctx)
}

// ResourceTransformers are the transformers of every resource, always those of
// the configuration in use.
func (e *Encryption) ResourceTransformers() value.ResourceTransformers {
	if e == nil {
		return nil // and no interface that holds nil
	}
	return e.keeper.Resources()
}

// Warm has the DEKs of stored values unwrapped ahead of their readers, many at a
// time, and returns how many that were when they are there. A server does it by
// itself for the DEKs that it finds in etcd when it starts, see
// [Encryption.RESTOptions].
func (e *Encryption) Warm(ctx context.Context, values iter.Seq[[]byte]) int {
	if e == nil {
		return 0
	}
	return e.keeper.Now().Warm(ctx, values)
}

// Status is what is known now. Nobody is asked.
func (e *Encryption) Status() healthz.Status {
	if e == nil {
		return healthz.Status{}
	}
	now := e.keeper.Now()
	s := healthz.Status{
		Process: e.process, APIServerIDHash: hashed.ID(e.apiServerID), ConfigFile: e.options.ConfigFile, ConfigHash: now.Configuration().Hash(),
		Ended: e.keeper.Ended(), Reload: e.keeper.Status(), Providers: now.Health(),
	}
	return s.Told(e.clock.Now())
}

// HealthChecker is the check kms-providers, for healthz and readyz and not for
// livez: a restart mends no plugin.
func (e *Encryption) HealthChecker() apihealthz.HealthChecker { return healthz.Check(e.Status) }

// serveStatus answers requests for [healthz.Path] with [Encryption.Status] as JSON,
// and leaves all others to next. A POST to [healthz.AskPath] has every plugin asked
// how it is before: what it says, such as a new key_id, is known then instead of at
// the next poll. One that was asked within the last second is not asked again. Both
// have to stand behind authentication and authorization; [Options.ApplyTo] and
// [Encryption.Install] put them there.
func (e *Encryption) serveStatus(next http.Handler) http.Handler {
	if e == nil {
		return next
	}
	return healthz.Handler(e.Status, e.ask, next)
}

// askTimeout bounds how long an answer waits for plugins that hang.
const askTimeout = 10 * time.Second

// ask has the plugins asked, and waits for those that answer in time.
func (e *Encryption) ask(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer e.clock.AfterFunc(askTimeout, cancel).Stop()
	e.keeper.Now().Ask(ctx)
}

// Close ends everything, the hook and Run too, and waits for it. Call it when the
// server has answered its last request: reads and writes that come later fail.
func (e *Encryption) Close() {
	if e == nil {
		return
	}
	e.close.Do(func() {
		e.ahead.Close()
		e.keeper.Close()
	})
}
