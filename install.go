package atrest

import (
	"context"
	"fmt"
	"net/http"
	"path"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/server"
	apihealthz "k8s.io/apiserver/pkg/server/healthz"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/envelope"
	"github.com/kube-atrest/atrest/healthz"
	"github.com/kube-atrest/atrest/internal/again"
	"github.com/kube-atrest/atrest/internal/lookahead"
	"github.com/kube-atrest/atrest/internal/metrics"
	"github.com/kube-atrest/atrest/internal/outage"
	"github.com/kube-atrest/atrest/internal/served"
)

// hookName is what the hook that follows the file is called: like kube-apiserver's own
// hook that reloads encryption, which is not there when ours is.
const hookName = "start-encryption-provider-config-automatic-reload"

// ApplyTo links encryption at rest into an apiserver: it starts it, installs it in
// c ([Encryption.Install]), and ends it when the server has drained.
//
// A server whose server.Config is made by somebody else, as kube-apiserver's
// is, uses [Options.Start] and [Encryption.Install].
func (o *Options) ApplyTo(c *server.Config) error {
	e, err := o.Start(context.Background(), c.APIServerID)
	if err != nil || e == nil {
		return err
	}
	if err := e.Install(c); err != nil {
		e.Close()
		return err
	}
	go func() {
		<-c.DrainedNotify()
		e.Close()
	}()
	return nil
}

// Install adds encryption at rest to the config of a server: its storage, the check
// kms-providers on healthz and readyz and not on livez, its state at
// [healthz.Path], behind the server's authentication and authorization, and the
// reload of the file. Call it once, before the server is made, and before or after
// c has its storage options (EtcdOptions.ApplyTo). If there are several servers in
// one, call it for the outermost, and wrap the storage options of the others with
// [Encryption.RESTOptions]. If it fails it has changed nothing. The caller closes e.
func (e *Encryption) Install(c *server.Config) error {
	if e == nil {
		return nil
	}
	if err := e.lacksRival(c); err != nil {
		return err
	}
	if err := c.AddPostStartHook(hookName, e.postStartHook); err != nil {
		return fmt.Errorf("encryption at rest: %w", err)
	}
	c.HealthzChecks, c.ReadyzChecks = e.installCheck(c.HealthzChecks), e.installCheck(c.ReadyzChecks)
	e.installStorage(c)
	build := c.BuildHandlerChainFunc
	c.BuildHandlerChainFunc = func(api http.Handler, c *server.Config) http.Handler {
		e.installStorage(c)
		return build(again.Handler(e.serveStatus(api)), c)
	}
	return nil
}

// check is the check of one Encryption.
type check struct {
	apihealthz.HealthChecker
	of *Encryption
}

// lacksRival fails if a config has a check of the same name that is not e's: what that
// one says would be taken for what e knows.
func (e *Encryption) lacksRival(c *server.Config) error {
	for _, other := range slices.Concat(c.HealthzChecks, c.ReadyzChecks) {
		if other.Name() == healthz.Name && !e.owns(other) {
			return fmt.Errorf("encryption at rest: the server has a check %s already: give --%s to one of them alone", healthz.Name, flagConfigFile)
		}
	}
	return nil
}

func (e *Encryption) owns(c apihealthz.HealthChecker) bool {
	own, ok := c.(check)
	return ok && own.of == e
}

// installCheck adds the check to others, unless it is there: c may be the copy of a
// config that has it. The others may be a slice that other configs share: clipped, an
// append cannot reach into that.
func (e *Encryption) installCheck(others []apihealthz.HealthChecker) []apihealthz.HealthChecker {
	if slices.ContainsFunc(others, e.owns) {
		return others
	}
	return append(slices.Clip(others), check{e.HealthChecker(), e})
}

// installStorage has c store through e. It is done at once, for whoever asks the
// config for its storage options or copies them, and again when the server is made:
// by then EtcdOptions.ApplyTo has set them, if it had not before, and nobody has
// asked for any of those yet.
func (e *Encryption) installStorage(c *server.Config) {
	c.ResourceTransformers = e.ResourceTransformers()
	if c.RESTOptionsGetter != nil {
		c.RESTOptionsGetter = e.RESTOptions(c.RESTOptionsGetter)
	}
}

// postStartHook begins to follow the file, and warns of resources that the file names
// and the server does not have. It is a server.PostStartHookFunc.
func (e *Encryption) postStartHook(hook server.PostStartHookContext) error {
	if e == nil {
		return nil
	}
	watch := served.Watch{
		Server: hook.LoopbackClientConfig, Clock: e.clock, Logger: e.logger, Changed: e.keeper.Changed(),
		InUse: func() *config.Configuration { return e.keeper.Now().Configuration() },
		Warn:  e.keeper.Warn, Count: metrics.UnservedResources,
	}
	e.keeper.Go(hook, watch.Run)
	e.keeper.Go(hook, func(ctx context.Context) {
		if err := e.Run(ctx); err != nil {
			e.logger.Error(err, "A server does not follow the encryption configuration", "file", e.options.ConfigFile)
		}
	})
	return nil
}

// RESTOptions wraps the storage options of a server so that its resources are
// stored through e, whatever transformers inner would have given them. For each
// resource that may be under KMS v2 it also looks ahead, once and in the
// background: it reads a small part of its objects in etcd, and has the DEKs that
// the server is about to need unwrapped. While a KMS plugin is away clients are
// told to try again (status 503), and nothing is deleted as corrupt because of
// that. [Options.ApplyTo] and [Encryption.Install] do this by themselves. What e has
// wrapped already is left as it is.
func (e *Encryption) RESTOptions(inner generic.RESTOptionsGetter) generic.RESTOptionsGetter {
	if ours, ok := inner.(restOptions); e == nil || ok && ours.encryption == e {
		return inner
	}
	return restOptions{RESTOptionsGetter: outage.RESTOptions(inner), encryption: e}
}

type restOptions struct {
	generic.RESTOptionsGetter
	encryption *Encryption
}

func (r restOptions) GetRESTOptions(resource schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
	options, err := r.RESTOptionsGetter.GetRESTOptions(resource, example)
	if err != nil || options.StorageConfig == nil {
		return options, err
	}
	storage := *options.StorageConfig // shared with whoever else asks inner
	storage.Transformer = r.encryption.keeper.Resources().TransformerForResource(resource)
	options.StorageConfig = &storage
	r.encryption.lookAhead(resource, options)
	return options, nil
}

func (e *Encryption) newScout() *lookahead.Scout {
	most := e.options.KMS.MaxDEKs
	if most <= 0 {
		most = envelope.DefaultMaxDEKs
	}
	return lookahead.New(lookahead.Options{Warm: e.Warm, MostDEKs: most, Clock: e.clock, Logger: e.logger})
}

// lookAhead looks for the DEKs of a resource that may be under KMS v2. An etcd
// that is reached through an egress selector is left alone.
func (e *Encryption) lookAhead(resource schema.GroupResource, o generic.RESTOptions) {
	etcd := o.StorageConfig.Transport
	if !e.keeper.Now().ReadsKMS(resource) || etcd.EgressLookup != nil {
		return
	}
	e.ahead.Look(lookahead.Target{
		Resource:  resource.String(),
		Prefix:    path.Join("/", o.StorageConfig.Prefix, o.ResourcePrefix) + "/",
		Endpoints: etcd.ServerList,
		CertFile:  etcd.CertFile, KeyFile: etcd.KeyFile, CAFile: etcd.TrustedCAFile,
	})
}
