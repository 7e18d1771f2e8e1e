package fleet

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kube-atrest/atrest/internal/kubeapi"
)

// ErrKeepsUnreadable says that no apiserver has the feature gate by which what cannot be
// read is deleted.
var ErrKeepsUnreadable = errors.New("no apiserver deletes what it cannot read")

// ReadError says that an apiserver reads an object, and who owns that.
type ReadError struct {
	Apiserver string
	Object    Written
	Owners    []metav1.OwnerReference
	// InMemory reports whether it has no more than what it read before.
	InMemory bool
}

// Error names the apiserver and the object, and says what to do.
func (e *ReadError) Error() string {
	if e.InMemory {
		return fmt.Sprintf("apiserver %s has %s in memory, and no longer reads it from etcd: have it stored again through that one, with atrest migrate --without-etcd, and do not restart that one before", e.Apiserver, e.Object)
	}
	return fmt.Sprintf("apiserver %s reads %s: read it out of that one or have it rewritten, and do not restart that one before", e.Apiserver, e.Object)
}

// Unreadable is an error unless every apiserver answers that it cannot read an object, which
// it is to look for in etcd and then in its memory, and is ready but for what a start waits
// for. An object that is gone, and an answer that says nothing of the object, are
// errors too. It is a [*ReadError] if one can. The namespace is empty for an object of the
// whole cluster.
func (f *Fleet) Unreadable(ctx context.Context, r schema.GroupVersionResource, namespace, name string) (unknown error) {
	w := Written{Resource: r.GroupResource(), Namespace: namespace, Name: name}
	for _, m := range f.members {
		is, inMemory, err := m.finds(ctx, w.path(r))
		switch {
		case err == nil:
			return &ReadError{Apiserver: m.name, Object: w, Owners: is.OwnerReferences, InMemory: inMemory}
		case unknown != nil:
			continue
		case !IsUnreadable(err) || tellsOfAnOutage(err):
			unknown = fmt.Errorf("whether apiserver %s reads %s is not known: %w", m.name, w, w.remedy("get", err))
			continue
		}
		if failing, err := m.readiness(ctx); err != nil && (len(failing) == 0 || slices.ContainsFunc(failing, isOfNoStart)) {
			unknown = fmt.Errorf("whether apiserver %s reads %s at another time is not known: %w", m.name, w, err)
		}
	}
	return unknown
}

// finds reads an object: from etcd, and if it cannot be decrypted from what the apiserver has
// in memory, which is what a list shows and a patch begins with.
func (m *member) finds(ctx context.Context, path []string) (is metav1.PartialObjectMetadata, inMemory bool, err error) {
	request := kubeapi.Request{Method: http.MethodGet, Path: path, Accept: metadata}
	if err = m.send(ctx, request, &is); !IsUnreadable(err) {
		return is, false, err
	}
	request.Query = url.Values{"resourceVersion": {"0"}}
	switch cached := m.send(ctx, request, &is); {
	case cached == nil:
		return is, true, nil
	case !IsUnreadable(cached) && !apierrors.IsNotFound(cached):
		return is, false, cached
	}
	return is, false, err
}

// IsUnreadable reports whether an answer is that of an apiserver to which the storage gave
// something that it cannot decrypt now: it has a reason then, which kube-apiserver does not
// give for what etcd answers it. One of this project answers so to no outage; kube-apiserver
// does, and hands on what its plugin answered.
func IsUnreadable(err error) bool {
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) || apierrors.IsUnexpectedServerError(err) { // somebody else's
		return false
	}
	s := answer.Status()
	return s.Code == http.StatusInternalServerError && (s.Reason == metav1.StatusReasonInternalError || s.Reason == metav1.StatusReasonStoreReadError) &&
		!strings.Contains(s.Message, "conversion webhook")
}

// ofAPlugin begins what kube-apiserver hands on of a plugin: the name of a gRPC code follows.
const ofAPlugin = "rpc error: code = "

// tellsOfAnOutage reports whether a plugin answered an apiserver anything but that it has no
// such key, or did not wrap that: it may unwrap it at another time.
func tellsOfAnOutage(err error) bool {
	answers := strings.Split(err.Error(), ofAPlugin)[1:]
	return strings.Contains(err.Error(), context.DeadlineExceeded.Error()) || slices.ContainsFunc(answers, func(answer string) bool {
		code, _, _ := strings.Cut(answer, " ")
		return code != codes.NotFound.String() && code != codes.InvalidArgument.String()
	})
}

// isOfNoStart reports whether a check fails for another reason than that an apiserver
// that started cannot list what it cannot read.
func isOfNoStart(check string) bool {
	return check != "informer-sync" && !strings.HasPrefix(check, "poststarthook/")
}

// Discard has an object deleted that no apiserver can read, by the first one that deletes
// such objects, which it names, once before allows it. No finalizer is waited for, and no
// admission asked. An apiserver refuses that for an object that it can read by then. The
// error is that of before, or wraps [ErrKeepsUnreadable] if none deletes what it cannot
// read.
func (f *Fleet) Discard(ctx context.Context, r schema.GroupVersionResource, namespace, name string, before func() error) (by string, err error) {
	w := Written{Resource: r.GroupResource(), Namespace: namespace, Name: name}
	for _, m := range f.members {
		discards, err := m.discards(ctx, w.path(r))
		if err != nil {
			return "", fmt.Errorf("deleting %s through apiserver %s: %w", w, m.name, w.remedy("delete", err))
		}
		if !discards {
			continue
		}
		if err := before(); err != nil {
			return "", err
		}
		if err := m.discard(ctx, w.path(r), map[string]any{}); err != nil {
			needs := fmt.Sprintf("the user needs the verbs delete and unsafe-delete-ignore-read-errors for %s", w.Resource)
			return "", fmt.Errorf("deleting %s through apiserver %s: %w", w, m.name, forbidden(err, needs))
		}
		return m.name, nil
	}
	return "", ErrKeepsUnreadable
}

// ignoring is the option by which what cannot be read is deleted. An apiserver without the
// feature gate takes no notice of it, and would delete what can be read.
const ignoring = "ignoreStoreReadErrorWithClusterBreakingPotential"

// discards reports whether an apiserver knows of the option. It is sent together with
// one that it does not go with, which is refused where it is known, and with which nothing
// is deleted where it is not: no object has that UID, and it is a dry run besides.
func (m *member) discards(ctx context.Context, path []string) (bool, error) {
	err := m.discard(ctx, path, map[string]any{"dryRun": []string{metav1.DryRunAll}, "preconditions": map[string]string{"uid": "atrest-asks-and-deletes-nothing"}})
	switch {
	case apierrors.IsInvalid(err):
		return strings.Contains(err.Error(), ignoring), nil
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return false, err
	}
	var answer apierrors.APIStatus
	if err != nil && !errors.As(err, &answer) {
		return false, err
	}
	return false, nil
}

func (m *member) discard(ctx context.Context, path []string, options map[string]any) error {
	options["kind"], options["apiVersion"], options[ignoring] = "DeleteOptions", "v1", true
	ctx, cancel := within(ctx, m.writes.Timeout, webhooks)
	defer cancel()
	if err := m.writes.Ask(ctx, kubeapi.Request{Method: http.MethodDelete, Path: path, Body: options}, nil); err != nil {
		return m.failure(ctx, err)
	}
	return nil
}
