package migrate

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	"github.com/kube-atrest/atrest/internal/kubeapi"
)

// passing is the annotation that an object has for a moment while it is stored from memory. One
// that has it still, as somebody ended the migration, loses it in the next one.
const passing = "atrest/stored-from-memory"

// rescue has those objects stored again that the apiserver has in its watch cache alone, and
// which keep it from listing the resource. What is not so stays as it is, and what it was is told
// by the list that follows.
func (r *run) rescue(ctx context.Context) error {
	var list listing
	request := kubeapi.Request{Method: http.MethodGet, Path: pathOf(r.resource, nil), Query: url.Values{"resourceVersion": {"0"}}, Accept: metadataList}
	if r.once(ctx, request, &list) != nil {
		return nil
	}
	var objects []version
	for _, item := range list.Items {
		objects = append(objects, item.version())
	}
	return r.all(ctx, objects, func(ctx context.Context, o version) error {
		if is, err := r.fromMemory(ctx, o, nil); err == nil && is.resourceVersion != o.resourceVersion {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.rescued[o.Object] = true
		}
		return ctx.Err()
	})
}

// fromMemory has an object stored again that etcd holds under a key that is gone, if the
// apiserver has it in its watch cache still. An update begins with what is there, and an apiserver
// looks into etcd only where nothing changes. So an annotation comes, which stores the
// object under the key that is written with now, and goes. The error is the one that led here
// if the apiserver reads the object from etcd, or has none of it.
func (r *run) fromMemory(ctx context.Context, o version, why error) (version, error) {
	request := kubeapi.Request{Method: http.MethodGet, Path: pathOf(r.resource, &o.Object), Accept: metadata}
	if kindOf(ctx, r.once(ctx, request, &meta{})) != broken {
		return o, why
	}
	var unfinished error
	err := r.once(ctx, r.patchTo(o, map[string]any{"resourceVersion": o.resourceVersion, "annotations": map[string]any{passing: "true"}}), &meta{})
	switch kindOf(ctx, err) {
	case fine, conflict: // with somebody else, or with itself, if its first answer was lost
	case away, stopped: // and may have been done
		unfinished = err
	case broken:
		return o, why
	default:
		return o, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), briefPatience)
	defer cancel()
	is, err := r.object(ctx, r.patchTo(o, map[string]any{"annotations": map[string]any{passing: nil}}))
	switch {
	case unfinished != nil:
		return o, unfinished
	case err != nil:
		return o, fmt.Errorf("it was stored from the memory of the apiserver, and has the annotation %s still, which the next migration takes away: %w", passing, err)
	}
	return is, nil
}

// once does not repeat what the apiserver fails at.
func (r *run) once(ctx context.Context, q kubeapi.Request, into any) error {
	p := r.persist
	p.once = true
	return p.call(ctx, func(ctx context.Context) error { return r.cluster.api.Ask(ctx, q, into) })
}
