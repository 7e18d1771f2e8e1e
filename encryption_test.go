package atrest_test

import (
	"context"
	"errors"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/component-base/metrics/testutil"

	"github.com/kube-atrest/atrest"
	"github.com/kube-atrest/atrest/envelope"
	"github.com/kube-atrest/atrest/internal/faultplugin"
)

var (
	secrets    = schema.GroupResource{Resource: "secrets"}
	configmaps = schema.GroupResource{Resource: "configmaps"}
	at         = value.DefaultContext("/registry/secrets/default/x")
)

func TestAChangeOfTheFileTakesEffectInTransformersHandedOutBefore(t *testing.T) {
	p := faultplugin.Start(t)
	path, put := place(t, configuration(p, "secrets"))
	e := start(t, optionsFor(path))
	follow(t, e)
	handed := e.ResourceTransformers().TransformerForResource(configmaps)
	require.Equal(t, "plain", stored(t, e, configmaps))

	put(configuration(p, "secrets, configmaps"))
	require.Eventually(t, func() bool {
		out, err := handed.TransformToStorage(t.Context(), []byte("plain"), at)
		return err == nil && strings.HasPrefix(string(out), "k8s:enc:kms:v2:test:")
	}, 30*time.Second, time.Millisecond)
	require.LessOrEqual(t, p.Calls().Encrypt, 2, "it had to show that it still wraps")
}

func TestABadChangeLeavesEverythingAsItIsAndIsCountedOnce(t *testing.T) {
	p := faultplugin.Start(t)
	path, put := place(t, configuration(p, "secrets"))
	e := start(t, optionsFor(path))
	follow(t, e)
	failures := func() float64 {
		return counter(t, "apiserver_encryption_config_controller_automatic_reloads_total", "failure")
	}
	before := failures()
	put("kind: [")
	require.Eventually(t, func() bool { return failures() == before+1 }, 30*time.Second, time.Millisecond)
	require.Contains(t, stored(t, e, secrets), "k8s:enc:kms:v2:test:")
	require.Equal(t, "plain", stored(t, e, configmaps))
}

func counter(t *testing.T, name, status string) float64 {
	families, err := legacyregistry.DefaultGatherer.Gather()
	require.NoError(t, err)
	sum := 0.0
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && testutil.LabelsMatch(m, map[string]string{"status": status}) {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

func TestStartWithoutThePluginAndReadyWhenItComes(t *testing.T) {
	p := faultplugin.New(t)
	path, _ := place(t, configuration(p, "secrets"))
	e := start(t, optionsFor(path))
	check := e.HealthChecker()
	require.Equal(t, "kms-providers", check.Name())
	err := check.Check(httptest.NewRequest("GET", "/", nil))
	require.ErrorContains(t, err, `kms provider "test" (writes secrets): not ready, unreachable`)
	require.ErrorContains(t, err, p.Endpoint())
	_, err = e.ResourceTransformers().TransformerForResource(secrets).TransformToStorage(t.Context(), nil, at)
	require.ErrorContains(t, err, "no DEK that the plugin is known to unwrap")

	p.Serve()
	require.Eventually(t, func() bool { return check.Check(nil) == nil }, 30*time.Second, time.Millisecond)
	stored(t, e, secrets)
}

// read opens what the server stored.
func read(t *testing.T, e *atrest.Encryption, stored string) (string, bool, error) {
	out, stale, err := e.ResourceTransformers().TransformerForResource(secrets).TransformFromStorage(t.Context(), []byte(stored), at)
	return string(out), stale, err
}

func TestARequestFromBeforeAReloadReadsWhatHasNoProviderAnyMore(t *testing.T) {
	p := faultplugin.Start(t)
	path, put := place(t, configuration(p, "secrets"))
	e := start(t, optionsFor(path))
	follow(t, e)
	before := stored(t, e, secrets)
	without := fileOf(rule("secrets", aesgcm))
	put(without)
	eventually(t, func() bool { return uses(e, without) })
	out, stale, err := read(t, e, before)
	require.NoError(t, err)
	require.Equal(t, "plain", out)
	require.True(t, stale)
}

// So it does what has a provider of that name, which is another by now.
func TestARequestFromBeforeAReloadReadsWhatANameMeantBefore(t *testing.T) {
	p, q := faultplugin.Start(t), faultplugin.Start(t)
	other := strings.Replace(aesgcm, "MDEyMzQ1Njc4OWFiY2RlZg==", "YWJjZGVmZ2hpamtsbW5vcA==", 1)
	onP, onQ := configuration(p, "secrets"), configuration(q, "secrets")
	for name, c := range map[string]struct {
		former, next string
		behave       func(*faultplugin.Behaviour)
	}{
		"another secret":                      {fileOf(rule("secrets", aesgcm)), fileOf(rule("secrets", other)), func(*faultplugin.Behaviour) {}},
		"a plugin that unwraps another key":   {onP, onQ, func(b *faultplugin.Behaviour) { b.Garbage = make([]byte, 32) }},
		"a plugin that does not know the KEK": {onP, onQ, func(b *faultplugin.Behaviour) { b.DecryptErr = status.Error(codes.NotFound, "no such KEK") }},
		"a plugin that did not wrap the DEK":  {onP, onQ, func(b *faultplugin.Behaviour) { b.DecryptErr = status.Error(codes.InvalidArgument, "not mine") }},
	} {
		t.Run(name, func(t *testing.T) {
			q.Heal("other")
			path, put := place(t, c.former)
			e := start(t, optionsFor(path))
			follow(t, e)
			before := stored(t, e, secrets)
			began := genericapirequest.WithReceivedTimestamp(t.Context(), time.Now())
			put(c.next)
			eventually(t, func() bool { return uses(e, c.next) })
			q.Set(c.behave)
			handle := e.ResourceTransformers().TransformerForResource(secrets)
			out, stale, err := handle.TransformFromStorage(began, []byte(before), at)
			require.NoError(t, err)
			require.Equal(t, "plain", string(out))
			require.True(t, stale)

			_, _, err = handle.TransformFromStorage(genericapirequest.WithReceivedTimestamp(t.Context(), time.Now().Add(time.Minute)), []byte(before), at)
			require.True(t, unreadable(err), "%v", err)
			damaged := []byte(before)
			damaged[len(damaged)-20] ^= 1
			_, _, err = handle.TransformFromStorage(began, damaged, at)
			require.True(t, unreadable(err), "%v", err)
		})
	}
}

// unreadable reports whether trying again would not help.
func unreadable(err error) bool {
	return errors.Is(err, envelope.ErrUnknownKEK) || errors.Is(err, envelope.ErrCorrupt)
}

// The configuration before might do it. But what is wrong with the one in use has
// to be seen, and its plugins are not to be asked twice for each value.
func TestAnOutageIsNotReadRoundWithTheConfigurationBefore(t *testing.T) {
	p, other := faultplugin.Start(t), faultplugin.Start(t)
	path, put := place(t, configuration(p, "secrets"))
	e := start(t, optionsFor(path))
	follow(t, e)
	before := stored(t, e, secrets)
	other.Set(func(b *faultplugin.Behaviour) { b.DecryptErr = away })
	moved := fileOf(rule("secrets", aesgcm, kms("test", other.Endpoint())))
	put(moved)
	eventually(t, func() bool { return uses(e, moved) })
	_, _, err := read(t, e, before)
	require.ErrorIs(t, err, envelope.ErrUnavailable)
}

func TestAStartThatIsGivenUpLeavesNothingBehind(t *testing.T) {
	p := faultplugin.New(t)
	p.Set(hang)
	plugin := serveCounted(t, p)
	path, _ := place(t, fileOf(rule("secrets", kms("test", plugin.endpoint, patient))))
	ctx, giveUp := context.WithCancel(t.Context())
	failed := make(chan error)
	go func() {
		_, err := optionsFor(path).Start(ctx, "")
		failed <- err
	}()
	eventually(t, func() bool { return p.Calls().Status > 0 })
	giveUp()
	err := <-failed
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "waiting for the KMS plugins of")
	plugin.requireClosed(t)
}

func TestWithoutAutomaticReloadAChangeOfTheFileWaitsForARestart(t *testing.T) {
	p := faultplugin.Start(t)
	path, put := place(t, configuration(p, "secrets"))
	o := optionsFor(path)
	o.AutomaticReload = false
	clock := fakeTime(o)
	e := start(t, o)
	stop := follow(t, e)
	put(fileOf(rule("secrets", aesgcm)))
	clock.Step(time.Hour)
	stop()
	require.Nil(t, e.Status().Reload)
	require.Equal(t, 1, len(e.Status().Providers))
}

func TestAFileThatCannotBeUsedEndsTheStartWithOneErrorThatHelps(t *testing.T) {
	const secret = "c2VjcmV0IGlzIHNlY3VyZQ=="
	for content, fragments := range map[string][]string{
		"": {"is empty"},
		"kind: EncryptionConfiguration\napiVersion: apiserver.config.k8s.io/v1\nresources:\n- resources: [secrets]\n  providers:\n  - aesgcm: {keys: [{name: k, secret: " + secret + "}]}\n    secretbox: {keys: [{name: k, secret: " + secret + "}]}\n": {"resources[0].providers[0]", "more than one"},
		"kind: EncryptionConfiguration\napiVersion: apiserver.config.k8s.io/v1\nresources:\n- resources: [Secrets]\n  providers:\n  - identity: {}\n":                                                                                                    {"resources[0].resources[0]", "capital letters"},
	} {
		path, _ := place(t, content)
		_, err := optionsFor(path).Start(t.Context(), "")
		for _, f := range append(fragments, path) {
			require.ErrorContains(t, err, f)
		}
		require.NotContains(t, err.Error(), "\n")
		require.NotContains(t, err.Error(), secret)
		require.NotContains(t, err.Error(), "secret is secure")
	}
	_, err := optionsFor("/nowhere/encryption.yaml").Start(t.Context(), "")
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, "/nowhere/encryption.yaml")
}

func TestWithoutAFileNothingIsEncrypted(t *testing.T) {
	e, err := atrest.NewOptions().Start(t.Context(), "")
	require.NoError(t, err)
	require.Nil(t, e)
	config := newServerConfig()
	require.NoError(t, atrest.NewOptions().ApplyTo(config))
	require.Nil(t, config.ResourceTransformers)
	require.Empty(t, config.PostStartHooks)
}

func TestValidate(t *testing.T) {
	o := atrest.NewOptions()
	require.Empty(t, o.Validate())
	o.AutomaticReload, o.DEKSource = true, "both"
	_, started := o.Start(t.Context(), "")
	err := errors.Join(o.Validate()...)
	require.Equal(t, err, started, "nothing starts with them")
	require.ErrorContains(t, err, "--encryption-provider-config-automatic-reload is set without --encryption-provider-config")
	require.ErrorContains(t, err, `--encryption-kms-dek-source: unknown write mode "both": use "counter" or "seed"`)
}

// The flags may stand beside those of EtcdOptions, which has two of the same
// names: the values must arrive here and not there.
func TestFlagsTakeTheirPlaceInASetThatHasThem(t *testing.T) {
	etcd, o := options.NewEtcdOptions(storagebackend.NewDefaultConfig("/registry", nil)), atrest.NewOptions()
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	etcd.AddFlags(fs)
	o.AddFlags(fs)
	require.NoError(t, fs.Parse([]string{"--encryption-provider-config=f", "--encryption-provider-config-automatic-reload", "--encryption-kms-dek-source", "seed"}))
	require.Equal(t, "f", o.ConfigFile)
	require.True(t, o.AutomaticReload)
	require.Equal(t, "seed", o.DEKSource)
	require.Empty(t, etcd.EncryptionProviderConfigFilepath)
	require.False(t, etcd.EncryptionProviderConfigAutomaticReload)
	require.Contains(t, fs.FlagUsages(), "encryption-kms-dek-source")
}

func newServerConfig() *server.Config {
	return server.NewConfig(serializer.NewCodecFactory(runtime.NewScheme()))
}

func TestApplyToLinksTransformersCheckAndHook(t *testing.T) {
	p := faultplugin.Start(t)
	path, _ := place(t, configuration(p, "secrets"))
	config := newServerConfig()
	before := len(config.LivezChecks)
	require.NoError(t, optionsFor(path).ApplyTo(config))
	require.NotNil(t, config.ResourceTransformers)
	last := func(checks []string) string { return checks[len(checks)-1] }
	var healthz, readyz []string
	for _, c := range config.HealthzChecks {
		healthz = append(healthz, c.Name())
	}
	for _, c := range config.ReadyzChecks {
		readyz = append(readyz, c.Name())
	}
	require.Equal(t, "kms-providers", last(healthz))
	require.Equal(t, "kms-providers", last(readyz))
	require.Len(t, config.LivezChecks, before, "a restart mends no plugin")
	require.Contains(t, config.PostStartHooks, hookName)
}
