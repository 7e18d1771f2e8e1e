package fleet

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
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
	canaryRights     = "the user needs the verbs get, create, patch and delete for secrets and configmaps in the namespace of the canaries"
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
// The error is [ErrNoCanary] for any other resource: then there is [Fleet.Touch],
// of an object that exists.
func (f *Fleet) Write(ctx context.Context, instance string, resource schema.GroupResource) (Written, error) {
	m, err := f.named("canary", instance)
	if err != nil {
		return Written{}, err
	}
	kind, ok := canaries[resource]
	if !ok {
		return Written{}, fmt.Errorf("%w: rewrite an object of %s that exists, through apiserver %s", ErrNoCanary, resource, instance)
	}
	w := Written{Resource: resource, Namespace: f.namespace, Name: canaryName(instance)}
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { f.reached.Store(true) }})
	at := resource.WithVersion("v1")
	meta := map[string]any{"annotations": map[string]string{canaryAnnotation: f.stamp()}}
	object := map[string]any{"metadata": meta}
	stored, err := m.change(ctx, kubeapi.Request{Method: http.MethodPatch, Path: w.path(at), Body: object, Patch: types.MergePatchType})
	if apierrors.IsNotFound(err) {
		meta["name"], meta["namespace"] = w.Name, w.Namespace
		object["apiVersion"], object["kind"] = "v1", kind
		stored, err = m.change(ctx, kubeapi.Request{Method: http.MethodPost, Path: w.in(at), Body: object})
	}
	if w.Version = stored; err != nil {
		return Written{}, fmt.Errorf("canary %s through apiserver %s: %w", w, instance, undecrypted(forbidden(err, canaryRights)))
	}
	return w, nil
}

// stamp is another one for every write, of whichever Fleet.
func (f *Fleet) stamp() string {
	return fmt.Sprintf("%s %s %d", f.clock.Now().UTC().Format(time.RFC3339Nano), f.run, f.writes.Add(1))
}

// Clean removes the canaries of the apiservers, through any that answers. It may be
// called at any time and any number of times. What is left after an interruption is
// removed by a call with a context that goes on: the caller whose own has ended
// gives another, with a timeout. Where no apiserver was reached to write one, there is
// nothing to remove.
func (f *Fleet) Clean(ctx context.Context) error {
	if !f.reached.Load() {
		return nil
	}
	var left [][]string
	for resource := range canaries {
		for _, m := range f.members {
			left = append(left, Written{Namespace: f.namespace, Name: canaryName(m.name)}.path(resource.WithVersion("v1")))
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
	return fmt.Errorf("canaries are left, of the names %s* in namespace %s: %w", canaryPrefix, f.namespace, inOneLine(failed...))
}

// removeTimeout bounds the removal of a canary: an admission webhook that is away takes 10 s,
// and another apiserver may be quicker.
const removeTimeout = 12 * time.Second

// remove deletes objects, all at once, and gives those that are left.
func (m *member) remove(ctx context.Context, paths [][]string) (left [][]string, err error) {
	ctx, cancel := within(ctx, min(m.writes.Timeout, removeTimeout), webhooks)
	defer cancel()
	failures := make([]error, len(paths))
	var asked sync.WaitGroup
	for i, path := range paths {
		asked.Go(func() { failures[i] = m.writes.Ask(ctx, kubeapi.Request{Method: http.MethodDelete, Path: path}, nil) })
	}
	asked.Wait()
	for i, failure := range failures {
		if failure != nil && !apierrors.IsNotFound(failure) {
			left, err = append(left, paths[i]), forbidden(m.failure(ctx, failure), canaryRights)
		}
	}
	return left, err
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
