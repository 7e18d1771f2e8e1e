package fleet

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"

	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
)

// At is the apiserver at an address of its own, https://HOST[:PORT], for the user of a
// configuration and by its CA. Its name is HOST:PORT. Only one of this machine may be
// reached by http, as the user's token would be in the clear.
func At(address string, user *rest.Config) (Member, error) {
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Path != "" && u.Path != "/" || u.Scheme != "https" && u.Scheme != "http":
		return Member{}, fmt.Errorf("the address of an apiserver is %q: write https://HOST:PORT, and no more", address)
	case u.Scheme == "http" && !isLocal(u.Hostname()):
		return Member{}, fmt.Errorf("the address of an apiserver is %q: write https, as credentials go there", address)
	}
	port := cmp.Or(u.Port(), map[string]string{"https": "443", "http": "80"}[u.Scheme])
	config := rest.CopyConfig(user)
	name := net.JoinHostPort(normal(u.Hostname()), port)
	config.Host = u.Scheme + "://" + name
	return Member{Name: name, Config: config}, nil
}

func isLocal(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// Found are the apiservers that are endpoints of the Service default/kubernetes, as one of
// them tells, for its user. One that went away over some seconds ago is none; [Fleet.Others]
// knows of it for an hour by its Lease.
func Found(ctx context.Context, through *rest.Config) ([]Member, error) {
	one, err := New([]Member{{Name: through.Host, Config: through}}, clock.RealClock{})
	if err != nil {
		return nil, err
	}
	endpoints, err := one.endpoints(ctx)
	if err != nil {
		return nil, fmt.Errorf("which apiservers there are is not known: %w", err)
	}
	var all []Member
	for _, e := range endpoints {
		if e.port == 0 {
			return nil, fmt.Errorf("which port the apiserver at %s has is not known: the Service kubernetes in namespace default has no port https: name each by its address", e.host)
		}
		scheme := one.members[0].api.Base.Scheme
		m, err := At(scheme+"://"+net.JoinHostPort(e.host, strconv.Itoa(int(e.port))), through)
		if err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	return all, nil
}
