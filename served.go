package atrest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/kube-atrest/atrest/healthz"
	"github.com/kube-atrest/atrest/internal/metrics"
)

// A name in the file that no resource has encrypts nothing, and nothing else
// would tell: the resource that was meant stays in plaintext.

const (
	askServedEvery = 2 * time.Second
	askServedFor   = 5 * time.Minute
)

// warnUnserved waits until the server serves all that it has, and warns of the
// resources in the file that are not among it.
func (e *Encryption) warnUnserved(ctx context.Context, loopback *rest.Config) {
	served, err := e.awaitServed(ctx, loopback)
	if err != nil {
		e.logger.V(1).Info("Did not check whether the server has the resources in the encryption configuration", "cause", err)
		return
	}
	warnings := e.inUse().Configuration().Unserved(func(r schema.GroupResource) bool { return served[r] })
	for _, w := range warnings {
		e.logWarning(w)
	}
	metrics.UnservedResources(len(warnings))
}

// awaitServed lists the resources of a server as soon as that is possible. The
// error is why it was not.
func (e *Encryption) awaitServed(ctx context.Context, loopback *rest.Config) (map[schema.GroupResource]bool, error) {
	for end := e.clock.Now().Add(askServedFor); ; {
		served, err := servedBy(ctx, loopback)
		if err == nil || !e.clock.Now().Before(end) {
			return served, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-e.clock.After(askServedEvery):
		}
	}
}

// servedBy lists the resources of a server that is ready but for its KMS plugins.
func servedBy(ctx context.Context, loopback *rest.Config) (map[schema.GroupResource]bool, error) {
	client, err := discovery.NewDiscoveryClientForConfig(loopback)
	if err != nil {
		return nil, err
	}
	if err := client.RESTClient().Get().AbsPath("/readyz").Param("exclude", healthz.Name).Do(ctx).Error(); err != nil {
		return nil, fmt.Errorf("the server is not ready: %w", err)
	}
	_, lists, err := client.ServerGroupsAndResources()
	if err != nil {
		return nil, err
	}
	served := map[schema.GroupResource]bool{}
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, r := range list.APIResources {
			if !strings.Contains(r.Name, "/") { // a subresource has no storage of its own
				served[schema.GroupResource{Group: version.Group, Resource: r.Name}] = true
			}
		}
	}
	if len(served) == 0 {
		return nil, errors.New("the server lists no resources yet")
	}
	return served, nil
}
