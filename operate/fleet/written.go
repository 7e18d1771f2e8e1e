package fleet

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kube-atrest/atrest/internal/kubeapi"
)

// Written is an object as an apiserver stored it.
type Written struct {
	Resource schema.GroupResource
	// Namespace is empty for an object of the whole cluster.
	Namespace, Name string
	// Version is its resourceVersion, which is the ModRevision of its key in etcd.
	Version int64
}

// String names the object.
func (w Written) String() string {
	if w.Namespace == "" {
		return w.Resource.String() + " " + w.Name
	}
	return w.Resource.String() + " " + w.Namespace + "/" + w.Name
}

// ErrAnotherVersion says that an apiserver reads an object in another version than
// the one that was written.
var ErrAnotherVersion = errors.New("another has written it since, or this apiserver keeps it in another etcd: " +
	"try again, and if that stays compare --etcd-servers, --etcd-servers-overrides and --etcd-prefix of the apiservers")

// metadata is asked for in place of a whole object.
const metadata = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"

// Touch has an apiserver write an object that exists by a patch that changes
// nothing: it is stored anew if it is stale there, and stays as it is if it is
// not. The namespace is empty for an object of the whole cluster. An object that
// cannot be decrypted there is an error.
func (f *Fleet) Touch(ctx context.Context, instance string, r schema.GroupVersionResource, namespace, name string) (Written, error) {
	m, err := f.named("rewriting an object", instance)
	if err != nil {
		return Written{}, err
	}
	w := Written{Resource: r.GroupResource(), Namespace: namespace, Name: name}
	w.Version, err = m.change(ctx, kubeapi.Request{Method: http.MethodPatch, Path: w.path(r), Accept: metadata, Body: struct{}{}, Patch: types.MergePatchType})
	if err != nil {
		return Written{}, fmt.Errorf("rewriting %s through apiserver %s: %w", w, instance, w.remedy("patch", err))
	}
	return w, nil
}

// Read reads what was written through an apiserver, from etcd and not from what
// the apiserver has in memory, so that it has to decrypt it. The error says what
// keeps it from that; it wraps [ErrAnotherVersion] if it finds another version.
func (f *Fleet) Read(ctx context.Context, instance string, r schema.GroupVersionResource, w Written) error {
	m, err := f.named("reading an object", instance)
	if err != nil {
		return err
	}
	// Without a resourceVersion in the question, kube-apiserver asks etcd for the
	// latest.
	found, err := m.change(ctx, kubeapi.Request{Method: http.MethodGet, Path: w.path(r), Accept: metadata})
	switch {
	case err != nil:
		return fmt.Errorf("reading %s through apiserver %s: %w", w, instance, w.remedy("get", err))
	case found != w.Version:
		return fmt.Errorf("apiserver %s reads version %d of %s, of which version %d was written: %w", instance, found, w, w.Version, ErrAnotherVersion)
	}
	return nil
}

// remedy says what to do about an object that an apiserver does not get at.
func (w Written) remedy(verb string, err error) error {
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("%w: if it is there, this apiserver keeps it in another etcd: compare --etcd-servers, --etcd-servers-overrides and --etcd-prefix of the apiservers", err)
	}
	return undecrypted(forbidden(err, fmt.Sprintf("the user needs the verb %s for %s", verb, w.Resource)))
}

// undecrypted adds what to do to an answer that an apiserver gives when it can
// encrypt or decrypt no object.
func undecrypted(err error) error {
	var answer apierrors.APIStatus
	if errors.As(err, &answer) && answer.Status().Code == http.StatusInternalServerError {
		return fmt.Errorf("%w: it answers so when it cannot encrypt or decrypt: see to the KMS plugin of this apiserver: "+
			"is it up, does it have the same key as the others, and may it decrypt?", err)
	}
	return err
}

// in is where the objects of its kind are, path where it is.
func (w Written) in(r schema.GroupVersionResource) []string {
	path := []string{"apis", r.Group, r.Version}
	if r.Group == "" {
		path = []string{"api", r.Version}
	}
	if w.Namespace != "" {
		path = append(path, "namespaces", w.Namespace)
	}
	return append(path, r.Resource)
}

func (w Written) path(r schema.GroupVersionResource) []string { return append(w.in(r), w.Name) }

// change asks for an object or a change of one, and gives its version.
func (m *member) change(ctx context.Context, r kubeapi.Request) (int64, error) {
	var object struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
	}
	if err := m.send(ctx, r, &object); err != nil {
		return 0, err
	}
	version, err := strconv.ParseInt(object.Metadata.ResourceVersion, 10, 64)
	if err != nil || version <= 0 {
		return 0, fmt.Errorf("it answers with the resourceVersion %.40q, which is no revision of etcd: is this a Kubernetes apiserver?", object.Metadata.ResourceVersion)
	}
	return version, nil
}

// send asks for objects or a change of one, and says what to do when there is no
// answer.
func (m *member) send(ctx context.Context, r kubeapi.Request, out any) error {
	if r.Method == http.MethodPatch || r.Method == http.MethodPost {
		return m.write(ctx, r, out)
	}
	if err := m.api.Ask(ctx, r, out); err != nil {
		return m.failure(ctx, err)
	}
	return nil
}

// write is send for what changes an object.
func (m *member) write(ctx context.Context, r kubeapi.Request, out any) error {
	ctx, cancel := within(ctx, m.writes.Timeout, webhooks)
	defer cancel()
	if err := m.writes.Ask(ctx, r, out); err != nil {
		return m.failure(ctx, err)
	}
	return nil
}

// webhooks is what to do about a write that is not answered, where the rest is.
const webhooks = "is it up? If it answers to get, an admission webhook that is away or slow may hold up what is written: " +
	"see kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations"

// inOneLine is errors.Join for what is told in a line, as of a table.
func inOneLine(all ...error) error {
	var some []any
	for _, err := range all {
		if err != nil {
			some = append(some, err)
		}
	}
	if len(some) == 0 {
		return nil
	}
	return fmt.Errorf("%w"+strings.Repeat("; %w", len(some)-1), some...)
}

// forbidden adds what the user needs to an error that says it may not.
func forbidden(err error, needs string) error {
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("%w: %s", err, needs)
	}
	return err
}
