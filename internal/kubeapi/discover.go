package kubeapi

import (
	"context"
	"net/http"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
)

// Discovery finds out what the apiserver that c leads to serves. All its requests end
// with ctx, which client-go's discovery does not take.
func Discovery(ctx context.Context, c *rest.Config) (*discovery.DiscoveryClient, error) {
	c = rest.CopyConfig(c)
	c.Wrap(func(next http.RoundTripper) http.RoundTripper { return until{ctx, bounded{next}} })
	return discovery.NewDiscoveryClientForConfig(c)
}

type until struct {
	ctx  context.Context
	next http.RoundTripper
}

func (u until) RoundTrip(r *http.Request) (*http.Response, error) {
	return u.next.RoundTrip(r.WithContext(u.ctx))
}

// WrappedRoundTripper is as that of bounded.
func (u until) WrappedRoundTripper() http.RoundTripper { return u.next }
