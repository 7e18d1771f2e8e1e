package preflight_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kube-atrest/atrest/internal/faultplugin"
	"github.com/kube-atrest/atrest/kmsplugin"
	"github.com/kube-atrest/atrest/kmsplugin/keyfile"
	"github.com/kube-atrest/atrest/kmsplugin/plugintest"
	"github.com/kube-atrest/atrest/kmsplugin/vault"
	"github.com/kube-atrest/atrest/kmsplugin/vault/vaulttest"
	"github.com/kube-atrest/atrest/operate/bundle"
	"github.com/kube-atrest/atrest/operate/preflight"
)

// serves runs the plugin of a back end and gives the path of its socket.
func serves(t *testing.T, backend kmsplugin.Backend, c kmsplugin.Config) string {
	t.Helper()
	c.Poll = 50 * time.Millisecond
	keeper, err := kmsplugin.NewKeeper(backend, c)
	require.NoError(t, err)
	rest := keeper.Start(t.Context())
	endpoint := plugintest.Endpoint(t)
	stop := plugintest.Serve(t, endpoint, keeper)
	t.Cleanup(func() { stop(); require.NoError(t, rest()) })
	require.Eventually(t, func() bool { _, err := keeper.Status(t.Context()); return err == nil }, time.Minute, 10*time.Millisecond)
	return socketOf(endpoint)
}

func seen(t *testing.T, was, is string) bundle.Evidence {
	t.Helper()
	e, err := preflight.Evidence(t.Context(), was, is, 20*time.Second)
	require.NoError(t, err)
	return e
}

func TestTwoPluginsWithOneKeyFileShowIt(t *testing.T) {
	one, other := keyfile.At(t.TempDir()+"/kek.json"), keyfile.At(t.TempDir()+"/kek.json")
	for _, file := range []*keyfile.File{one, other} {
		_, err := file.Create(t.Context())
		require.NoError(t, err)
	}
	was := serves(t, one, kmsplugin.Config{})
	e := seen(t, was, serves(t, one, kmsplugin.Config{}))
	require.Equal(t, e.Was, e.Is)
	require.Equal(t, bundle.Evidence{Was: e.Was, Is: e.Is, Opened: bundle.Yes, OpenedBack: bundle.Yes}, e)
	e = seen(t, was, serves(t, other, kmsplugin.Config{}))
	require.NotEqual(t, e.Was, e.Is)
	require.Equal(t, []bundle.Answer{bundle.No, bundle.No}, []bundle.Answer{e.Opened, e.OpenedBack})
}

// One KEK by two addresses, a version that is picked, a key that was made anew under its name.
func TestTwoPluginsOfOneVaultShowWhichKeyTheyHave(t *testing.T) {
	s := vaulttest.Start(t)
	s.CreateKey("k", "")
	s.CreateKey("other", "")
	token := t.TempDir() + "/token"
	require.NoError(t, os.WriteFile(token, []byte(s.RootToken), 0o600))
	at := func(change func(*vault.Config)) string {
		c := vault.Config{Address: s.Address, Mount: "transit", Key: "k", TLS: vault.TLS{CAFile: s.CA}, Auth: vault.Auth{TokenFile: token}}
		change(&c)
		transit, err := vault.New(c)
		require.NoError(t, err)
		return serves(t, transit, transit.Config())
	}
	was := at(func(*vault.Config) {})
	for name, row := range map[string]struct {
		change func(*vault.Config)
		same   bool
		opened bundle.Answer
	}{
		"another name of the address": {func(c *vault.Config) {
			c.Address, c.TLS.ServerName = strings.Replace(c.Address, "127.0.0.1", "localhost", 1), "vault.test"
		}, true, bundle.Yes},
		"another key": {func(c *vault.Config) { c.Key = "other" }, false, bundle.No},
	} {
		e := seen(t, was, at(row.change))
		require.Equal(t, row.same, e.Was == e.Is, name)
		require.Equal(t, []bundle.Answer{row.opened, row.opened}, []bundle.Answer{e.Opened, e.OpenedBack}, name)
	}
	s.Rotate("k")
	pinned := at(func(c *vault.Config) { c.KeyVersion = "1" })
	newest := at(func(*vault.Config) {})
	e := seen(t, pinned, newest)
	require.NotEqual(t, e.Was, e.Is)
	require.Equal(t, []bundle.Answer{bundle.Yes, bundle.Yes}, []bundle.Answer{e.Opened, e.OpenedBack}, "another version is no other KEK")
}

func TestWhatIsNotSeenOfTwoPluginsIsNoAnswer(t *testing.T) {
	for name, spoil := range map[string]func(was, is *faultplugin.Behaviour){
		"the one in use is not well":         func(was, _ *faultplugin.Behaviour) { was.Healthz = "no" },
		"the one to be is not well":          func(_, is *faultplugin.Behaviour) { is.Healthz = "no" },
		"the one to be does not encrypt":     func(_, is *faultplugin.Behaviour) { is.EncryptErr = status.Error(codes.PermissionDenied, "no") },
		"the one to be does not decrypt":     func(_, is *faultplugin.Behaviour) { is.DecryptErr = status.Error(codes.Unavailable, "no") },
		"the one in use does not decrypt":    func(was, _ *faultplugin.Behaviour) { was.DecryptErr = status.Error(codes.PermissionDenied, "no") },
		"the one in use does not say why":    func(was, is *faultplugin.Behaviour) { is.KeyID, was.Foreign = "2", []string{"2"} },
		"the one to be does not say why":     func(was, is *faultplugin.Behaviour) { is.KeyID, is.Foreign = "2", []string{"1"} },
		"one errs as a plugin without codes": func(_, is *faultplugin.Behaviour) { is.DecryptErr = errors.New("no") },
	} {
		was, is := faultplugin.Start(t), faultplugin.Start(t)
		b, c := faultplugin.Healthy("1"), faultplugin.Healthy("1")
		spoil(&b, &c)
		was.Set(func(x *faultplugin.Behaviour) { *x = b })
		is.Set(func(x *faultplugin.Behaviour) { *x = c })
		e, err := preflight.Evidence(context.Background(), socketOf(was.Endpoint()), socketOf(is.Endpoint()), 10*time.Second)
		require.Error(t, err, name)
		require.Equal(t, bundle.NotSeen, e.Opened, name)
	}
}
