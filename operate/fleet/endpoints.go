package fleet

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/kube-atrest/atrest/internal/kubeapi"
)

// The Service that leads to all kube-apiservers.
const (
	serviceNamespace = "default"
	serviceName      = "kubernetes"
	serviceLabel     = "kubernetes.io/service-name"
	endpointsRights  = "the user needs the verb list for endpointslices (discovery.k8s.io), or get for endpoints, in namespace " + serviceNamespace
)

// endpoint is where an apiserver is; its port is 0 if that is not told.
type endpoint struct {
	host string
	port int32
}

// ports are those of some endpoints.
type ports []struct {
	Name string `json:"name"`
	Port int32  `json:"port"`
}

// of is the port of an apiserver.
func (p ports) of() int32 {
	for _, port := range p {
		if port.Name == "https" || len(p) == 1 {
			return port.Port
		}
	}
	return 0
}

// endpointSlices are a list of EndpointSlices.
type endpointSlices struct {
	Items []struct {
		Endpoints []struct {
			Addresses []string `json:"addresses"`
		} `json:"endpoints"`
		Ports ports `json:"ports"`
	} `json:"items"`
}

var errNoEndpoints = errors.New("there are no endpoints of the Service kubernetes in namespace default: ask a kube-apiserver for them")

// Unread is why the endpoints of the Service of the apiservers cannot be read, so that
// Leases alone tell [Fleet.Others] which there are: one without a Lease is not seen.
func (f *Fleet) Unread(ctx context.Context) error {
	if _, err := f.endpoints(ctx); !errors.Is(err, errNoEndpoints) {
		return err
	}
	return nil
}

// endpoints are those of the Service of the apiservers, also of those that are not
// ready. It is an error if there are none.
func (f *Fleet) endpoints(ctx context.Context) ([]endpoint, error) {
	var listed endpointSlices
	listable, failure := f.list(ctx, kubeapi.Request{Method: http.MethodGet, Query: url.Values{"labelSelector": {serviceLabel + "=" + serviceName}},
		Path: []string{"apis", "discovery.k8s.io", "v1", "namespaces", serviceNamespace, "endpointslices"}}, &listed)
	var found []endpoint
	for _, s := range listed.Items {
		for _, e := range s.Endpoints {
			for _, address := range e.Addresses {
				found = append(found, endpoint{normal(address), s.Ports.of()})
			}
		}
	}
	if len(found) > 0 {
		return distinct(found), nil
	}
	found, err := f.legacyEndpoints(ctx)
	switch {
	case len(found) > 0:
		return distinct(found), nil
	case !listable && (failure != nil || err != nil):
		return nil, forbidden(inOneLine(failure, err), endpointsRights)
	}
	return nil, errNoEndpoints
}

// legacyEndpoints are those of a cluster without EndpointSlices.
func (f *Fleet) legacyEndpoints(ctx context.Context) ([]endpoint, error) {
	type address struct {
		IP string `json:"ip"`
	}
	var endpoints struct {
		Subsets []struct {
			Ready    []address `json:"addresses"`
			NotReady []address `json:"notReadyAddresses"`
			Ports    ports     `json:"ports"`
		} `json:"subsets"`
	}
	_, err := f.list(ctx, kubeapi.Request{Method: http.MethodGet,
		Path: []string{"api", "v1", "namespaces", serviceNamespace, "endpoints", serviceName}}, &endpoints)
	var found []endpoint
	for _, s := range endpoints.Subsets {
		for _, a := range slices.Concat(s.Ready, s.NotReady) {
			found = append(found, endpoint{normal(a.IP), s.Ports.of()})
		}
	}
	return found, err
}

// distinct are endpoints, each once.
func distinct(all []endpoint) []endpoint {
	slices.SortFunc(all, func(a, b endpoint) int { return cmp.Or(strings.Compare(a.host, b.host), cmp.Compare(a.port, b.port)) })
	return slices.Compact(all)
}

// normal is the one form of an address, which is an IP or a name.
func normal(address string) string {
	if ip, err := netip.ParseAddr(address); err == nil {
		return ip.Unmap().String()
	}
	return strings.ToLower(address)
}

// elsewhere are apiservers at addresses that no member has.
func (f *Fleet) elsewhere(endpoints []endpoint) []Other {
	known, why := map[string]bool{}, "it is an endpoint of the Service kubernetes in namespace default, and the address of no apiserver that is named"
	var behindNames []string
	for _, m := range f.members {
		host := m.api.Base.Hostname()
		known[normal(host)] = true
		if _, err := netip.ParseAddr(host); err != nil {
			behindNames = append(behindNames, m.name)
		}
	}
	if len(behindNames) > 0 {
		why += "; it may be one of those that are reached by a name of their host: " + strings.Join(behindNames, ", ")
	}
	var others []Other
	for _, e := range endpoints {
		if !known[e.host] {
			known[e.host] = true
			others = append(others, Other{Name: e.host, Why: why})
		}
	}
	return others
}
