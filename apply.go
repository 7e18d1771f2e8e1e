package atrest

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/server"
	"k8s.io/klog/v2"
)

// hookName is that of kube-apiserver's own hook, which is not there when ours is.
const hookName = "start-encryption-provider-config-automatic-reload"

// ApplyTo links encryption at rest into an apiserver: its storage
// transformers, the check kms-providers on healthz and readyz, and the reload
// of the file. Call it before EtcdOptions.ApplyTo, which takes the transformers
// from c. Everything ends when the server has drained.
//
// A server whose server.Config is made by somebody else, as kube-apiserver's
// is, uses [Options.Start] and [Encryption.RESTOptions].
func (o *Options) ApplyTo(c *server.Config) error {
	e, err := o.Start(context.Background(), c.APIServerID)
	if err != nil || e == nil {
		return err
	}
	if err := c.AddPostStartHook(hookName, e.PostStartHook); err != nil {
		e.Close()
		return fmt.Errorf("encryption at rest: %w", err)
	}
	c.ResourceTransformers = e.ResourceTransformers()
	c.AddHealthzChecks(e.HealthChecker())
	c.AddReadyzChecks(e.HealthChecker())
	go func() {
		<-c.DrainedNotify()
		e.Close()
	}()
	return nil
}

// PostStartHook begins to follow the file; it is a server.PostStartHookFunc.
func (e *Encryption) PostStartHook(hook server.PostStartHookContext) error {
	go func() {
		if err := e.Run(hook); err != nil {
			klog.ErrorS(err, "The encryption configuration is not followed, restart the server to apply a change", "file", e.options.ConfigFile)
		}
	}()
	return nil
}

// RESTOptions wraps the storage options of a server so that its resources are
// stored through e, whatever transformers inner would have given them.
func (e *Encryption) RESTOptions(inner generic.RESTOptionsGetter) generic.RESTOptionsGetter {
	return restOptions{RESTOptionsGetter: inner, encryption: e}
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
	storage.Transformer = r.encryption.set.TransformerForResource(resource)
	options.StorageConfig = &storage
	return options, nil
}
