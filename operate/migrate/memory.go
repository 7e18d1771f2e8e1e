package migrate

import (
	"context"
	"fmt"
	"net/http"

	"github.com/kube-atrest/atrest/internal/kubeapi"
)

// passing is the annotation that an object has for a moment while it is stored from memory.
const passing = "atrest/stored-from-memory"

// fromMemory has an object stored again that etcd holds under a key that is gone, if the
// apiserver has it in its watch cache still. An update begins with what is there, and an apiserver
// looks into etcd only where nothing changes. So an annotation comes, which stores the
// object under the key that is written with now, and goes. The error is the one that led here
// if the apiserver reads the object from etcd, or has none of it.
func (r *run) fromMemory(ctx context.Context, o version, why error) (version, error) {
	once := r.persist
	once.once = true
	if kindOf(ctx, once.call(ctx, func(ctx context.Context) error {
		return r.cluster.api.Ask(ctx, kubeapi.Request{Method: http.MethodGet, Path: pathOf(r.resource, &o.Object), Accept: metadata}, &meta{})
	})) != broken {
		return o, why
	}
	saved, err := r.object(ctx, r.patchTo(o, map[string]any{"resourceVersion": o.resourceVersion, "annotations": map[string]any{passing: "true"}}))
	switch kindOf(ctx, err) {
	case fine:
	case broken:
		return o, why
	case conflict: // with somebody else, or with itself, if its first answer was lost
		saved = o
	default:
		return o, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), briefPatience) // nobody leaves the annotation behind
	defer cancel()
	is, err := r.object(ctx, r.patchTo(saved, map[string]any{"annotations": map[string]any{passing: nil}}))
	if err != nil {
		return saved, fmt.Errorf("it was stored from the memory of the apiserver, and has the annotation %s still, which has to be removed: %w", passing, err)
	}
	return is, nil
}
