package config

import (
	"context"
	"go/build"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/server/options/encryptionconfig"
	"k8s.io/apiserver/pkg/storage/value"
	"pgregory.net/rapid"

	"github.com/kube-atrest/atrest/internal/stored"
	"github.com/kube-atrest/atrest/internal/unenforced"
)

// rounds of 100 draws each, every draw a good and a wild file.
const rounds = 4

// TestGeneratedFilesAgreeWithKubeAPIServer holds both to the same verdict and
// the same fields, in words that begin alike. A failure prints how to draw the
// file again.
func TestGeneratedFilesAgreeWithKubeAPIServer(t *testing.T) {
	accepted, refused, fields := 0, 0, map[string]int{}
	for round := range rounds {
		t.Run(strconv.Itoa(round), func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				reload := rapid.Bool().Draw(rt, "reload")
				for _, wild := range []bool{false, true} {
					data := grammar{T: rt, wild: wild}.file()
					if _, err := agree(rt, data, reload); err == nil {
						accepted++
						continue
					}
					refused++
					_, err := Parse(data, Options{Reload: reload, KMSv1: true})
					theirs := askUpstream(data, reload)
					requireTheirWords(rt, err, theirs.invalid)
					for _, e := range theirs.invalid {
						fields[e.Detail]++
					}
				}
			})
		})
	}
	t.Logf("%d files accepted, %d refused, %d different texts", accepted, refused, len(fields))
	require.Greater(t, accepted, 100, "the grammar hardly draws a good file: the comparison says little")
	require.Greater(t, refused, 100, "the grammar hardly draws a bad file: the comparison says little")
	require.Greater(t, len(fields), 20, "the grammar does not reach the rules")
}

// TestGeneratedFilesResolveAsKubeAPIServers writes through kube-apiserver's
// transformers and looks for the provider that For puts first, and holds the
// masking of both to each other.
func TestGeneratedFilesResolveAsKubeAPIServers(t *testing.T) {
	accepted, masked := 0, 0
	resources := []schema.GroupResource{{Resource: "secrets"}, {Resource: "pods"}, {Resource: "events"}, {Group: "k8s.io", Resource: "events"},
		{Group: "apps", Resource: "deployments"}, {Group: "apps", Resource: "replicasets"}, {Group: "batch", Resource: "jobs"},
		{Group: "awesome.bears.example", Resource: "pandas"}, {Group: "awesome.bears.example", Resource: "grizzlies"}}
	for round := range rounds {
		t.Run(strconv.Itoa(round), func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "config.yaml")
			rapid.Check(t, func(rt *rapid.T) {
				data := grammar{T: rt, local: true}.file()
				ours, err := Parse(data, Options{})
				theirs, theirErr := loadUpstream(rt, file, data)
				if theirErr == nil {
					require.NoError(rt, err, "%s", data)
					accepted++
					for _, resource := range resources {
						requireSameWriter(rt, theirs, ours, resource)
					}
					return
				}
				require.Error(rt, err, "%v\n%s", theirErr, data)
				if _, text, found := strings.Cut(theirErr.Error(), "error while building transformers: "); found {
					require.ErrorContains(rt, err, text)
					masked++
				}
			})
		})
	}
	t.Logf("%d files accepted, %d masked", accepted, masked)
	require.Greater(t, accepted, 50, "the grammar hardly draws a good file: the comparison says little")
	require.Positive(t, masked, "the grammar never draws a masked resource: the comparison says little")
}

func requireSameWriter(t rapid.TB, theirs *encryptionconfig.EncryptionConfiguration, ours *Configuration, resource schema.GroupResource) {
	t.Helper()
	transformer := unenforced.Resources(encryptionconfig.StaticTransformers(theirs.Transformers)).TransformerForResource(resource)
	written, err := transformer.TransformToStorage(context.Background(), []byte("{}"), value.DefaultContext("path"))
	require.NoError(t, err)

	providers := ours.For(resource)
	format, _, encrypted := stored.Identify(written)
	if !encrypted {
		require.True(t, len(providers) == 0 || providers[0].Kind() == Identity, "%v: %v", resource, providers)
		return
	}
	require.NotEmpty(t, providers, resource)
	require.Equal(t, format.Kind, string(providers[0].Kind()), "%v", resource)
	require.True(t, strings.HasPrefix(string(written), format.PrefixFor(providers[0].Keys()[0].Name)), "%v", resource)
	require.True(t, providers[0].Writes(), "%v", resource)
}

// TestKubeAPIServersOwnFilesAgree takes the files that kube-apiserver's tests
// load from where the go command keeps that module.
func TestKubeAPIServersOwnFilesAgree(t *testing.T) {
	module, err := build.Import("k8s.io/apiserver/pkg/server/options/encryptionconfig", ".", build.FindOnly)
	require.NoError(t, err)
	accepted := 0
	for _, pattern := range []string{"testdata/*/*", "testdata/*/*/*", "controller/testdata/*"} {
		for _, file := range files(t, filepath.Join(module.Dir, pattern)) {
			if filepath.Ext(file) == "" {
				continue // a folder
			}
			c, err := agree(t, read(t, file), true)
			if err == nil {
				accepted++
				want, err := encryptionconfig.GetEncryptionConfigHash(file)
				require.NoError(t, err)
				require.Equal(t, want, c.Hash())
			}
			if filepath.Base(file) == "secret-box-first.yaml" {
				require.Equal(t, "sha256:c638c0327dbc3276dd1fcf3e67895d19ebca16b91ae0d19af24ef0759b8e0f66", c.Hash())
			}
		}
	}
	require.Greater(t, accepted, 10)
}
