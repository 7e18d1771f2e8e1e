package fleet

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

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
	// Saved reports whether it had that in memory alone, and stored it again.
	Saved bool
}

// Error names the apiserver and the object, and says what to do.
func (e *ReadError) Error() string {
	if e.Saved {
		return fmt.Sprintf("apiserver %s had %s in memory alone, and stored it again: it is not lost any more", e.Apiserver, e.Object)
	}
	return fmt.Sprintf("apiserver %s reads %s: read it out of that one or have it rewritten, and do not restart that one before", e.Apiserver, e.Object)
}

// Unreadable is an error unless every apiserver answers that it cannot read an object, which
// it is to look for in etcd and then in its memory, and is ready but for what a start waits
// for. An object that is gone, and an answer that says nothing of the object, are
// errors too. It is a [*ReadError] if one can. What one has in memory alone, in the version that
// etcd has, it stores again under the key that it writes with now. The namespace is empty for an
// object of the whole cluster.
func (f *Fleet) Unreadable(ctx context.Context, r schema.GroupVersionResource, is Written) (unknown error) {
	unread := map[*member]error{} // what each says
	for _, m := range f.members {
		found, err := m.reads(ctx, is, r)
		switch {
		case err == nil:
			return &ReadError{Apiserver: m.name, Object: is, Owners: found.OwnerReferences}
		case unknown != nil:
			continue
		case !IsUnreadable(err) || tellsOfAnOutage(err):
			unknown = fmt.Errorf("whether apiserver %s reads %s is not known: %w", m.name, is, is.remedy("get", err))
			continue
		}
		unread[m] = err
		if failing, err := m.readiness(ctx); err != nil && (len(failing) == 0 || slices.ContainsFunc(failing, isOfNoStart)) {
			unknown = fmt.Errorf("whether apiserver %s reads %s at another time is not known: %w", m.name, is, err)
		}
	}
	if unknown != nil || is.Version == 0 {
		return unknown
	}
	for _, m := range f.members {
		owners, saved, err := m.remembers(ctx, is, r, unread[m], f.stamp())
		switch {
		case saved:
			return &ReadError{Apiserver: m.name, Object: is, Owners: owners, Saved: true}
		case err != nil && unknown == nil:
			unknown = fmt.Errorf("apiserver %s does not read %s from etcd, and %w", m.name, is, err)
		}
	}
	return unknown
}

// reads reads an object from etcd.
func (m *member) reads(ctx context.Context, w Written, r schema.GroupVersionResource) (is metav1.PartialObjectMetadata, err error) {
	err = m.send(ctx, kubeapi.Request{Method: http.MethodGet, Path: w.path(r), Accept: metadata}, &is)
	return is, err
}

// remembers has what an apiserver has in memory alone stored again: it answers a get with that
// while its watch cache is ready, and begins an update by name with it at any time. Unread is what
// it says of what etcd has. The error is that it may have it.
func (m *member) remembers(ctx context.Context, w Written, r schema.GroupVersionResource, unread error, stamp string) (owners []metav1.OwnerReference, saved bool, err error) {
	var is metav1.PartialObjectMetadata
	cached := m.send(ctx, kubeapi.Request{Method: http.MethodGet, Path: w.path(r), Accept: metadata, Query: url.Values{"resourceVersion": {"0"}}}, &is)
	if cached != nil && !IsUnreadable(cached) && !apierrors.IsNotFound(cached) {
		return nil, false, fmt.Errorf("%w: %w", errUntold, w.remedy("get", cached))
	}
	switch saving := m.save(ctx, w, r, stamp, &is); {
	case saving == nil:
		return is.OwnerReferences, true, nil
	case errors.Is(saving, errUntold):
		return nil, false, saving
	case cached == nil:
		return nil, false, fmt.Errorf("has it in memory, which it does not store again: read it out of that one, with resourceVersion=0, and do not restart that one before: %w", w.remedy("patch", saving))
	case causeOf(saving) == "" || causeOf(saving) != causeOf(unread):
		return nil, false, fmt.Errorf("%w: %w", errUntold, w.remedy("patch", saving))
	}
	switch had, answer := m.changes(ctx, w, r); { // it looked into etcd after a refusal, or at once
	case had:
		return nil, false, fmt.Errorf("has it in memory, and does not store it again, as admission does not allow that: find out which webhook or policy it is, and ask again once that one allows it; do not restart that apiserver before: %w", w.remedy("patch", answer))
	case answer == nil || causeOf(answer) != causeOf(unread):
		return nil, false, fmt.Errorf("%w: it answered a question about that otherwise than a get (%v): ask again", errUntold, answer)
	}
	return nil, false, nil
}

// save has an object stored again that an apiserver has in memory. Where nothing changes it looks
// into etcd whether that is current. So an annotation comes, and goes.
func (m *member) save(ctx context.Context, w Written, r schema.GroupVersionResource, stamp string, is *metav1.PartialObjectMetadata) error {
	patch := func(ctx context.Context, changes map[string]any) error {
		return m.send(ctx, kubeapi.Request{Method: http.MethodPatch, Path: w.path(r), Accept: metadata, Query: url.Values{"fieldManager": {"atrest"}},
			Body: map[string]any{"metadata": changes}, Patch: types.MergePatchType}, is)
	}
	if err := patch(ctx, map[string]any{"resourceVersion": strconv.FormatInt(w.Version, 10), "annotations": map[string]any{passing: stamp}}); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
	defer cancel()
	if err := patch(ctx, map[string]any{"annotations": map[string]any{passing: nil}}); err != nil {
		return fmt.Errorf("%w any more: it is stored again, with the annotation %s, which is to be removed: %w", errUntold, passing, err)
	}
	return nil
}

// changes reports whether an update of the version that etcd has begins with one in memory. What comes
// of it does not tell: after any refusal an apiserver looks into etcd, and answers as to a get. But it
// warns of a field that there is not, which it drops, once it has changed an object of that version.
// It answers as to a get if it has none.
func (m *member) changes(ctx context.Context, w Written, r schema.GroupVersionResource) (had bool, answer error) {
	const noField = "atrestAsks"
	steps := []map[string]any{
		{"op": "test", "path": "/metadata/resourceVersion", "value": strconv.FormatInt(w.Version, 10)},
		{"op": "add", "path": "/metadata/" + noField, "value": true},
	}
	answer = m.send(ctx, kubeapi.Request{Method: http.MethodPatch, Path: w.path(r), Accept: metadata, Query: url.Values{"fieldManager": {"atrest"}, "fieldValidation": {"Warn"}},
		Body: steps, Patch: types.JSONPatchType, Warned: func(text string) { had = had || strings.Contains(text, noField) }}, nil)
	return had && answer != nil, answer
}

// causeOf is what an apiserver says of the storage: one with the feature gate says more around it
// to a get than to a patch.
func causeOf(err error) string {
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) {
		return err.Error()
	}
	text := strings.TrimPrefix(answer.Status().Message, "Internal error occurred: ")
	if _, inner, is := strings.Cut(text, "AdditionalErrorMsg: "); is {
		return inner
	}
	return text
}

// errUntold is that an apiserver may have an object, or had it, which it does not read from etcd.
var errUntold = errors.New("whether it has that in memory is not known")

// passing is the annotation that an object has for a moment while it is stored from memory.
const passing = "atrest/stored-from-memory"

// IsUnreadable reports whether an answer is that of an apiserver to which the storage gave
// something that it cannot decrypt now, or that no object is when it is decrypted. The first has a
// reason, which kube-apiserver does not give for what etcd answers it. One of this project answers
// so to no outage; kube-apiserver does, and hands on what its plugin answered.
func IsUnreadable(err error) bool {
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) || apierrors.IsUnexpectedServerError(err) { // somebody else's
		return false
	}
	s := answer.Status()
	if s.Code != http.StatusInternalServerError || strings.Contains(s.Message, "conversion webhook") {
		return false
	}
	return s.Reason == metav1.StatusReasonInternalError || s.Reason == metav1.StatusReasonStoreReadError ||
		s.Reason == metav1.StatusReasonUnknown && slices.ContainsFunc(undecoded, func(begin string) bool { return strings.HasPrefix(s.Message, begin) })
}

// undecoded begin what kube-apiserver's decoders say of bytes that no object is, which it hands on
// without a reason if it has not the feature gate. AES-CBC gives such bytes for one in 256 of the
// values of another key, whose end looks like padding.
// The last decoder that it tries is for what has a text of base64 around it; that of custom resources
// knows JSON alone.
var undecoded = []string{"illegal base64 data at input byte ", "invalid character '", "couldn't get version/kind; json parse error: ", "yaml: ", "Object 'Kind' is missing in ", "Object 'apiVersion' is missing in "}

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
