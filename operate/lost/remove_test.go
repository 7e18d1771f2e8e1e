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

func (a apiservers) Unreadable(context.Context, schema.GroupVersionResource, string, string) error {
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
		"no API serves it":                {func(o *one, is *Object) { is.Resource = "apiServerIPInfo" }, "no API serves it", false, 0},
		"it is not known what API serves": {func(o *one, is *Object) { is.Resource = "lame" }, "boom", false, 0},
		"it is another apiserver's":       {func(o *one, is *Object) { is.Key = "/openshift.io/routes/shop/web" }, "another apiserver stores it", false, 0},
		"others go with it":               {func(o *one, is *Object) { is.Resource = "namespaces" }, hintNever, false, 0},
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

// What is in the way of its owner is not only what somebody reads: one that is not served
// may be served again, what leads to another apiserver asks any one of them, and what
// cannot be asked for may be read.
func TestWhoMayOwnAnObjectIsLeft(t *testing.T) {
	for name, c := range map[string]struct {
		of     Object
		reads  error
		left   string
		unread bool
	}{
		"it is read by nobody":     {Object{Resource: "configmaps"}, nil, "", true},
		"no API serves it now":     {Object{Resource: "unserved.example.com"}, nil, "it may own unserved.example.com shop/of", true},
		"no API ever serves it":    {Object{Resource: "apiServerIPInfo"}, nil, "", true},
		"whether one does is dark": {Object{Resource: "lame"}, nil, "it may own lame shop/of", false},
		"another apiserver's":      {Object{Resource: "widgets.example.com"}, nil, "it may own widgets.example.com shop/of", false},
		"OpenShift's":              {Object{Resource: "routes.route.openshift.io", Key: "/openshift.io/routes/shop/of"}, nil, "it may own routes.route.openshift.io shop/of", false},
		"another reads it":         {Object{Resource: "widgets.example.com"}, &fleet.ReadError{Apiserver: "cp-1", Owners: []metav1.OwnerReference{{APIVersion: "v1", Name: "db"}}}, "it owns widgets.example.com shop/of by its name, which apiserver cp-1 reads", false},
		"another is owned by more": {Object{Resource: "widgets.example.com"}, &fleet.ReadError{Apiserver: "cp-1", Owners: []metav1.OwnerReference{{APIVersion: "v1", Name: "more"}}}, "", false},
	} {
		o := &one{entry: audit.Entry{Key: "/registry/secrets/shop/db", Value: []byte(gone), ModRevision: 7}, errors: map[string]error{}, reads: c.reads}
		r := remover(t, o)
		r.Aggregated = []string{"example.com"}
		if c.of.Resource == "unserved.example.com" {
			r.Aggregated = nil
		}
		c.of.Namespace, c.of.Name = "shop", "of"
		require.Equal(t, c.unread, r.Unreadable(t.Context(), c.of) == nil, name)
		o.reads = nil
		_, err := r.Remove(t.Context(), Object{Key: o.entry.Key, Resource: "secrets", Namespace: "shop", Name: "db", modRevision: 7})
		if c.left == "" {
			require.NoError(t, err, name)
			continue
		}
		require.ErrorContains(t, err, c.left, name)
	}
}
