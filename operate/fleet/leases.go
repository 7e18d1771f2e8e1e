package fleet

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kube-atrest/atrest/internal/hashed"
	"github.com/kube-atrest/atrest/internal/kubeapi"
	"github.com/kube-atrest/atrest/operate/rotation"
)

// The Leases by which kube-apiserver tells that it is there. Each is called by the
// ID of its apiserver.
const (
	leaseNamespace = "kube-system"
	leaseSelector  = "apiserver.kubernetes.io/identity=kube-apiserver"
	hostLabel      = "kubernetes.io/hostname"
)

// renewal is in how much time a Lease of a kube-apiserver that is well is renewed,
// many times over: it does so every 10 s.
const renewal = time.Minute

// lease is the Lease of an apiserver.
type lease struct {
	Metadata struct {
		Name   string            `json:"name"`
		Labels map[string]string `json:"labels"`
	} `json:"metadata"`
	Spec struct {
		Seconds *int32            `json:"leaseDurationSeconds"`
		Renewed *metav1.MicroTime `json:"renewTime"`
	} `json:"spec"`

	age time.Duration // since it was renewed, 0 if that is not known
}

// leases are those of the apiservers that live, none where there is no such thing.
// One that does not say until when it is valid is. The moment is that of the latest
// renewal, or now by the clock here if that is earlier: a clock that is wrong, here
// or there, ends no Lease.
func (f *Fleet) leases(ctx context.Context) ([]lease, error) {
	var all struct {
		Items []lease `json:"items"`
	}
	_, err := f.list(ctx, leaseRequest(), &all)
	if err != nil {
		if IsUnreadable(err) {
			err = fmt.Errorf("%w: its holder makes a Lease again: delete the one that cannot be read from etcd (etcdctl del KEY)", err)
		}
		return nil, fmt.Errorf("the Leases of the apiservers cannot be read: %w",
			forbidden(err, "the user needs the verb list for leases (coordination.k8s.io) in namespace "+leaseNamespace))
	}
	var latest time.Time
	for _, l := range all.Items {
		if l.Spec.Renewed != nil && l.Spec.Renewed.After(latest) {
			latest = l.Spec.Renewed.Time
		}
	}
	if now := f.clock.Now(); now.Before(latest) {
		latest = now
	}
	for i := range all.Items {
		if l := &all.Items[i]; l.Spec.Renewed != nil {
			l.age = max(0, latest.Sub(l.Spec.Renewed.Time))
		}
	}
	return slices.DeleteFunc(all.Items, lease.ended), nil
}

func leaseRequest() kubeapi.Request {
	return kubeapi.Request{Method: http.MethodGet, Query: url.Values{"labelSelector": {leaseSelector}},
		Path: []string{"apis", "coordination.k8s.io", "v1", "namespaces", leaseNamespace, "leases"}}
}

// keepers are the members but those that are known to serve no Leases, as an aggregated
// apiserver: it tells the identity of its host, whose Lease is that of a kube-apiserver.
func (f *Fleet) keepers(ctx context.Context) []*member {
	lacks := make([]bool, len(f.members))
	var asked sync.WaitGroup
	for i, m := range f.members {
		asked.Go(func() { lacks[i] = apierrors.IsNotFound(m.send(ctx, leaseRequest(), nil)) })
	}
	asked.Wait()
	var keepers []*member
	for i, m := range f.members {
		if !lacks[i] {
			keepers = append(keepers, m)
		}
	}
	return keepers
}

func (l lease) ended() bool {
	return l.Spec.Seconds != nil && *l.Spec.Seconds > 0 && l.age > time.Duration(*l.Spec.Seconds)*time.Second
}

// isOf reports whether a Lease is that of a member: the one that tells its identity,
// or one that tells none and is reached by the name of its host.
func (l lease) isOf(members []*member, told map[string]rotation.Instance) bool {
	return slices.ContainsFunc(members, func(m *member) bool {
		if server := told[m.name].Server; server != "" {
			return server == hashed.ID(l.Metadata.Name)
		}
		return strings.EqualFold(m.api.Base.Hostname(), l.Metadata.Labels[hostLabel])
	})
}

// nameless are the members that tell no identity.
func nameless(told map[string]rotation.Instance) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(told)), func(name string) bool { return told[name].Server != "" })
}

// other is an apiserver of which there is only a Lease.
func (l lease) other(nameless []string) Other {
	o := Other{Name: l.Metadata.Labels[hostLabel], Why: fmt.Sprintf("it has the Lease %s in namespace %s", l.Metadata.Name, leaseNamespace)}
	if o.Name == "" {
		o.Name = l.Metadata.Name
	}
	if l.age > renewal {
		o.Why += fmt.Sprintf(", which was last renewed %s ago: it may be gone", l.age.Round(time.Second))
	}
	if len(nameless) > 0 {
		o.Why += "; it may be one of those that tell no identity: " + strings.Join(nameless, ", ")
	}
	return o
}
