package outage

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage"

	"github.com/kube-atrest/atrest/internal/again"
)

// retryAfter is for how many seconds a client is asked to wait. A plugin's
// socket is tried once a second.
const retryAfter = 1

// store is a storage that answers an outage as such.
type store struct {
	storage.Interface
	resource schema.GroupResource
}

// Get reads one object.
func (s *store) Get(ctx context.Context, key string, opts storage.GetOptions, out runtime.Object) error {
	return s.answer(s.Interface.Get(ctx, key, opts, out))
}

// Create writes a new object.
func (s *store) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	return s.answer(s.Interface.Create(ctx, key, obj, out, ttl))
}

// GuaranteedUpdate reads and writes an object, as it is if that was asked for.
func (s *store) GuaranteedUpdate(
	ctx context.Context, key string, out runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, update storage.UpdateFunc, cached runtime.Object,
) error {
	update = again.Update(ctx, s.resource, key, update)
	return s.answer(s.Interface.GuaranteedUpdate(ctx, key, out, ignoreNotFound, preconditions, update, cached))
}

// GetList reads many objects. The storage may have made one text of all that
// failed.
func (s *store) GetList(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) error {
	ctx, n := noting(ctx)
	err := s.Interface.GetList(ctx, key, opts, list)
	if f := n.first.Load(); err != nil && f != nil {
		return s.unavailable(f)
	}
	return err
}

// Delete removes an object. Its only option, which has another name in each
// version of Kubernetes, says to do so because it cannot be read. The storage
// then forgets why it cannot, but asks validate before it deletes, as it does
// for admission.
func (s *store) Delete(
	ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions,
	validate storage.ValidateObjectFunc, cached runtime.Object, opts storage.DeleteOptions,
) error {
	if opts != (storage.DeleteOptions{}) {
		ctx, validate = s.sparing(ctx, validate)
	}
	return s.answer(s.Interface.Delete(ctx, key, out, preconditions, validate, cached, opts))
}

// sparing refuses to delete what could not be read because of an outage.
func (s *store) sparing(ctx context.Context, validate storage.ValidateObjectFunc) (context.Context, storage.ValidateObjectFunc) {
	ctx, n := noting(ctx)
	return ctx, func(ctx context.Context, obj runtime.Object) error {
		if f := n.first.Load(); f != nil {
			return s.unavailable(f)
		}
		return validate(ctx, obj)
	}
}

// answer is what a client is told of err.
func (s *store) answer(err error) error {
	if err == nil {
		return nil // before f, which allocates
	}
	var f *failure
	if errors.As(err, &f) {
		return s.unavailable(f)
	}
	return err
}

// unavailable has a text of its own: kube-apiserver up to 1.36 deletes when that
// of the storage's error has the words for a value that may be.
func (s *store) unavailable(f *failure) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    http.StatusServiceUnavailable,
		Reason:  metav1.StatusReasonServiceUnavailable,
		Message: fmt.Sprintf("encryption at rest is not available, try again: %v", f.cause),
		Details: &metav1.StatusDetails{Group: s.resource.Group, Kind: s.resource.Resource, RetryAfterSeconds: retryAfter},
	}}
}
