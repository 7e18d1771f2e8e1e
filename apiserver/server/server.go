// Package server is the full kube-apiserver with encryption at rest done by atrest, as a
// command and as a function that another program runs inside itself.
//
// kube-apiserver's flags come in, a serving apiserver comes out. Everything but
// encryption is kube-apiserver's own code, configured as its own command configures it;
// this package holds no copy of it. It reaches core, custom and aggregated resources
// alike by wrapping the four places from which they get their storage.
package server

import (
	"context"
	"fmt"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/component-base/version"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	"github.com/kube-atrest/atrest"
)

// Run serves until ctx ends, then drains and returns nil. An error means that the server
// could not be configured or could not start; one about encryption names the file and the
// field, and comes before anything else is tried.
func Run(ctx context.Context, o *Options) error {
	klog.InfoS("Starting kube-apiserver with encryption at rest by atrest", "version", version.Get())
	completed, err := complete(ctx, o)
	if err != nil {
		return err
	}
	encryption, err := o.Encryption.Start(ctx, apiServerID())
	if err != nil {
		return err
	}
	defer encryption.Close() // its plugins are needed until the last request is answered
	config, err := app.NewConfig(completed)
	if err != nil {
		return err
	}
	if err := encrypt(config, encryption); err != nil {
		return err
	}
	return serve(ctx, config)
}

func complete(ctx context.Context, o *Options) (options.CompletedOptions, error) {
	completed, err := o.Complete(ctx)
	if err != nil {
		return options.CompletedOptions{}, err
	}
	errs := append(o.Validate(), completed.Validate()...)
	return completed, utilerrors.NewAggregate(errs)
}

// apiServerID is the name that this server will have in metrics. It depends on the host
// and the feature gates alone, and is wanted before there is a configuration to read it
// from.
func apiServerID() string { return genericapiserver.NewConfig(legacyscheme.Codecs).APIServerID }

// encrypt puts atrest between the servers and their storage, and its health, reload and
// state into the outermost server. That is where kube-apiserver has the first two: on
// healthz and readyz, never on livez.
func encrypt(config *app.Config, e *atrest.Encryption) error {
	core := config.KubeAPIs.ControlPlane.Generic
	core.RESTOptionsGetter = e.RESTOptions(core.RESTOptionsGetter)
	extensions := config.ApiExtensions
	extensions.GenericConfig.RESTOptionsGetter = e.RESTOptions(extensions.GenericConfig.RESTOptionsGetter)
	extensions.ExtraConfig.CRDRESTOptionsGetter = e.RESTOptions(extensions.ExtraConfig.CRDRESTOptionsGetter)
	return e.Install(&config.Aggregator.GenericConfig.Config)
}

func serve(ctx context.Context, config *app.Config) error {
	completed, err := config.Complete()
	if err != nil {
		return err
	}
	chain, err := app.CreateServerChain(completed)
	if err != nil {
		return fmt.Errorf("create the chain of apiservers: %w", err)
	}
	prepared, err := chain.PrepareRun()
	if err != nil {
		return err
	}
	return prepared.Run(ctx)
}
