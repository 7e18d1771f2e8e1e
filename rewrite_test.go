package atrest_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/storage"
	kmsapi "k8s.io/kms/apis/v2"

	"github.com/kube-atrest/atrest/internal/etcdtest"
	"github.com/kube-atrest/atrest/internal/faultplugin"
)

// touch updates an object with what it is, as a storage migration does.
func touch(t *testing.T, s storage.Interface, key string) error {
	same := storage.SimpleUpdate(func(o runtime.Object) (runtime.Object, error) { return o, nil })
	return s.GuaranteedUpdate(t.Context(), key, &example.Pod{}, false, nil, same, nil)
}

var away = status.Error(codes.Unavailable, "away")

// speechless never answers Status, and all else.
type speechless struct{ *faultplugin.Plugin }

func (speechless) Status(ctx context.Context, _ *kmsapi.StatusRequest) (*kmsapi.StatusResponse, error) {
	<-ctx.Done()
	return nil, status.FromContextError(ctx.Err()).Err()
}

// Everything is to be written again under another key, by updates that change
// nothing. An apiserver that starts meanwhile may read with its plugin and not
// know under which key that writes: an update through it must not say that it is
// done.
func TestAnUpdateThatDoesNotRewriteIsNoSuccess(t *testing.T) {
	quick := []string{"timeout: 100ms"} // for as long a start waits for what never answers
	denied := status.Error(codes.PermissionDenied, "no")
	const same, rewritten, refused = "same", "rewritten", "refused"
	for name, c := range map[string]struct {
		behave     func(*faultplugin.Behaviour)
		speechless bool
		fields     []string
		want       string
	}{
		"well, under the same key":          {behave: func(*faultplugin.Behaviour) {}, want: same},
		"well, under another key":           {behave: func(b *faultplugin.Behaviour) { b.KeyID = "2" }, want: rewritten},
		"Status fails":                      {behave: func(b *faultplugin.Behaviour) { b.KeyID, b.StatusErr = "2", away }, want: refused},
		"Status is denied":                  {behave: func(b *faultplugin.Behaviour) { b.KeyID, b.StatusErr = "2", denied }, want: refused},
		"Status names no key":               {behave: func(b *faultplugin.Behaviour) { b.KeyID = "" }, want: refused},
		"unhealthy, under another key":      {behave: func(b *faultplugin.Behaviour) { b.KeyID, b.Healthz = "2", "the KMS is slow today" }, want: refused},
		"does not encrypt under the other":  {behave: func(b *faultplugin.Behaviour) { b.KeyID, b.EncryptErr = "2", denied }, want: refused},
		"encrypts under another than named": {behave: func(b *faultplugin.Behaviour) { b.KeyID, b.EncryptKeyID = "2", "1" }, want: refused},
		"Status never answers":              {behave: func(b *faultplugin.Behaviour) { b.KeyID = "2" }, speechless: true, fields: quick, want: refused},
		"nothing is answered":               {behave: hang, fields: quick, want: refused},
		"away": {behave: func(b *faultplugin.Behaviour) {
			*b = faultplugin.Behaviour{StatusErr: away, EncryptErr: away, DecryptErr: away}
		}, want: refused},
	} {
		t.Run(name, func(t *testing.T) {
			p, etcd := faultplugin.Start(t), etcdtest.Start(t)
			path, _ := place(t, configuration(p, "pods"))
			pod := &example.Pod{ObjectMeta: metav1.ObjectMeta{Name: "x", Namespace: "default"}}
			require.NoError(t, storageOf(t, start(t, optionsFor(path)), etcd).Create(t.Context(), "/pods/default/x", pod, nil, 0))
			old, there := etcd.Value("/registry/pods/default/x")
			require.True(t, there)

			p.Set(c.behave)
			plugin := kmsapi.KeyManagementServiceServer(p)
			if c.speechless {
				plugin = speechless{p}
			}
			path, _ = place(t, fileOf(rule("pods", kms("test", serveCounted(t, plugin).endpoint, c.fields...))))
			err := touch(t, storageOf(t, start(t, optionsFor(path)), etcd), "/pods/default/x")
			now, _ := etcd.Value("/registry/pods/default/x")
			switch c.want {
			case refused:
				require.Error(t, err, "the object is under the old key")
				require.Equal(t, old, now)
			case same:
				require.NoError(t, err)
				require.Equal(t, old, now)
			case rewritten:
				require.NoError(t, err)
				require.NotEqual(t, old, now)
			}
		})
	}
}
