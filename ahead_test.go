package atrest_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/egressselector"
	"k8s.io/apiserver/pkg/server/options"
	etcd3metrics "k8s.io/apiserver/pkg/storage/etcd3/metrics"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/client-go/rest"
	basecompatibility "k8s.io/component-base/compatibility"

	"github.com/kube-atrest/atrest"
	"github.com/kube-atrest/atrest/internal/etcdtest"
	"github.com/kube-atrest/atrest/internal/faultplugin"
)

// sealedIn is an etcd with Secrets that so many starts of a server have written,
// each under a DEK of its own.
func sealedIn(t *testing.T, path string, starts int) *etcdtest.Server {
	etcd := etcdtest.Start(t)
	for i := range starts {
		e, err := optionsFor(path).Start(t.Context(), "")
		require.NoError(t, err)
		for j := range 3 {
			key := fmt.Sprintf("/registry/secrets/team-%d/secret-%d", j, i)
			sealed, err := e.ResourceTransformers().TransformerForResource(secrets).TransformToStorage(t.Context(), []byte("plain"), value.DefaultContext(key))
			require.NoError(t, err)
			etcd.Store(key, sealed)
		}
		e.Close()
	}
	return etcd
}

// storageOf are the storage options of a server whose objects are in an etcd.
func etcdOf(etcd *etcdtest.Server) *options.EtcdOptions {
	config := storagebackend.NewDefaultConfig("/registry", nil)
	config.Transport.ServerList = []string{etcd.Endpoint()}
	o := options.NewEtcdOptions(config)
	o.SkipHealthEndpoints = true
	return o
}

// newServer makes a server of a finished config.
func newServer(t *testing.T, config *server.Config) *server.GenericAPIServer {
	config.ExternalAddress, config.LoopbackClientConfig = "127.0.0.1:443", &rest.Config{}
	config.EffectiveVersion = basecompatibility.NewEffectiveVersionFromString("1.36", "", "")
	s, err := config.Complete(nil).New("test", server.NewEmptyDelegate())
	require.NoError(t, err)
	return s
}

// A server that begins to read has its DEKs already, in whichever way it was
// linked.
func TestAServerLooksAhead(t *testing.T) {
	const starts = 8
	for name, link := range map[string]func(*testing.T, *server.Config, *atrest.Options, *options.EtcdOptions){
		"ApplyTo": func(t *testing.T, config *server.Config, o *atrest.Options, etcd *options.EtcdOptions) {
			require.NoError(t, o.ApplyTo(config))
			require.NoError(t, etcd.ApplyTo(config))
		},
		"RESTOptions": func(t *testing.T, config *server.Config, o *atrest.Options, etcd *options.EtcdOptions) {
			require.NoError(t, etcd.ApplyTo(config))
			config.RESTOptionsGetter = start(t, o).RESTOptions(config.RESTOptionsGetter)
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := faultplugin.Start(t)
			path, _ := place(t, configuration(p, "secrets"))
			etcd := sealedIn(t, path, starts)
			config := newServerConfig()
			// EtcdOptions has the metrics of the process ask this etcd from now on.
			t.Cleanup(func() {
				etcd3metrics.SetStorageMonitorGetter(func() ([]etcd3metrics.Monitor, error) { return nil, nil })
			})
			link(t, config, optionsFor(path), etcdOf(etcd))
			newServer(t, config)
			before := p.Calls().Decrypt
			require.Equal(t, starts+1, before, "every start has its DEK proven")

			for range 2 { // as for a resource with two versions
				o, err := config.RESTOptionsGetter.GetRESTOptions(secrets, nil)
				require.NoError(t, err)
				require.NotNil(t, o.StorageConfig.Transformer)
				_, err = config.RESTOptionsGetter.GetRESTOptions(configmaps, nil)
				require.NoError(t, err)
			}
			require.Eventually(t, func() bool { return p.Calls().Decrypt == before+starts }, 30*time.Second, time.Millisecond)
			for _, r := range etcd.Requests() {
				require.True(t, strings.HasPrefix(string(r.Key), "/registry/secrets/"), "ConfigMaps are not encrypted")
				require.True(t, r.Serializable)
			}
			require.Equal(t, 1, firsts(etcd), "once")
		})
	}
}

// firsts is how many times an etcd was asked for the first Secret.
func firsts(etcd *etcdtest.Server) (n int) {
	for _, r := range etcd.Requests() {
		if string(r.Key) == "/registry/secrets/" {
			n++
		}
	}
	return n
}

// given are storage options that somebody else has made, the same for all who ask.
type given struct {
	options generic.RESTOptions
	err     error
}

func (g given) GetRESTOptions(schema.GroupResource, runtime.Object) (generic.RESTOptions, error) {
	return g.options, g.err
}

func givenFor(etcd *etcdtest.Server) given {
	config := etcdOf(etcd).StorageConfig
	return given{options: generic.RESTOptions{StorageConfig: config.ForResource(secrets), ResourcePrefix: "secrets"}}
}

// Only kube-apiserver knows the way through an egress selector.
func TestAnEtcdBehindAnEgressSelectorIsLeftAlone(t *testing.T) {
	p := faultplugin.Start(t)
	path, _ := place(t, configuration(p, "secrets, configmaps"))
	etcd := sealedIn(t, path, 1)
	e := start(t, optionsFor(path))
	behind := givenFor(etcd)
	behind.options.ResourcePrefix = "configmaps"
	behind.options.StorageConfig.Transport.EgressLookup = func(egressselector.NetworkContext) (utilnet.DialFunc, error) { return nil, nil }
	_, err := e.RESTOptions(behind).GetRESTOptions(configmaps, nil)
	require.NoError(t, err)

	before := p.Calls().Decrypt
	_, err = e.RESTOptions(givenFor(etcd)).GetRESTOptions(secrets, nil)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return p.Calls().Decrypt == before+1 }, 30*time.Second, time.Millisecond)
	e.Close()
	require.False(t, slices.ContainsFunc(etcd.Requests(), func(r *pb.RangeRequest) bool { return strings.HasPrefix(string(r.Key), "/registry/configmaps/") }))
}

func TestNoMoreDEKsAreUnwrappedAheadThanAreKept(t *testing.T) {
	p := faultplugin.Start(t)
	path, _ := place(t, configuration(p, "secrets"))
	etcd := sealedIn(t, path, 12)
	o := optionsFor(path)
	o.KMS.MaxDEKs = 1
	e, log := logged(t, o)
	before := p.Calls().Decrypt
	_, err := e.RESTOptions(givenFor(etcd)).GetRESTOptions(secrets, nil)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return strings.Contains(log(), "Looked ahead") }, 30*time.Second, time.Millisecond)
	require.Equal(t, before+1, p.Calls().Decrypt)
}

func TestCloseEndsLookingAhead(t *testing.T) {
	p := faultplugin.Start(t)
	path, _ := place(t, configuration(p, "secrets"))
	etcd, asked, over := etcdtest.Start(t), make(chan struct{}, 1), make(chan struct{})
	etcd.Before(func(*pb.RangeRequest) error {
		asked <- struct{}{}
		<-over
		return nil
	})
	defer close(over)
	e := start(t, optionsFor(path))
	_, err := e.RESTOptions(givenFor(etcd)).GetRESTOptions(secrets, nil)
	require.NoError(t, err)
	<-asked
	e.Close()
	require.Eventually(t, func() bool { return etcd.Connections() == 0 }, 30*time.Second, time.Millisecond)
}

func TestAServerWithoutStorageIsMadeAllTheSame(t *testing.T) {
	p := faultplugin.Start(t)
	path, _ := place(t, configuration(p, "secrets"))
	config := newServerConfig()
	require.NoError(t, optionsFor(path).ApplyTo(config))
	newServer(t, config)
	require.Nil(t, config.RESTOptionsGetter)
}
