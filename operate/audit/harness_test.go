package audit_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage/value"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/operate/audit"
	"github.com/kube-atrest/atrest/providers"
)

// parse is a configuration with one rule, of providers in YAML's flow style.
func parse(t testing.TB, resources string, providers ...string) *config.Configuration {
	t.Helper()
	return parseRules(t, rule(resources, providers...))
}

func rule(resources string, providers ...string) string {
	return fmt.Sprintf("- resources: [%s]\n  providers:\n  - %s\n", resources, strings.Join(providers, "\n  - "))
}

func parseRules(t testing.TB, rules ...string) *config.Configuration {
	t.Helper()
	c, err := config.Parse([]byte("apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n"+
		strings.Join(rules, "")), config.Options{KMSv1: true})
	require.NoError(t, err)
	return c
}

const identity = "identity: {}"

func kmsV2(name, endpoint string) string {
	return fmt.Sprintf("kms: {apiVersion: v2, name: %s, endpoint: %q, timeout: 1s}", name, endpoint)
}

// keyed is an aesgcm or other provider with keys of 32 equal bytes.
func keyed(kind string, keys ...string) string {
	var all []string
	for _, key := range keys {
		letter := strings.Repeat(key[len(key)-1:], 32)
		all = append(all, fmt.Sprintf("{name: %q, secret: %s}", key, base64Of(letter)))
	}
	return fmt.Sprintf("%s: {keys: [%s]}", kind, strings.Join(all, ", "))
}

// writer seals values as an apiserver with a configuration does.
type writer struct {
	t            testing.TB
	transformers *providers.Transformers
}

func write(t testing.TB, c *config.Configuration) writer {
	t.Helper()
	transformers, err := providers.Build(c, providers.Options{})
	require.NoError(t, err)
	t.Cleanup(transformers.Close)
	transformers.Commit(func() {})
	require.NoError(t, transformers.Prepare(t.Context()))
	return writer{t, transformers}
}

func (w writer) seal(resource, key, plaintext string) []byte {
	w.t.Helper()
	transformer := w.transformers.TransformerForResource(schema.ParseGroupResource(resource))
	value, err := transformer.TransformToStorage(w.t.Context(), []byte(plaintext), value.DefaultContext(key))
	require.NoError(w.t, err)
	return value
}

// memory is a source of what is in a map.
type memory map[string][]byte

func (m memory) Read(_ context.Context, prefix string) (*audit.Contents, error) {
	var keys []string
	for key := range m {
		if strings.HasPrefix(key, prefix) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	slices.Reverse(keys) // any order is right
	return &audit.Contents{Revision: 7, Total: int64(len(keys)), Objects: objects(keys, func(key string) []byte { return m[key] })}, nil
}

// objects makes a buffer of its own for each value, and spoils it afterwards.
func objects(keys []string, value func(key string) []byte) iter.Seq2[audit.Object, error] {
	return func(yield func(audit.Object, error) bool) {
		for _, key := range keys {
			buffer := slices.Clone(value(key))
			if !yield(audit.Object{Key: key, Value: buffer}, nil) {
				return
			}
			clear(buffer)
		}
	}
}

func run(t testing.TB, source audit.Source, o audit.Options) *audit.Report {
	t.Helper()
	report, err := audit.Run(t.Context(), source, o)
	require.NoError(t, err)
	return report
}

// resource is that of a report, by name.
func resource(t testing.TB, r *audit.Report, name string) audit.Resource {
	t.Helper()
	i := slices.IndexFunc(r.Resources, func(r audit.Resource) bool { return r.Name == name })
	require.GreaterOrEqual(t, i, 0, "no %s in %v", name, r.Resources)
	return r.Resources[i]
}

func base64Of(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
