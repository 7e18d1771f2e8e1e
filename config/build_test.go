package config_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage/value"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/envelope"
	"github.com/kube-atrest/atrest/internal/faultplugin"
)

var (
	secrets    = schema.GroupResource{Resource: "secrets"}
	configmaps = schema.GroupResource{Resource: "configmaps"}
	deploys    = schema.GroupResource{Group: "apps", Resource: "deployments"}
	pods       = schema.GroupResource{Resource: "pods"}
	at         = value.DefaultContext("/registry/x")
)

// built builds a file's content over previous and closes it with the test.
func built(t *testing.T, previous *config.Transformers, content string) *config.Transformers {
	t.Helper()
	c, err := config.Parse([]byte(content), config.Options{File: "test.yaml", Reload: true})
	require.NoError(t, err)
	next, err := config.Build(c, previous, config.BuildOptions{APIServerID: "test"})
	require.NoError(t, err)
	t.Cleanup(next.Close)
	return next
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

func write(t *testing.T, x *config.Transformers, r schema.GroupResource, plaintext string) []byte {
	t.Helper()
	out, err := x.TransformerForResource(r).TransformToStorage(t.Context(), []byte(plaintext), at)
	require.NoError(t, err)
	return out
}

func read(t *testing.T, x *config.Transformers, r schema.GroupResource, stored []byte) (string, bool) {
	t.Helper()
	out, stale, err := x.TransformerForResource(r).TransformFromStorage(t.Context(), stored, at)
	require.NoError(t, err)
	return string(out), stale
}

func TestEachResourceHasItsProviders(t *testing.T) {
	p := faultplugin.Start(t)
	x := built(t, nil, fileOf(rule("secrets", kms("a", p), identity), rule("'*.apps'", gcmKey), rule("'*.*'", identity, gcmKey)))
	require.NoError(t, x.Ready(t.Context()))
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

// One plugin that several entries mention is one connection, one Status loop
// and one DEK, under as many names as there are.
func TestOnePluginIsAskedOnce(t *testing.T) {
	p := faultplugin.Start(t)
	x := built(t, nil, fileOf(rule("secrets", kms("1_secrets", p)), rule("configmaps", kms("1_configmaps", p)), rule("pods", identity, kms("1_pods", p))))
	require.NoError(t, x.Ready(t.Context()))
	require.Contains(t, string(write(t, x, secrets, "v")), "k8s:enc:kms:v2:1_secrets:")
	require.Contains(t, string(write(t, x, configmaps, "v")), "k8s:enc:kms:v2:1_configmaps:")
	require.Equal(t, faultplugin.Calls{Status: 1, Encrypt: 1}, p.Calls())

	h := x.Health()
	require.Len(t, h, 1)
	require.Equal(t, []string{"1_secrets", "1_configmaps", "1_pods"}, h[0].Names)
	require.Equal(t, []string{"secrets", "configmaps"}, h[0].WritesFor)
	require.Empty(t, h[0].Problem)
}

// A provider that did not change keeps connection, DEK and cache.
func TestAReloadCostsAnUnchangedPluginNothing(t *testing.T) {
	p, other := faultplugin.Start(t), faultplugin.Start(t)
	first := built(t, nil, fileOf(rule("secrets", kms("a", p), identity)))
	require.NoError(t, first.Ready(t.Context()))
	old := write(t, first, secrets, "v")

	next := built(t, first, fileOf(rule("secrets", kms("renamed", p), kms("b", other), identity), rule("configmaps", kms("c", p))))
	require.NoError(t, next.Ready(t.Context()))
	first.Retire()
	first.Close()
	next.Activate()
	got, stale := read(t, next, secrets, write(t, next, secrets, "v"))
	require.Equal(t, "v", got)
	require.False(t, stale)
	require.Equal(t, faultplugin.Calls{Status: 1, Encrypt: 1}, p.Calls())
	require.Eventually(t, func() bool { return other.Calls() == faultplugin.Calls{Status: 1} }, 30*time.Second, time.Millisecond,
		"what is only read is asked how it is")

	_, _, err := next.TransformerForResource(secrets).TransformFromStorage(t.Context(), old, at)
	require.ErrorContains(t, err, `"a"`, "names choose the prefix")
}

func TestRolesChangeWithTheFile(t *testing.T) {
	oldPlugin, newPlugin := faultplugin.Start(t), faultplugin.Start(t)
	newPlugin.Heal("2")
	steps := []string{
		fileOf(rule("secrets", kms("old", oldPlugin))),
		fileOf(rule("secrets", kms("old", oldPlugin), kms("new", newPlugin))),
		fileOf(rule("secrets", kms("new", newPlugin), kms("old", oldPlugin))),
		fileOf(rule("secrets", kms("new", newPlugin))),
	}
	var inUse *config.Transformers
	var written [][]byte
	for i, step := range steps {
		next := built(t, inUse, step)
		require.NoError(t, next.Ready(t.Context()))
		next.Activate()
		if inUse != nil {
			inUse.Close()
		}
		inUse = next
		if i == 3 {
			written = written[2:] // migrated
		}
		health := next.Health()
		require.Eventually(t, func() bool {
			health = next.Health()
			return !slices.ContainsFunc(health, func(h config.PluginHealth) bool { return h.KeyIDHash == "" })
		}, 30*time.Second, time.Millisecond, "the key_id of each plugin is known, whatever its role")
		for _, h := range health {
			require.Equal(t, len(h.WritesFor) > 0, h.Writes)
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

func TestReadyIsAboutPluginsThatBeginToWrite(t *testing.T) {
	healthy, away := faultplugin.Start(t), faultplugin.New(t)
	x := built(t, nil, fileOf(rule("secrets", kms("a", healthy), kms("b", away))))
	require.NoError(t, x.Ready(t.Context()), "a reader may be away")

	next := built(t, x, fileOf(rule("secrets", kms("b", away), kms("a", healthy))))
	err := next.Ready(t.Context())
	var notReady *config.NotReady
	require.ErrorAs(t, err, &notReady)
	require.True(t, notReady.Retryable())
	require.ErrorContains(t, err, `"b"`)

	healthy.Kill()
	again := built(t, x, fileOf(rule("secrets, configmaps", kms("a", healthy))))
	require.NoError(t, again.Ready(t.Context()), "it was written with before: the file changes nothing for it")
}

func TestReadyEndsWithItsContext(t *testing.T) {
	p := faultplugin.Start(t)
	p.Set(func(b *faultplugin.Behaviour) { b.Hang = true })
	x := built(t, nil, fileOf(rule("secrets", kms("a", p))))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, x.Ready(ctx), context.Canceled)
}

func TestBuildLeavesNothingBehindWhenItFails(t *testing.T) {
	p := faultplugin.Start(t)
	c, err := config.Parse([]byte(fileOf(rule("secrets", kms("a", p)), rule("pods", "kms: {apiVersion: v2, name: b, endpoint: 'unix://'}"))), config.Options{})
	require.NoError(t, err, "kube-apiserver accepts it too")
	_, err = config.Build(c, nil, config.BuildOptions{})
	require.ErrorContains(t, err, "resources[1].providers[0]")
	require.Zero(t, p.Calls())
}
