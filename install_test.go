package atrest_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/server"
	apihealthz "k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/apiserver/pkg/server/options"
	etcd3metrics "k8s.io/apiserver/pkg/storage/etcd3/metrics"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/client-go/rest"
	basecompatibility "k8s.io/component-base/compatibility"

	"github.com/kube-atrest/atrest"
	"github.com/kube-atrest/atrest/healthz"
	"github.com/kube-atrest/atrest/internal/etcdtest"
	"github.com/kube-atrest/atrest/internal/faultplugin"
	"github.com/kube-atrest/atrest/reload"
)

// hookName is kube-apiserver's name for the hook that follows the file.
const hookName = "start-encryption-provider-config-automatic-reload"

// secured is the config of an apiserver on a port of the loopback interface. A
// user is called as the token is, and allowed says what it may.
func secured(t *testing.T, allowed func(authorizer.Attributes) bool) *server.Config {
	c := newServerConfig()
	c.EffectiveVersion = basecompatibility.NewEffectiveVersionFromString("1.36", "", "")
	c.ExternalAddress = "127.0.0.1:443"
	secure := options.NewSecureServingOptions()
	secure.BindAddress, secure.ServerCert.CertDirectory = net.IPv4(127, 0, 0, 1), t.TempDir()
	var err error
	secure.Listener, secure.BindPort, err = options.CreateListener("tcp", "127.0.0.1:0", net.ListenConfig{})
	require.NoError(t, err)
	require.NoError(t, secure.MaybeDefaultWithSelfSignedCerts("localhost", nil, []net.IP{secure.BindAddress}))
	require.NoError(t, secure.WithLoopback().ApplyTo(&c.SecureServing, &c.LoopbackClientConfig))

	c.Authentication.Authenticator = bearertoken.New(authenticator.TokenFunc(func(_ context.Context, token string) (*authenticator.Response, bool, error) {
		return &authenticator.Response{User: &user.DefaultInfo{Name: token}}, true, nil
	}))
	c.Authorization.Authorizer = authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		if allowed(a) {
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionNoOpinion, "", nil
	})
	return c
}

// running is an apiserver with nothing in it but what ApplyTo adds.
type running struct {
	*server.GenericAPIServer
	t      *testing.T
	config *server.Config
	stop   func() // begins its end, and returns
}

// runServer runs a server until the test ends.
func runServer(t *testing.T, c *server.Config, o *atrest.Options) *running {
	require.NoError(t, o.ApplyTo(c))
	s, err := c.Complete(nil).New("test", server.NewEmptyDelegate())
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	prepared := s.PrepareRun()
	go func() { ended <- prepared.RunWithContext(ctx) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-ended)
	})
	return &running{s, t, c, stop}
}

// request is the code that a user gets; nobody has no token.
func (r *running) request(user, method, path string) int {
	to := rest.AnonymousClientConfig(r.config.LoopbackClientConfig)
	to.BearerToken = user
	client, err := rest.HTTPClientFor(to)
	require.NoError(r.t, err)
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(r.t.Context(), method, to.Host+path, nil)
	require.NoError(r.t, err)
	resp, err := client.Do(req)
	require.NoError(r.t, err)
	require.NoError(r.t, resp.Body.Close())
	return resp.StatusCode
}

// write stores something as the server does.
func (r *running) write() error {
	_, err := r.config.ResourceTransformers.TransformerForResource(secrets).TransformToStorage(context.Background(), nil, at)
	return err
}

func TestWhatIsToldOfEncryptionIsForThoseWhoMay(t *testing.T) {
	p := faultplugin.Start(t)
	path, _ := place(t, configuration(p, "secrets"))
	s := runServer(t, secured(t, func(a authorizer.Attributes) bool {
		switch a.GetUser().GetName() {
		case "operator":
			return !a.IsResourceRequest() && a.GetVerb() == "post" && a.GetPath() == "/debug/encryption/ask"
		case "reader":
			return !a.IsResourceRequest() && a.GetVerb() == "get"
		}
		return false
	}), optionsFor(path))
	for _, c := range []struct {
		user, method, path string
		code               int
	}{
		{"reader", "GET", healthz.Path, http.StatusOK},
		{"reader", "GET", "/readyz/kms-providers", http.StatusOK},
		{"reader", "GET", "/healthz/kms-providers", http.StatusOK},
		{"reader", "GET", "/livez/kms-providers", http.StatusNotFound}, // a restart mends no plugin
		{"reader", "POST", healthz.AskPath, http.StatusForbidden},
		{"reader", "GET", healthz.AskPath, http.StatusMethodNotAllowed},
		{"reader", "GET", "/debug/encryptions", http.StatusNotFound},
		{"operator", "POST", healthz.AskPath, http.StatusOK},
		{"operator", "GET", healthz.Path, http.StatusForbidden},
		{"", "POST", healthz.AskPath, http.StatusUnauthorized},
		{"", "GET", healthz.Path, http.StatusUnauthorized},
	} {
		require.Equal(t, c.code, s.request(c.user, c.method, c.path), "%+v", c)
	}
}

func TestEncryptionEndsWhenTheLastRequestHasBeenAnswered(t *testing.T) {
	p := faultplugin.New(t)
	plugin := serveCounted(t, p)
	path, _ := place(t, fileOf(rule("secrets", kms("test", plugin.endpoint))))
	s := runServer(t, secured(t, func(authorizer.Attributes) bool { return true }), optionsFor(path))
	underWay, goOn, written := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	s.Handler.NonGoRestfulMux.HandleFunc("/slow", func(http.ResponseWriter, *http.Request) {
		close(underWay)
		<-goOn
		written <- s.write()
	})
	answered := make(chan int, 1)
	go func() { answered <- s.request("somebody", "GET", "/slow") }()
	<-underWay
	require.NoError(t, s.write())
	s.stop()
	<-s.config.ShutdownInitiatedNotify()
	require.NoError(t, s.write(), "a request is under way")
	close(goOn)
	require.NoError(t, <-written)
	require.Equal(t, http.StatusOK, <-answered)
	eventually(t, func() bool { return s.write() != nil })
	require.ErrorIs(t, s.write(), reload.ErrClosed)
	plugin.requireClosed(t)
}

// Without the flag there is nothing, and nobody has to ask whether there is.
func TestNothingIsInstalledWithoutAFile(t *testing.T) {
	e, err := atrest.NewOptions().Start(t.Context(), "test")
	require.NoError(t, err)
	defer e.Close()
	config, before := newServerConfig(), newServerConfig()
	config.RESTOptionsGetter = given{}
	require.NoError(t, e.Install(config))
	require.Equal(t, given{}, config.RESTOptionsGetter)
	require.Equal(t, given{}, e.RESTOptions(given{}))
	require.Len(t, config.HealthzChecks, len(before.HealthzChecks))
	require.Empty(t, config.PostStartHooks)
}

func TestInstallAddsAllAndToNobodyElse(t *testing.T) {
	p := faultplugin.Start(t)
	path, _ := place(t, configuration(p, "secrets"))
	e := start(t, optionsFor(path))
	config := newServerConfig()
	config.RESTOptionsGetter = givenFor(etcdtest.Start(t))
	config.HealthzChecks, config.ReadyzChecks = slices.Grow(config.HealthzChecks, 9), slices.Grow(config.ReadyzChecks, 9)
	others := *config // as kube-apiserver copies a config for each of its servers
	require.NoError(t, e.Install(config))
	options, err := config.RESTOptionsGetter.GetRESTOptions(secrets, nil)
	require.NoError(t, err)
	require.Equal(t, e.ResourceTransformers().TransformerForResource(secrets), options.StorageConfig.Transformer)
	require.Contains(t, config.PostStartHooks, hookName)
	for _, checks := range [][]apihealthz.HealthChecker{config.HealthzChecks, config.ReadyzChecks} {
		require.Equal(t, "kms-providers", checks[len(checks)-1].Name())
	}
	others.AddHealthzChecks(apihealthz.PingHealthz)
	require.Equal(t, "kms-providers", config.HealthzChecks[len(config.HealthzChecks)-1].Name(), "they share nothing")
	require.ErrorContains(t, e.Install(config), "encryption at rest: ")
}

// A server whose hook cannot be added is not made: nothing of ours may be left.
func TestWhatCannotBeLinkedLeavesNothingBehind(t *testing.T) {
	p := faultplugin.New(t)
	plugin := serveCounted(t, p)
	path, _ := place(t, fileOf(rule("secrets", kms("test", plugin.endpoint))))
	config := newServerConfig()
	require.NoError(t, config.AddPostStartHook(hookName, func(server.PostStartHookContext) error { return nil }))
	require.ErrorContains(t, optionsFor(path).ApplyTo(config), "encryption at rest: ")
	plugin.requireClosed(t)
	require.Nil(t, config.ResourceTransformers)
}

func TestAFileThatCannotBeUsedEndsTheLinking(t *testing.T) {
	path, _ := place(t, "kind: [")
	config := newServerConfig()
	require.ErrorContains(t, optionsFor(path).ApplyTo(config), path)
	require.Nil(t, config.ResourceTransformers)
	require.Empty(t, config.PostStartHooks)
}

// shared gives the same options to whoever asks.
type shared struct {
	*storagebackend.ConfigForResource
}

func (s shared) GetRESTOptions(schema.GroupResource, runtime.Object) (generic.RESTOptions, error) {
	return generic.RESTOptions{StorageConfig: s.ConfigForResource}, nil
}

func TestTheStorageOptionsOfAServerAreNotChangedInPlace(t *testing.T) {
	p := faultplugin.Start(t)
	path, _ := place(t, configuration(p, "configmaps"))
	e := start(t, optionsFor(path))
	theirs := shared{storagebackend.NewDefaultConfig("/registry", nil).ForResource(secrets)}
	ours, err := e.RESTOptions(theirs).GetRESTOptions(secrets, nil)
	require.NoError(t, err)
	require.Nil(t, theirs.Transformer)
	require.Same(t, e.ResourceTransformers().TransformerForResource(secrets), ours.StorageConfig.Transformer)
	require.Equal(t, "/registry", ours.StorageConfig.Prefix)

	none, err := e.RESTOptions(shared{}).GetRESTOptions(secrets, nil)
	require.NoError(t, err)
	require.Nil(t, none.StorageConfig, "a resource that is not stored")

	_, err = e.RESTOptions(given{err: errors.New("no such storage")}).GetRESTOptions(secrets, nil)
	require.EqualError(t, err, "no such storage")
}

// Nobody has to know in which order a config is filled: what comes of a mistake in
// that would be plaintext, and nothing would tell.
func TestNothingIsStoredInPlaintextInWhicheverOrderAConfigIsFilled(t *testing.T) {
	p, etcd := faultplugin.Start(t), etcdtest.Start(t)
	path, _ := place(t, configuration(p, "secrets"))
	t.Cleanup(func() {
		etcd3metrics.SetStorageMonitorGetter(func() ([]etcd3metrics.Monitor, error) { return nil, nil })
	})
	for name, step := range map[string]func(*server.Config) error{
		"Install": func(c *server.Config) error { return start(t, optionsFor(path)).Install(c) },
		"ApplyTo": func(c *server.Config) error { return optionsFor(path).ApplyTo(c) },
	} {
		storage := etcdOf(etcd).ApplyTo
		for order, steps := range map[string][]func(*server.Config) error{
			"before the storage": {step, storage},
			"after the storage":  {storage, step},
			"between":            {storage, step, storage},
		} {
			t.Run(name+" "+order, func(t *testing.T) {
				c := newServerConfig()
				for _, step := range steps {
					require.NoError(t, step(c))
				}
				requireEncrypted(t, c)
				newServer(t, c)
				requireEncrypted(t, c)
			})
		}
	}
}

// requireEncrypted stores a Secret as a server of the config does.
func requireEncrypted(t *testing.T, c *server.Config) {
	t.Helper()
	o, err := c.RESTOptionsGetter.GetRESTOptions(secrets, nil)
	require.NoError(t, err)
	require.NotNil(t, o.StorageConfig.Transformer)
	out, err := o.StorageConfig.Transformer.TransformToStorage(t.Context(), []byte("plain"), at)
	require.NoError(t, err)
	require.Contains(t, string(out), "k8s:enc:kms:v2:test:")
}

func TestARefusedInstallChangesNothing(t *testing.T) {
	p := faultplugin.Start(t)
	path, _ := place(t, configuration(p, "secrets"))
	e := start(t, optionsFor(path))
	c := newServerConfig()
	c.RESTOptionsGetter = givenFor(etcdtest.Start(t))
	require.NoError(t, c.AddPostStartHook(hookName, func(server.PostStartHookContext) error { return nil }))
	getter, checks := c.RESTOptionsGetter, len(c.HealthzChecks)
	require.ErrorContains(t, e.Install(c), "encryption at rest: ")
	require.Equal(t, getter, c.RESTOptionsGetter)
	require.Nil(t, c.ResourceTransformers)
	require.Len(t, c.HealthzChecks, checks)
}

// A getter that a server's configs share may come by twice.
func TestStorageOptionsAreWrappedOnce(t *testing.T) {
	path, _ := place(t, fileOf(rule("secrets", aesgcm)))
	e, other := start(t, optionsFor(path)), start(t, optionsFor(path))
	once := e.RESTOptions(&given{})
	require.True(t, once == e.RESTOptions(once))
	require.False(t, once == other.RESTOptions(once), "it is another's")
}

// A check of the same name tells of something else.
func TestInstallIsRefusedBesideAnotherCheckOfItsName(t *testing.T) {
	path, _ := place(t, fileOf(rule("secrets", aesgcm)))
	e := start(t, optionsFor(path))
	c := server.NewConfig(serializer.NewCodecFactory(runtime.NewScheme()))
	c.ReadyzChecks = append(c.ReadyzChecks, apihealthz.NamedCheck("kms-providers", func(*http.Request) error { return nil }))
	readyz := len(c.ReadyzChecks)
	require.ErrorContains(t, e.Install(c), "a check kms-providers already")
	require.Len(t, c.ReadyzChecks, readyz)
	require.NotContains(t, c.PostStartHooks, hookName)

	c.ReadyzChecks = c.ReadyzChecks[:readyz-1]
	require.NoError(t, e.Install(c))
	copied := *c
	copied.PostStartHooks = map[string]server.PostStartHookConfigEntry{}
	require.NoError(t, e.Install(&copied))
	require.Len(t, copied.ReadyzChecks, len(c.ReadyzChecks), "the copy has it already")
}
