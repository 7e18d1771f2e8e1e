package served

import (
	"context"
	"errors"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/kube-atrest/atrest/healthz"
	"github.com/kube-atrest/atrest/internal/kubeapi"
)

// served is what a server has, as far as it can tell.
type served struct {
	resources map[schema.GroupResource]bool
	// unknown are the groups of which it cannot tell all, as when the server of an
	// aggregated API is away.
	unknown map[string]bool
}

// servedBy asks a server that is ready but for its KMS plugins what it has.
func servedBy(ctx context.Context, server *rest.Config) (served, error) {
	ctx, end := context.WithTimeout(ctx, askWithin)
	defer end()
	client, err := kubeapi.Discovery(ctx, server)
	if err != nil {
		return served{}, err
	}
	if err := client.RESTClient().Get().AbsPath("/readyz").Param("exclude", healthz.Name).Do(ctx).Error(); err != nil {
		return served{}, fmt.Errorf("the server is not ready: %w", err)
	}
	_, lists, err := client.ServerGroupsAndResources()
	failed, partial := discovery.GroupDiscoveryFailedErrorGroups(err)
	if err != nil && !partial {
		return served{}, err
	}
	has := served{resources: map[schema.GroupResource]bool{}, unknown: map[string]bool{}}
	for version := range failed {
		has.unknown[version.Group] = true
	}
	return has, has.list(lists)
}

// list notes the resources of a server that lists some.
func (s served) list(all []*metav1.APIResourceList) error {
	for _, list := range all {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return err
		}
		for _, r := range list.APIResources {
			if !strings.Contains(r.Name, "/") { // a subresource has no storage of its own
				s.resources[schema.GroupResource{Group: version.Group, Resource: r.Name}] = true
				s.resources[schema.GroupResource{Group: version.Group, Resource: "*"}] = true
			}
		}
	}
	if len(s.resources) == 0 {
		return errors.New("the server lists no resources yet")
	}
	return nil
}
