// Package outage keeps apart, for those who use an apiserver, an outage of
// encryption at rest and a damaged value.
//
// kube-apiserver answers every failure of a transformer with an internal error,
// status 500, which clients do not try again. From 1.37 on it also lets whatever
// could not be read be deleted as corrupt. What comes in here are the storage
// options of a server. What goes out are the same, but that an outage is
// answered with status 503 and a time to try again, and that nothing is deleted
// as corrupt because of one. All other errors, and all that succeeds, pass as
// they are. Errors that a watch gives after it has begun pass too.
//
// A value costs one more call of a method, and a LIST two small allocations.
package outage

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"

	"github.com/kube-atrest/atrest/envelope"
	"github.com/kube-atrest/atrest/reload"
)

// is reports whether err says nothing against the value, and the same may
// succeed later. A missing provider or key is no outage, nor is a KEK of which
// the plugin says that it has none: trying again does not help, and a value whose
// key is lost for good has to stay deletable. If one cause of several is an
// outage then err is: the value may open when it is over.
func is(err error) bool {
	for _, outage := range [...]error{
		envelope.ErrUnavailable, envelope.ErrWritesStopped, envelope.ErrClosed, reload.ErrClosed,
		context.Canceled, context.DeadlineExceeded,
	} {
		if errors.Is(err, outage) {
			return true
		}
	}
	return false
}

// RESTOptions wraps the storage options of a server. They are to have their
// transformers when their decorator is called, not before.
func RESTOptions(inner generic.RESTOptionsGetter) generic.RESTOptionsGetter {
	return restOptions{inner}
}

type restOptions struct{ generic.RESTOptionsGetter }

// GetRESTOptions are those of the wrapped getter, with another decorator.
func (r restOptions) GetRESTOptions(resource schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
	options, err := r.RESTOptionsGetter.GetRESTOptions(resource, example)
	if err == nil && options.Decorator != nil {
		options.Decorator = decorate(options.Decorator)
	}
	return options, err
}

// decorate has what inner makes answer an outage as such. A storage without a
// transformer has none.
func decorate(inner generic.StorageDecorator) generic.StorageDecorator {
	return func(
		config *storagebackend.ConfigForResource, prefix string, key func(runtime.Object) (string, error),
		newFunc, newListFunc func() runtime.Object,
		attrs storage.AttrFunc, triggers storage.IndexerFuncs, indexers *cache.Indexers,
	) (storage.Interface, factory.DestroyFunc, error) {
		if config.Transformer == nil {
			return inner(config, prefix, key, newFunc, newListFunc, attrs, triggers, indexers)
		}
		own := *config // it is shared with whoever else asks for these options
		own.Transformer = marking{config.Transformer}
		s, destroy, err := inner(&own, prefix, key, newFunc, newListFunc, attrs, triggers, indexers)
		if err != nil {
			return s, destroy, err
		}
		return &store{Interface: s, resource: config.GroupResource}, destroy, nil
	}
}
