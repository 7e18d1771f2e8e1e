package lost_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/operate/audit"
	"github.com/kube-atrest/atrest/operate/lost"
)

var layout = audit.NewLayout("", nil)

func object(resource, namespace, name string) lost.Object {
	return lost.Object{Key: "/registry/" + resource + "/" + namespace + "/" + name, Resource: resource, Namespace: namespace, Name: name, Reason: lost.NoKey}
}

// decide is the answer for one object, of which a backup has a copy unless facts is nil,
// in a cluster in which the keys are there.
func decide(o lost.Object, facts *lost.Facts, there ...string) lost.Lost {
	f := &lost.Found{Lost: []lost.Object{o}, Copies: map[string]lost.Copy{}, Layout: layout,
		There: func(key string) bool { return slices.Contains(there, key) }}
	if facts != nil {
		f.Backups = 1
		f.Copies[o.Key] = lost.Copy{Backup: "monday.db", Revision: 7, Facts: *facts}
	}
	return lost.Decide(f).Objects[0]
}

func TestNothingFoundIsNothingLost(t *testing.T) {
	a := lost.Decide(&lost.Found{})
	require.Equal(t, lost.Nothing, a.Verdict)
	require.NotNil(t, a.Objects, "for JSON")
	require.NotNil(t, a.Unknown)
}

func TestWhatTheEtcdKeyAloneTells(t *testing.T) {
	for _, c := range []struct {
		o    lost.Object
		by   string
		hint string
	}{
		{object("events", "shop", "web.1"), "nobody", ""},
		{object("leases.coordination.k8s.io", "kube-node-lease", "node-1"), "kubelet", ""},
		{object("leases.coordination.k8s.io", "kube-system", "kube-scheduler"), "holder", ""},
		{object("leases.coordination.k8s.io", "shop", "ours"), "", ""},
		{object("configmaps", "shop", "kube-root-ca.crt"), "kube-controller-manager", ""},
		{object("configmaps", "shop", "settings"), "", ""},
		{object("configmaps", "shop", "extension-apiserver-authentication"), "", ""},
		{object("endpoints", "default", "kubernetes"), "kube-apiserver", ""},
		{object("endpoints", "shop", "web"), "", "selector"},
		{object("endpointslices.discovery.k8s.io", "shop", "web-x"), "", "selector"},
		{object("serviceaccounts", "shop", "default"), "", "belongs to it"},
		{object("nodes", "", "node-1"), "", "belongs to it"},
		{object("secrets", "kube-system", "bootstrap-token-abcdef"), "", "kubeadm token create"},
		{object("secrets", "shop", "bootstrap-token-abcdef"), "", ""},
		{object("secrets", "shop", "default-token-x7k2v"), "", "perhaps"},
		{object("secrets", "shop", "github-token"), "", ""},
		{object("secrets", "shop", "db"), "", ""},
		{object("events.example.com", "shop", "x"), "", ""},
		{object("namespaces", "", "kube-system"), "", "deleted with it"},
		{object("persistentvolumeclaims", "shop", "data"), "", "deleted with it"},
	} {
		got := decide(c.o, nil)
		require.Contains(t, got.By, c.by, c.o.Key)
		require.Contains(t, got.Hint, c.hint, c.o.Key)
		require.Equal(t, c.by == "", got.By == "", c.o.Key)
		require.Equal(t, c.hint == "", got.Hint == "", c.o.Key)
		require.Equal(t, c.by != "", got.Class == lost.MadeAgain, c.o.Key)
	}
}

func TestAnOwnerMakesItAgainWhileItIsThere(t *testing.T) {
	for _, c := range []struct {
		owner lost.Owner
		there string
		again bool
	}{
		{lost.Owner{APIVersion: "cert-manager.io/v1", Kind: "Certificate", Name: "web"}, "/registry/cert-manager.io/certificates/shop/web", true},
		{lost.Owner{APIVersion: "cert-manager.io/v1", Kind: "Certificate", Name: "web"}, "/registry/cert-manager.io/certificates/other/web", false},
		{lost.Owner{APIVersion: "cert-manager.io/v1", Kind: "Certificate", Name: "web"}, "/registry/cert-manager.io/certificates/shop/web2", false},
		{lost.Owner{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web"}, "/registry/replicasets/shop/web", true},
		{lost.Owner{APIVersion: "example.com/v1", Kind: "Policy", Name: "web"}, "/registry/example.com/policies/shop/web", true},
		{lost.Owner{APIVersion: "example.com/v1", Kind: "Ingress", Name: "web"}, "/registry/example.com/ingresses/shop/web", true},
		{lost.Owner{APIVersion: "v1", Kind: "Node", Name: "node-1"}, "/registry/minions/node-1", true},
		{lost.Owner{APIVersion: "v1", Kind: "Service", Name: "web"}, "/registry/services/specs/shop/web", true},
		{lost.Owner{APIVersion: "a/b/c", Kind: "Service", Name: "web"}, "/registry/services/specs/shop/web", false},
	} {
		of := "secrets" // which controllers of Kubernetes' own do not make
		if made, own := map[string]string{"ReplicaSet": "pods", "Node": "csinodes.storage.k8s.io", "Service": "endpoints"}[c.owner.Kind]; own {
			notMade := decide(object(of, "shop", "x"), &lost.Facts{Owner: &c.owner}, c.there)
			require.Equal(t, lost.Restore, notMade.Class, c)
			require.Contains(t, notMade.Hint, "makes no such thing")
			of = made
		}
		got := decide(object(of, "shop", "x"), &lost.Facts{Owner: &c.owner}, c.there)
		require.Equal(t, c.again, got.Class == lost.MadeAgain, c)
		require.Equal(t, "monday.db", got.Backup)
		if !c.again {
			require.Contains(t, got.Hint, "was not found")
		}
	}
}

func TestWhatAnOwnerDoesNotMakeAgain(t *testing.T) {
	owner := lost.Owner{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "db"}
	there := "/registry/statefulsets/shop/db"
	require.Equal(t, lost.MadeAgain, decide(object("pods", "shop", "db-0"), &lost.Facts{Owner: &owner}, there).Class)
	require.Equal(t, lost.Restore, decide(object("persistentvolumeclaims", "shop", "data"), &lost.Facts{Owner: &owner}, there).Class)
	require.Equal(t, lost.Restore, decide(object("secrets", "shop", "t"), &lost.Facts{Owner: &owner, Type: "kubernetes.io/service-account-token"}, there).Class)
}

func TestTheTypeOfACopyIsKnown(t *testing.T) {
	token := decide(object("secrets", "shop", "t"), &lost.Facts{Type: "kubernetes.io/service-account-token"})
	require.Equal(t, lost.Restore, token.Class)
	require.Contains(t, token.Hint, "a new token is put in")
	require.Equal(t, "kubernetes.io/service-account-token", token.Type)
	require.Empty(t, decide(object("secrets", "shop", "default-token-x7k2v"), &lost.Facts{Type: "Opaque"}).Hint, "by its copy it is none")
	require.Contains(t, decide(object("secrets", "other", "b"), &lost.Facts{Type: "bootstrap.kubernetes.io/token"}).Hint, "kubeadm token create")
	require.Empty(t, decide(object("widgets.example.com", "shop", "w"), &lost.Facts{Type: "kubernetes.io/service-account-token"}).Hint, "it is no Secret")
}

func TestEndpointsOfAServiceThatIsThere(t *testing.T) {
	o := object("endpoints", "shop", "web")
	require.Equal(t, lost.MadeAgain, decide(o, &lost.Facts{ByController: true}, "/registry/services/specs/shop/web").Class)
	require.Equal(t, lost.Restore, decide(o, &lost.Facts{ByController: true}).Class)
	require.Equal(t, lost.Restore, decide(o, &lost.Facts{}, "/registry/services/specs/shop/web").Class)
}

// Whatever else is found, what is unknown makes the answer unknown, every object is in
// one class, and nothing without somebody who makes it again is taken for made again.
func TestTheAnswerHoldsForWhateverIsFound(t *testing.T) {
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 1))
		f := &lost.Found{Copies: map[string]lost.Copy{}, Layout: layout, There: func(string) bool { return r.IntN(2) == 0 }}
		resources := []string{"secrets", "events", "namespaces", "endpoints", "leases.coordination.k8s.io", "widgets.example.com"}
		for i := range r.IntN(8) {
			o := object(resources[r.IntN(len(resources))], []string{"", "shop", "kube-system"}[r.IntN(3)], fmt.Sprint(i))
			f.Lost = append(f.Lost, o)
			if r.IntN(2) == 0 {
				f.Copies[o.Key] = lost.Copy{Backup: "b", Facts: lost.Facts{Owner: &lost.Owner{APIVersion: "v1", Kind: "Service", Name: "x"}}}
			}
		}
		for range r.IntN(2) {
			f.Unknown = append(f.Unknown, lost.Unknown{Resource: "secrets", Objects: 1})
		}
		a := lost.Decide(f)
		want := lost.Nothing
		switch {
		case len(f.Unknown) > 0:
			want = lost.NotKnown
		case len(f.Lost) > 0:
			want = lost.Something
		}
		require.Equal(t, want, a.Verdict, seed)
		require.Len(t, a.Objects, len(f.Lost), seed)
		require.Equal(t, len(f.Lost), a.MadeAgain+a.Restore, seed)
		for i, l := range a.Objects {
			require.Equal(t, i >= a.Restore, l.Class == lost.MadeAgain, seed)
			require.Equal(t, l.Class == lost.MadeAgain, l.By != "", seed)
			require.Contains(t, f.Lost, l.Object, seed)
			require.False(t, l.Resource == "namespaces" && l.Class == lost.MadeAgain, seed)
		}
	}
}
