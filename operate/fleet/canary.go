package fleet

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kube-atrest/atrest/internal/kubeapi"
)

// ErrNoCanary says that there is no canary of a resource.
var ErrNoCanary = errors.New("there is no canary of this resource")

const (
	canaryPrefix     = "atrest-canary-"
	canaryAnnotation = "atrest/written"
)

// canaries are the kinds of canaries by resource.
var canaries = map[schema.GroupResource]string{
	{Resource: "secrets"}:    "Secret",
	{Resource: "configmaps"}: "ConfigMap",
}

// Write has an apiserver write one object of a resource, so that it shows what it
// writes with. There is a canary for each apiserver, a Secret or a ConfigMap with
// nothing in it: it is created, or gets another value of an annotation, so that
// its bytes are stored anew.
//
// The error is [ErrNoCanary] for any other resource: then an object of it has to
// be written by somebody who knows what an object of it is.
func (f *Fleet) Write(ctx context.Context, instance string, resource schema.GroupResource) error {
	m, ok := f.member(instance)
	if !ok {
		return fmt.Errorf("canary through apiserver %q: there is no such apiserver: name one of the fleet", instance)
	}
	kind, ok := canaries[resource]
	if !ok {
		return fmt.Errorf("%w: somebody has to write an object of %s through apiserver %s, and that is waited for", ErrNoCanary, resource, instance)
	}
	name := canaryName(instance)
	meta := map[string]any{"annotations": map[string]string{
		canaryAnnotation: fmt.Sprintf("%s %d", f.clock.Now().UTC().Format(time.RFC3339Nano), f.writes.Add(1)),
	}}
	object := map[string]any{"metadata": meta}
	err := m.send(ctx, kubeapi.Request{Method: http.MethodPatch, Path: f.canaryPath(resource, name), Body: object, Patch: types.MergePatchType})
	if apierrors.IsNotFound(err) {
		meta["name"], meta["namespace"] = name, f.namespace
		object["apiVersion"], object["kind"] = "v1", kind
		err = m.send(ctx, kubeapi.Request{Method: http.MethodPost, Path: f.canaryPath(resource), Body: object})
	}
	if err != nil {
		return fmt.Errorf("canary %s/%s through apiserver %s: %w", f.namespace, name, instance, err)
	}
	return nil
}

// Clean removes the canaries of the apiservers, through any that answers.
func (f *Fleet) Clean(ctx context.Context) error {
	var left [][]string
	for resource := range canaries {
		for _, m := range f.members {
			left = append(left, f.canaryPath(resource, canaryName(m.name)))
		}
	}
	var failed []error
	for _, m := range f.members {
		var err error
		if left, err = m.remove(ctx, left); err == nil {
			return nil
		}
		failed = append(failed, fmt.Errorf("through apiserver %s: %w", m.name, err))
	}
	return fmt.Errorf("canaries are left, of the names %s* in namespace %s: %w", canaryPrefix, f.namespace, errors.Join(failed...))
}

// remove deletes objects, and gives those that are left after the first failure.
func (m *member) remove(ctx context.Context, paths [][]string) ([][]string, error) {
	for i, path := range paths {
		err := m.send(ctx, kubeapi.Request{Method: http.MethodDelete, Path: path})
		if err != nil && !apierrors.IsNotFound(err) {
			return paths[i:], err
		}
	}
	return nil, nil
}

func (f *Fleet) canaryPath(resource schema.GroupResource, name ...string) []string {
	return append([]string{"api", "v1", "namespaces", f.namespace, resource.Resource}, name...)
}

// canaryName is a name that Kubernetes takes, another for every instance.
func canaryName(instance string) string {
	valid := strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', '0' <= r && r <= '9':
			return r
		case 'A' <= r && r <= 'Z':
			return r - 'A' + 'a'
		}
		return '-'
	}, instance)
	valid = strings.Trim(valid[:min(len(valid), 200)], "-")
	if valid == instance {
		return canaryPrefix + valid
	}
	hash := sha256.Sum256([]byte(instance))
	return canaryPrefix + strings.TrimPrefix(valid+"-", "-") + hex.EncodeToString(hash[:4])
}

// send asks for a change of an object, and says what to do when that is refused.
func (m *member) send(ctx context.Context, r kubeapi.Request) error {
	err := m.api.Ask(ctx, r, nil)
	var answer apierrors.APIStatus
	switch {
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%w: the user needs the verbs create, patch and delete for secrets and configmaps in the namespace of the canaries", err)
	case err == nil, errors.As(err, &answer):
		return err
	}
	return m.failure(ctx, err)
}
