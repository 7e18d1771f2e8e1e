package providers_test

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage/value"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/envelope"
	"github.com/kube-atrest/atrest/healthz"
	"github.com/kube-atrest/atrest/internal/faultplugin"
	"github.com/kube-atrest/atrest/providers"
)

var (
	secrets    = schema.GroupResource{Resource: "secrets"}
	configmaps = schema.GroupResource{Resource: "configmaps"}
	deploys    = schema.GroupResource{Group: "apps", Resource: "deployments"}
	pods       = schema.GroupResource{Resource: "pods"}
	at         = value.DefaultContext("/registry/x")
	start      = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
)

// built builds a file's content to replace previous, and closes it with the test.
func built(t *testing.T, previous *providers.Transformers, content string, change ...func(*providers.Options)) *providers.Transformers {
	t.Helper()
	c, err := config.Parse([]byte(content), config.Options{File: "test.yaml", Reload: true, KMSv1: true})
	require.NoError(t, err)
	o := providers.Options{APIServerID: "test"}
	for _, c := range change {
		c(&o)
	}
	next, err := providers.Build(c, o, previous)
	require.NoError(t, err)
	t.Cleanup(next.Close)
	return next
}

// swapped takes a file's content into use in the place of previous.
func swapped(t *testing.T, previous *providers.Transformers, content string) *providers.Transformers {
	t.Helper()
	next := built(t, previous, content)
	require.NoError(t, next.Prepare(t.Context()))
	next.Commit(func() {})
	previous.Close()
	return next
}

// begun takes a first file's content into use, whether its plugins are well or not.
func begun(t *testing.T, content string, change ...func(*providers.Options)) *providers.Transformers {
	t.Helper()
	x := built(t, nil, content, change...)
	x.Commit(func() {})
	_ = x.Prepare(t.Context())
	return x
}

// at a clock that stands still.
func atRest(clock *testingclock.FakeClock) func(*providers.Options) {
	return func(o *providers.Options) { o.Envelope.Clock = clock }
}

func fileOf(entries ...string) string {
	content := "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n"
	for _, e := range entries {
		content += e
	}
	return content
}

func rule(resources string, providers ...string) string {
	out := fmt.Sprintf("- resources: [%s]\n  providers:\n", resources)
	for _, p := range providers {
		out += "  - " + p + "\n"
	}
	return out
}

func kms(name string, p *faultplugin.Plugin) string {
	return fmt.Sprintf("kms: {apiVersion: v2, name: %s, endpoint: %q}", name, p.Endpoint())
}

const (
	identity = "identity: {}"
	gcmKey   = "aesgcm: {keys: [{name: k1, secret: MDEyMzQ1Njc4OWFiY2RlZg==}]}"
)

func write(t *testing.T, x *providers.Transformers, r schema.GroupResource, plaintext string) []byte {
	t.Helper()
	out, err := x.TransformerForResource(r).TransformToStorage(t.Context(), []byte(plaintext), at)
	require.NoError(t, err)
	return out
}

func read(t *testing.T, x *providers.Transformers, r schema.GroupResource, stored []byte) (string, bool) {
	t.Helper()
	out, stale, err := x.TransformerForResource(r).TransformFromStorage(t.Context(), stored, at)
	require.NoError(t, err)
	return string(out), stale
}

func TestEachResourceHasItsProviders(t *testing.T) {
	p := faultplugin.Start(t)
	x := begun(t, fileOf(rule("secrets", kms("a", p), identity), rule("'*.apps'", gcmKey), rule("'*.*'", identity, gcmKey)))
	require.Contains(t, string(write(t, x, secrets, "v")), "k8s:enc:kms:v2:a:")
	require.Contains(t, string(write(t, x, deploys, "v")), "k8s:enc:aesgcm:v1:k1:")
	require.Equal(t, "v", string(write(t, x, pods, "v")))

	plain, stale := read(t, x, secrets, []byte("v"))
	require.Equal(t, "v", plain)
	require.True(t, stale, "what is in plaintext is to be encrypted")
	plain, stale = read(t, x, pods, write(t, x, deploys, "v"))
	require.Equal(t, "v", plain)
	require.True(t, stale)
}

func TestAResourceOfNoRuleIsPlainAndCiphertextThereIsAnError(t *testing.T) {
	x := built(t, nil, fileOf(rule("secrets", gcmKey)))
	require.Equal(t, "v", string(write(t, x, configmaps, "v")))
	_, _, err := x.TransformerForResource(configmaps).TransformFromStorage(t.Context(), write(t, x, secrets, "v"), at)
	require.ErrorContains(t, err, "no matching prefix found")
}

// One plugin that several entries mention is one connection, one follower and one
// DEK, under as many names as there are.
func TestOnePluginIsAskedOnce(t *testing.T) {
	p := faultplugin.Start(t)
	x := begun(t, fileOf(rule("secrets", kms("1_secrets", p)), rule("configmaps", kms("1_configmaps", p)), rule("pods", identity, kms("1_pods", p))),
		atRest(testingclock.NewFakeClock(start)))
	require.Contains(t, string(write(t, x, secrets, "v")), "k8s:enc:kms:v2:1_secrets:")
	require.Contains(t, string(write(t, x, configmaps, "v")), "k8s:enc:kms:v2:1_configmaps:")
	require.Equal(t, faultplugin.Calls{Status: 1, Encrypt: 1, Decrypt: 1}, p.Calls())

	h := x.Health()
	require.Len(t, h, 1)
	require.Equal(t, []string{"1_secrets", "1_configmaps", "1_pods"}, h[0].Names)
	require.Equal(t, []string{"secrets", "configmaps"}, h[0].WritesFor)
	require.Empty(t, h[0].Problem)
}

// A provider that did not change keeps connection, DEK and cache.
func TestAReloadCostsAnUnchangedPluginNothing(t *testing.T) {
	p, other := faultplugin.Start(t), faultplugin.Start(t)
	first := begun(t, fileOf(rule("secrets", kms("a", p), identity)), atRest(testingclock.NewFakeClock(start)))
	old := write(t, first, secrets, "v")

	next := swapped(t, first, fileOf(rule("secrets", kms("renamed", p), kms("b", other), identity), rule("configmaps", kms("c", p))))
	got, stale := read(t, next, secrets, write(t, next, secrets, "v"))
	require.Equal(t, "v", got)
	require.False(t, stale)
	require.Equal(t, faultplugin.Calls{Status: 1, Encrypt: 1, Decrypt: 1}, p.Calls())
	require.Eventually(t, func() bool { return other.Calls() == faultplugin.Calls{Status: 1} }, 30*time.Second, time.Millisecond,
		"what is only read is asked how it is")

	_, _, err := next.TransformerForResource(secrets).TransformFromStorage(t.Context(), old, at)
	require.ErrorContains(t, err, `"a"`, "names choose the prefix")
}

// The same plugin with another timeout for a call is another: the connection has
// one timeout.
func TestAPluginIsItsSocketAndItsTimeout(t *testing.T) {
	p := faultplugin.Start(t)
	file := func(timeout string) string {
		return fileOf(rule("secrets", fmt.Sprintf("kms: {apiVersion: v2, name: a, endpoint: %q, timeout: %s}", p.Endpoint(), timeout)))
	}
	first := begun(t, file("20s"))
	same := swapped(t, first, file("20000ms"))
	require.Equal(t, 1, p.Calls().Encrypt)
	p.Set(func(b *faultplugin.Behaviour) { b.Hang = true })
	shorter := built(t, same, file("20ms"))
	var notReady *providers.NotReady
	require.ErrorAs(t, shorter.Prepare(t.Context()), &notReady)
	require.ErrorContains(t, notReady, "DeadlineExceeded")
	p.Heal("1")
	write(t, swapped(t, same, file("21s")), secrets, "v")
	require.Equal(t, 2, p.Calls().Encrypt, "it has a DEK of its own")
}

func TestRolesChangeWithTheFile(t *testing.T) {
	oldPlugin, newPlugin := faultplugin.Start(t), faultplugin.Start(t)
	newPlugin.Heal("2")
	inUse := begun(t, fileOf(rule("secrets", kms("old", oldPlugin))))
	var written [][]byte
	for i, step := range []string{
		"",
		fileOf(rule("secrets", kms("old", oldPlugin), kms("new", newPlugin))),
		fileOf(rule("secrets", kms("new", newPlugin), kms("old", oldPlugin))),
		fileOf(rule("secrets", kms("new", newPlugin))),
	} {
		if i > 0 {
			inUse = swapped(t, inUse, step)
		}
		if i == 3 {
			written = written[2:] // migrated
		}
		health := inUse.Health()
		require.Eventually(t, func() bool {
			health = inUse.Health()
			return !slices.ContainsFunc(health, func(h healthz.Provider) bool { return h.KeyIDHash == "" })
		}, 30*time.Second, time.Millisecond, "the key_id of each plugin is known, whatever its role")
		for _, h := range health {
			require.Equal(t, len(h.WritesFor) > 0, h.Role == healthz.Writes)
			require.Equal(t, envelope.HashKeyID(map[string]string{"old": "1", "new": "2"}[h.Names[0]]), h.KeyIDHash)
		}
		for j, w := range written {
			_, stale := read(t, inUse, secrets, w)
			require.Equal(t, i == 2 && j < 2, stale, "step %d, value %d", i, j)
		}
		written = append(written, write(t, inUse, secrets, "v"))
	}
	require.Equal(t, 1, newPlugin.Calls().Encrypt)
	require.Equal(t, 1, oldPlugin.Calls().Encrypt)
}

// Build calls nobody, and gives nobody anything to do.
func TestBuildIsPure(t *testing.T) {
	p, q := faultplugin.Start(t), faultplugin.Start(t)
	clock := testingclock.NewFakeClock(start)
	inUse := begun(t, fileOf(rule("secrets", kms("a", p), kms("b", q))), atRest(clock))
	require.Eventually(t, func() bool { return inUse.Health()[1].KeyIDHash != "" }, 30*time.Second, time.Millisecond)
	before, calls := inUse.Health(), []faultplugin.Calls{p.Calls(), q.Calls()}
	r := faultplugin.Start(t)
	next := built(t, inUse, fileOf(rule("secrets", kms("b", q)), rule("pods", kms("c", r))), atRest(clock))
	require.Equal(t, before, inUse.Health())
	require.Equal(t, calls, []faultplugin.Calls{p.Calls(), q.Calls()})
	_, err := next.TransformerForResource(pods).TransformToStorage(t.Context(), []byte("v"), at)
	require.ErrorIs(t, err, envelope.ErrWritesStopped, "nobody writes with it before it is taken into use")
	next.Close()
	require.Equal(t, before, inUse.Health())
	require.Zero(t, r.Calls())
	write(t, inUse, secrets, "v")
}

func TestBuildLeavesNothingBehindWhenItFails(t *testing.T) {
	p := faultplugin.Start(t)
	c, err := config.Parse([]byte(fileOf(rule("secrets", kms("a", p)), rule("pods", "kms: {apiVersion: v2, name: b, endpoint: 'unix://'}"))), config.Options{})
	require.NoError(t, err, "kube-apiserver accepts it too")
	var dialled []*closing
	_, err = providers.Build(c, providers.Options{
		Dial: func(e envelope.Endpoint, d time.Duration, r envelope.Recorder) (envelope.Plugin, error) {
			plugin, err := envelope.Dial(e, d, r)
			if err != nil {
				return nil, err
			}
			dialled = append(dialled, &closing{Plugin: plugin})
			return dialled[len(dialled)-1], nil
		},
	})
	require.ErrorContains(t, err, "resources[1].providers[0]")
	require.Zero(t, p.Calls())
	require.Len(t, dialled, 1)
	require.True(t, dialled[0].closed.Load())
}

// closing is a plugin that notes that it was closed.
type closing struct {
	envelope.Plugin
	closed atomic.Bool
}

func (c *closing) Close() error {
	c.closed.Store(true)
	return c.Plugin.Close()
}
