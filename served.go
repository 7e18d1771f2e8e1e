package atrest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/healthz"
	"github.com/kube-atrest/atrest/internal/metrics"
)

// A name in the file that no resource has encrypts nothing, and nothing else
// would tell: the resource that was meant stays in plaintext.

const (
	// A server that is not ready is asked every so often, for so long.
	askServedEvery = 2 * time.Second
	askServedFor   = 5 * time.Minute
	// It is asked again so often as long as a name is not one of its resources: a
	// custom one may be defined meanwhile.
	askServedAgain = 5 * time.Minute
	// askServedWithin is how long one look may take.
	askServedWithin = 30 * time.Second
)

// followServed warns of the resources that the file names and the server does not
// have, for each content that is in use, until ctx ends.
func (e *Encryption) followServed(ctx context.Context, loopback *rest.Config) {
	for check := e.checkServed(loopback); ; {
		var again <-chan time.Time
		if wait := check.look(ctx); wait > 0 {
			again = e.clock.After(wait)
		}
		select {
		case <-ctx.Done():
			return
		case <-e.reloaded:
			check = e.checkServed(loopback)
		case <-again:
		}
	}
}

// servedCheck compares one content of the file with what the server has.
type servedCheck struct {
	*Encryption
	configuration *config.Configuration
	loopback      *rest.Config
	began         time.Time
	settled       bool            // the server has answered, or not for long
	told          map[string]bool // by the path of the field
}

func (e *Encryption) checkServed(loopback *rest.Config) *servedCheck {
	metrics.UnservedResourcesUnknown()
	return &servedCheck{
		Encryption: e, configuration: e.inUse().Configuration(), loopback: loopback,
		began: e.clock.Now(), told: map[string]bool{},
	}
}

// look looks once, and returns when to look again; zero for never.
func (c *servedCheck) look(ctx context.Context) time.Duration {
	has, err := servedBy(ctx, c.loopback)
	if err != nil {
		return c.unanswered(err)
	}
	c.settled = true
	unknown := 0
	warnings := c.configuration.Unserved(func(r schema.GroupResource) bool {
		if !has.resources[r] && has.unknown[r.Group] {
			unknown++
			return true // nothing speaks against it
		}
		return has.resources[r]
	})
	c.tell(warnings)
	switch {
	case len(warnings) > 0 || unknown == 0:
		metrics.UnservedResources(len(warnings))
	default:
		metrics.UnservedResourcesUnknown()
	}
	if len(warnings)+unknown > 0 {
		return askServedAgain
	}
	return 0
}

// unanswered is a look that did not succeed. What an earlier one found stands.
func (c *servedCheck) unanswered(cause error) time.Duration {
	if c.settled {
		return askServedAgain
	}
	if c.clock.Since(c.began) < askServedFor {
		return askServedEvery
	}
	c.settled = true
	c.logger.V(1).Info("Did not check whether the server has the resources in the encryption configuration", "cause", cause, "again", askServedAgain)
	return askServedAgain
}

// tell warns of what was not warned of before.
func (c *servedCheck) tell(warnings []config.Warning) {
	for _, w := range warnings {
		if !c.told[w.Path] {
			c.told[w.Path] = true
			c.logWarning(w)
		}
	}
}

// served is what a server has, as far as it can tell.
type served struct {
	resources map[schema.GroupResource]bool
	// unknown are the groups of which it cannot tell all, as when the server of an
	// aggregated API is away.
	unknown map[string]bool
}

// until is a transport whose requests all end with a context: discovery takes none.
type until struct {
	ctx context.Context
	http.RoundTripper
}

func (u until) RoundTrip(r *http.Request) (*http.Response, error) {
	return u.RoundTripper.RoundTrip(r.WithContext(u.ctx))
}

// servedBy asks a server that is ready but for its KMS plugins what it has.
func servedBy(ctx context.Context, loopback *rest.Config) (served, error) {
	ctx, end := context.WithTimeout(ctx, askServedWithin)
	defer end()
	bounded := rest.CopyConfig(loopback)
	bounded.Wrap(func(t http.RoundTripper) http.RoundTripper { return until{ctx, t} })
	client, err := discovery.NewDiscoveryClientForConfig(bounded)
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
			}
		}
	}
	if len(s.resources) == 0 {
		return errors.New("the server lists no resources yet")
	}
	return nil
}
