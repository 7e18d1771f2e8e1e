package lost

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kmstypes "k8s.io/apiserver/pkg/storage/value/encrypt/envelope/kmsv2/v2"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/operate/audit"
	"github.com/kube-atrest/atrest/operate/fleet"
	"github.com/kube-atrest/atrest/operate/migrate"
	"github.com/kube-atrest/atrest/operate/proof"
	"github.com/kube-atrest/atrest/operate/rotation"
)

// one is an object in an etcd, with apiservers that delete it.
type one struct {
	entry  audit.Entry
	gone   bool
	reads  error // whether an apiserver does
	lies   bool  // it says that it deleted it
	kept   []Record
	errors map[string]error
	hash   string // of the file in effect
	asked  int    // how often an apiserver was asked how it is
	sick   int    // the time that it was not well
}

func (o *one) Read(context.Context, string) (*audit.Contents, error) { panic("nobody walks") }
func (o *one) String() string                                        { return "etcd" }

func (o *one) Find(context.Context, string) (audit.Entry, error) {
	if o.gone {
		return audit.Entry{}, audit.ErrNotFound
	}
	return o.entry, o.errors["find"]
}

// apiservers of it.
type apiservers struct {
	proof.Fleet
	of *one
}

func (a apiservers) Unreadable(context.Context, schema.GroupVersionResource, fleet.Written) error {
	return a.of.reads
}

func (apiservers) Names() []string { return []string{"cp-1"} }

func (a apiservers) Observe(context.Context) map[string]rotation.Instance {
	i := rotation.Instance{CheckedAt: time.Now(), ConfigHash: a.of.hash}
	if a.of.asked++; a.of.asked == a.of.sick {
		i.Problem = "away"
	}
	return map[string]rotation.Instance{"cp-1": i}
}

func (a apiservers) Discard(_ context.Context, _ schema.GroupVersionResource, _, _ string, before func() error) (string, error) {
	if err := before(); err != nil {
		return "", err
	}
	a.of.gone = !a.of.lies
	return "cp-1", a.of.errors["discard"]
}

const left = `{"apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration", "resources": [{"resources": ["secrets"], "providers": [
	{"aesgcm": {"keys": [{"name": "here", "secret": "MDEyMzQ1Njc4OS10aGUtZmlyc3Qta2V5LTg5MDEyMzQ="}]}},
	{"kms": {"apiVersion": "v2", "name": "away", "endpoint": "unix:///nobody-listens-there.sock", "timeout": "1s"}}]}]}`

// gone is what is under a key that is gone.
const gone = "k8s:enc:secretbox:v1:gone:0123456789012345678901234567890123456789"

// ofPlugin is what a plugin sealed, whose provider has a name.
func ofPlugin(t *testing.T, name string) []byte {
	t.Helper()
	object, err := proto.Marshal(&kmstypes.EncryptedObject{KeyID: "k", EncryptedDEKSource: []byte("sealed"), EncryptedData: make([]byte, 40),
		EncryptedDEKSourceType: kmstypes.EncryptedDEKSourceType_AES_GCM_KEY})
	require.NoError(t, err)
	return append([]byte("k8s:enc:kms:v2:"+name+":"), object...)
}

func TestWhatKeepsAnObject(t *testing.T) {
	boom := errors.New("boom")
	for name, c := range map[string]struct {
		change func(*one, *Object)
		left   string
		stop   bool
		kept   int
	}{
		"it is lost":                      {func(*one, *Object) {}, "", false, 1},
		"it was made anew at once":        {func(o *one, is *Object) { o.lies = true; o.errors["then"] = boom }, "", false, 1},
		"it was written since":            {func(o *one, _ *Object) { o.entry.ModRevision = 8 }, "it was written since, at revision 8", false, 0},
		"it is gone":                      {func(o *one, _ *Object) { o.gone = true }, "it is gone, or not in the etcd", false, 0},
		"etcd is away":                    {func(o *one, _ *Object) { o.errors["find"] = boom }, "boom", false, 0},
		"it is plain":                     {func(o *one, _ *Object) { o.entry.Value = []byte("{}") }, "it opens now", false, 0},
		"its plugin is away":              {func(o *one, _ *Object) { o.entry.Value = ofPlugin(t, "away") }, "whether it opens is not known now: ", false, 0},
		"a plugin of another name is":     {func(o *one, _ *Object) { o.entry.Value = ofPlugin(t, "before") }, "whether it opens is not known now: ", false, 0},
		"a later Kubernetes wrote it":     {func(o *one, _ *Object) { o.entry.Value = []byte("k8s:enc:kms:v3:x:y") }, "whether it opens is not known now: ", false, 0},
		"it is cut off":                   {func(o *one, _ *Object) { o.entry.Value = []byte("k8s:enc:aesgcm:v1:here:x") }, "", false, 1},
		"an apiserver reads it":           {func(o *one, _ *Object) { o.reads = boom }, "boom", false, 0},
		"no apiserver was well before":    {func(o *one, _ *Object) { o.sick = 1 }, "nothing more is deleted: apiserver cp-1 cannot be seen", true, 0},
		"nor after":                       {func(o *one, _ *Object) { o.sick = 2 }, "nothing more is deleted: apiserver cp-1 cannot be seen", true, 0},
		"it is not deleted":               {func(o *one, _ *Object) { o.errors["discard"] = boom }, "boom", false, 1},
		"it is still there":               {func(o *one, _ *Object) { o.lies = true }, "it is still there: that apiserver has another etcd", true, 1},
		"it cannot be kept":               {func(o *one, _ *Object) { o.errors["keep"] = boom }, "as it cannot be kept: boom", true, 0},
		"no API serves it":                {func(o *one, _ *Object) { o.errors["version"] = migrate.ErrNoResource }, "no API serves it", false, 0},
		"it is not known what API serves": {func(o *one, _ *Object) { o.errors["version"] = boom }, "boom", false, 0},
		"it is another apiserver's":       {func(o *one, is *Object) { is.Key = "/openshift.io/secrets/shop/web" }, "another apiserver stores it", false, 0},
		"others go with it":               {func(o *one, is *Object) { is.Resource = "namespaces" }, ErrKept.Error(), false, 0},
		"what belongs to it may":          {func(o *one, is *Object) { is.Resource = "secrets.example.com" }, ErrKept.Error(), false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			o := &one{entry: audit.Entry{Key: "/registry/secrets/shop/db", Value: []byte(gone), ModRevision: 7}, errors: map[string]error{}}
			is := Object{Key: o.entry.Key, Resource: "secrets", Namespace: "shop", Name: "db", modRevision: 7}
			c.change(o, &is)
			stood, r := o.entry, remover(t, o)
			by, err := r.Remove(t.Context(), is)
			require.Len(t, o.kept, c.kept)
			if c.left == "" {
				require.NoError(t, err)
				require.Equal(t, "cp-1", by)
				require.Equal(t, Record{Key: is.Key, ModRevision: 7, Value: stood.Value}, o.kept[0])
				return
			}
			require.ErrorContains(t, err, c.left)
			require.Equal(t, c.stop, errors.Is(err, ErrStop))
		})
	}
}

func remover(t *testing.T, o *one) *Remover {
	t.Helper()
	c, err := config.Parse([]byte(left), config.Options{})
	require.NoError(t, err)
	o.hash = c.Hash()
	return &Remover{
		Apiservers: apiservers{of: o}, Etcd: o, Config: c, Look: NewLook(nil, c, audit.Options{Layout: audit.NewLayout("/kubernetes.io", nil)}),
		Version: func(_ context.Context, r schema.GroupResource) (schema.GroupVersionResource, error) {
			if err := o.errors["version"]; err != nil {
				return schema.GroupVersionResource{}, err
			}
			switch r.Resource {
			case "apiServerIPInfo", "unserved":
				return schema.GroupVersionResource{}, migrate.ErrNoResource
			case "lame":
				return schema.GroupVersionResource{}, errors.New("boom")
			}
			return r.WithVersion("v1"), nil
		},
		Keep: func(is Record) error {
			if err := o.errors["keep"]; err != nil {
				return err
			}
			o.kept = append(o.kept, is)
			if o.errors["then"] != nil {
				o.entry = audit.Entry{Key: is.Key, Value: []byte("{}"), ModRevision: is.ModRevision + 1}
			}
			return nil
		},
	}
}

// What is in the way of its owner is not only what somebody reads: what is left may open
// later, one that is not served may be served again, what leads to another apiserver asks any
// one of them, and what cannot be asked for may be read.
func TestWhoMayOwnAnObjectIsLeft(t *testing.T) {
	for name, c := range map[string]struct {
		of    Object
		value string
		reads error
		why   string // it is left
		left  string // the Secret that may own it
	}{
		"it may go itself":         {Object{Resource: "configmaps"}, gone, nil, "", ""},
		"it is never deleted":      {Object{Resource: "persistentvolumeclaims"}, gone, nil, "nothing but Secrets and ConfigMaps", "it may own persistentvolumeclaims shop/of, which is left and opens for nobody"},
		"nor is a custom one":      {Object{Resource: "gateways.gateway.networking.k8s.io"}, gone, nil, "nothing but Secrets and ConfigMaps", "it may own gateways.gateway.networking.k8s.io shop/of"},
		"it opens by now":          {Object{Resource: "configmaps"}, "{}", nil, "it opens now", "it may own configmaps shop/of"},
		"its plugin is away":       {Object{Resource: "configmaps"}, string(ofPlugin(t, "away")), nil, "is not known now", "it may own configmaps shop/of"},
		"no API serves it now":     {Object{Resource: "unserved.example.com"}, gone, nil, "nothing but Secrets and ConfigMaps", "it may own unserved.example.com shop/of"},
		"no API ever serves it":    {Object{Resource: "apiServerIPInfo"}, gone, nil, "nothing but Secrets and ConfigMaps", "it may own apiServerIPInfo shop/of"},
		"whether one does is dark": {Object{Resource: "lame"}, gone, nil, "boom", "it may own lame shop/of"},
		"another apiserver's":      {Object{Resource: "widgets.aggregated.com"}, gone, nil, "another apiserver stores it", "it may own widgets.aggregated.com shop/of"},
		"OpenShift's":              {Object{Resource: "routes.route.openshift.io", Key: "/openshift.io/routes/shop/of"}, gone, nil, "another apiserver stores it", "it may own routes.route.openshift.io shop/of"},
		"another reads it":         {Object{Resource: "widgets.aggregated.com"}, gone, owned("Secret", "db"), "cp-1", "it owns widgets.aggregated.com shop/of by its name, which apiserver cp-1 reads"},
		"another is owned by more": {Object{Resource: "widgets.aggregated.com"}, gone, owned("Secret", "more"), "cp-1", ""},
		"and by another kind":      {Object{Resource: "widgets.aggregated.com"}, gone, owned("ConfigMap", "db"), "cp-1", ""},
		"in another namespace":     {Object{Resource: "persistentvolumeclaims", Namespace: "blog"}, gone, nil, "nothing but Secrets and ConfigMaps", ""},
	} {
		o := &one{entry: audit.Entry{Key: "/registry/secrets/shop/db", Value: []byte(c.value), ModRevision: 7}, errors: map[string]error{}, reads: c.reads}
		r := remover(t, o)
		r.Aggregated = []string{"aggregated.com"}
		c.of.Name, c.of.modRevision = "of", 7
		if c.of.Namespace == "" {
			c.of.Namespace = "shop"
		}
		if err := r.Unreadable(t.Context(), c.of); c.why == "" {
			require.NoError(t, err, name)
		} else {
			require.ErrorContains(t, err, c.why, name)
		}
		o.reads, o.entry.Value = nil, []byte(gone)
		_, err := r.Remove(t.Context(), Object{Key: o.entry.Key, Resource: "secrets", Namespace: "shop", Name: "db", modRevision: 7})
		if c.left == "" {
			require.NoError(t, err, name)
			continue
		}
		require.ErrorContains(t, err, c.left, name)
	}
}

func owned(kind, name string) error {
	return &fleet.ReadError{Apiserver: "cp-1", Owners: []metav1.OwnerReference{{APIVersion: "v1", Kind: kind, Name: name}}}
}

// What is seen only when it is its turn counts, too.
func TestTheOwnerOfWhatOpensByNowIsLeft(t *testing.T) {
	o := &one{entry: audit.Entry{Key: "/registry/secrets/shop/db", ModRevision: 7, Value: []byte("{}")}, errors: map[string]error{}}
	r := remover(t, o)
	_, err := r.Remove(t.Context(), Object{Key: o.entry.Key, Resource: "secrets", Namespace: "shop", Name: "db", modRevision: 7})
	require.ErrorContains(t, err, "it opens now")
	o.entry = audit.Entry{Key: "/registry/configmaps/shop/owner", Value: []byte(gone), ModRevision: 7}
	_, err = r.Remove(t.Context(), Object{Key: o.entry.Key, Resource: "configmaps", Namespace: "shop", Name: "owner", modRevision: 7})
	require.ErrorContains(t, err, "it may own secrets shop/db")
}

// What was not deleted, for whatever reason, is left and opens for nobody.
func TestTheOwnerOfWhatWasNotDeletedIsLeft(t *testing.T) {
	for _, failing := range []string{"discard", "version"} {
		o := &one{entry: audit.Entry{Key: "/registry/configmaps/shop/mid", ModRevision: 7, Value: []byte(gone)}, errors: map[string]error{failing: errors.New("forbidden")}}
		r := remover(t, o)
		_, err := r.Remove(t.Context(), Object{Key: o.entry.Key, Resource: "configmaps", Namespace: "shop", Name: "mid", modRevision: 7})
		require.ErrorContains(t, err, "forbidden")
		o.gone, o.errors = false, map[string]error{}
		o.entry = audit.Entry{Key: "/registry/secrets/shop/root", Value: []byte(gone), ModRevision: 7}
		_, err = r.Remove(t.Context(), Object{Key: o.entry.Key, Resource: "secrets", Namespace: "shop", Name: "root", modRevision: 7})
		require.ErrorContains(t, err, "it may own configmaps shop/mid", failing)
	}
}

// Once an object of a resource is deleted an apiserver no longer tells what it has of it in memory.
func TestNothingOfAResourceIsDeletedWhileAnApiserverMayHaveSomeOfItInMemory(t *testing.T) {
	o := &one{entry: audit.Entry{Key: "/registry/secrets/shop/db", ModRevision: 7, Value: []byte(gone)}, errors: map[string]error{}, reads: errors.New("a webhook is away")}
	r := remover(t, o)
	require.Error(t, r.Unreadable(t.Context(), Object{Key: o.entry.Key, Resource: "secrets", Namespace: "shop", Name: "db", modRevision: 7}))
	o.reads = nil
	_, err := r.Remove(t.Context(), Object{Key: o.entry.Key, Resource: "secrets", Namespace: "blog", Name: "web", modRevision: 7})
	require.ErrorContains(t, err, "secrets shop/db is left, and an apiserver may have it in memory, which none tells once another of the secrets is deleted: see to that one first")
	_, err = r.Remove(t.Context(), Object{Key: o.entry.Key, Resource: "configmaps", Namespace: "other", Name: "web", modRevision: 7})
	require.NoError(t, err)
}
