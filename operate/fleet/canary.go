package fleet

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
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
	ctx, cancel := context.WithTimeout(ctx, m.timeout)
	defer cancel()
	name := canaryName(instance)
	meta := map[string]any{"annotations": map[string]string{
		canaryAnnotation: fmt.Sprintf("%s %d", f.clock.Now().UTC().Format(time.RFC3339Nano), f.writes.Add(1)),
	}}
	object := map[string]any{"metadata": meta}
	code, err := m.send(ctx, http.MethodPatch, f.canaryPath(resource, name), object)
	if code == http.StatusNotFound {
		meta["name"], meta["namespace"] = name, f.namespace
		object["apiVersion"], object["kind"] = "v1", kind
		_, err = m.send(ctx, http.MethodPost, f.canaryPath(resource), object)
	}
	if err != nil {
		return fmt.Errorf("canary %s/%s through apiserver %s: %w", f.namespace, name, instance, err)
	}
	return nil
}

// Clean removes the canaries of the apiservers, through any that answers.
func (f *Fleet) Clean(ctx context.Context) error {
	var left []string
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
func (m *member) remove(ctx context.Context, paths []string) ([]string, error) {
	for i, path := range paths {
		if err := m.removeOne(ctx, path); err != nil {
			return paths[i:], err
		}
	}
	return nil, nil
}

func (m *member) removeOne(ctx context.Context, path string) error {
	ctx, cancel := context.WithTimeout(ctx, m.timeout)
	defer cancel()
	code, err := m.send(ctx, http.MethodDelete, path, nil)
	if code == http.StatusNotFound {
		return nil
	}
	return err
}

func (f *Fleet) canaryPath(resource schema.GroupResource, name ...string) string {
	return strings.Join(append([]string{"/api/v1/namespaces", f.namespace, resource.Resource}, name...), "/")
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

// send sends an object, or nothing, and gives the code of the answer, which
// comes with an error unless it is a success.
func (m *member) send(ctx context.Context, method, path string, object any) (int, error) {
	var body io.Reader
	if object != nil {
		data, err := json.Marshal(object)
		if err != nil {
			return 0, err
		}
		body = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, m.base.JoinPath(path).String(), body)
	if err != nil {
		return 0, err
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		req.Header.Set("Content-Type", "application/merge-patch+json")
	}
	resp, err := m.client.Do(req)
	if err != nil {
		return 0, m.failure(ctx, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 200 && resp.StatusCode <= 299 {
		return resp.StatusCode, nil
	}
	return resp.StatusCode, said(resp)
}

// said is the error that an apiserver answered with.
func said(resp *http.Response) error {
	data, _ := io.ReadAll(io.LimitReader(resp.Body, maxText)) // as much as there is
	var status struct{ Message string }
	if json.Unmarshal(data, &status) != nil || status.Message == "" {
		status.Message = text(bytes.NewReader(data))
	}
	err := fmt.Errorf("%s: %s", resp.Status, orNothing(status.Message))
	if resp.StatusCode == http.StatusForbidden {
		return fmt.Errorf("%w: the user needs the verbs create, patch and delete for secrets and configmaps in the namespace of the canaries", err)
	}
	return err
}
