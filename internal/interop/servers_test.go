package interop

import (
	"bytes"
	"context"
	"crypto/fips140"
	"encoding/base64"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/server/options/encryptionconfig"
	"k8s.io/apiserver/pkg/storage/value"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/klog/v2"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/envelope"
	"github.com/kube-atrest/atrest/internal/stored"
	"github.com/kube-atrest/atrest/internal/unenforced"
	"github.com/kube-atrest/atrest/providers"
)

func TestMain(m *testing.M) {
	// kube-apiserver's code logs every failure; these tests make thousands.
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	if err := utilfeature.DefaultMutableFeatureGate.SetFromMap(map[string]bool{"KMSv1": true}); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

var (
	secrets = schema.GroupResource{Resource: "secrets"}
	here    = value.DefaultContext("/registry/secrets/default/golden")
	there   = value.DefaultContext("/registry/secrets/default/other")
)

// side is one of the two implementations, in one of its ways to write KMS v2.
type side struct {
	name   string
	ours   bool
	source stored.SourceType
}

// The four that meet here. kube-apiserver writes a seed since v1.29, and wrote
// a DEK before.
var (
	theirSeed  = side{name: "kube-apiserver", source: stored.SourceSeed}
	theirDEK   = side{name: "kube-apiserver of v1.28", source: stored.SourceDEK}
	ourCounter = side{name: "atrest", ours: true, source: stored.SourceDEK}
	ourSeed    = side{name: "atrest in mode seed", ours: true, source: stored.SourceSeed}

	sides = []side{theirSeed, theirDEK, ourCounter, ourSeed}
)

// server is what an apiserver of one side makes of a whole configuration.
type server struct {
	side
	resources         value.ResourceTransformers
	value.Transformer // that of secrets
}

// start loads a file as an apiserver of the side does, and asks its KMS v2
// plugins for the first time. That they are not healthy is seen on writing.
func (s side) start(t testing.TB, content string) server {
	t.Helper()
	resources, err := s.load(t, content)
	require.NoError(t, err, "%s\n%s", s.name, content)
	return server{side: s, resources: resources, Transformer: resources.TransformerForResource(secrets)}
}

func (s side) load(t testing.TB, content string) (resources value.ResourceTransformers, err error) {
	t.Helper()
	s.process(func() { resources, err = s.loadHere(t, content) })
	return resources, err
}

// process runs f as a process of the side would. Under GODEBUG=fips140=only all
// but atrest in mode seed are servers that run without it.
func (s side) process(f func()) {
	if s == ourSeed {
		f()
		return
	}
	fips140.WithoutEnforcement(f)
}

func (s side) loadHere(t testing.TB, content string) (value.ResourceTransformers, error) {
	t.Helper()
	if s.ours {
		return loadOurs(t, content, envelope.Options{Mode: s.mode()})
	}
	if s.source == stored.SourceDEK {
		for _, name := range kmsName.FindAllStringSubmatch(content, -1) {
			defer encryptionconfig.SetKDFForTests(name[1], false)()
		}
	}
	return loadTheirs(t, content)
}

func (s side) mode() envelope.WriteMode {
	if s.source == stored.SourceSeed {
		return envelope.Seed
	}
	return envelope.Counter
}

func loadTheirs(t testing.TB, content string) (value.ResourceTransformers, error) {
	file := filepath.Join(t.TempDir(), "encryption.yaml")
	require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	loaded, err := encryptionconfig.LoadEncryptionConfig(ctx, file, false, "interop")
	if err != nil {
		return nil, err
	}
	return unenforced.Resources(encryptionconfig.StaticTransformers(loaded.Transformers)), nil
}

func loadOurs(t testing.TB, content string, o envelope.Options) (*providers.Transformers, error) {
	parsed, err := config.Parse([]byte(content), config.Options{KMSv1: true})
	if err != nil {
		return nil, err
	}
	built, err := providers.Build(parsed, providers.Options{Envelope: o})
	if err != nil {
		return nil, err
	}
	t.Cleanup(built.Close)
	built.Commit(func() {})
	_ = built.Prepare(t.Context()) // if it is not ready, what the test does says so
	return built, nil
}

// kind is an element of a list of providers.
type kind struct {
	name string // as in stored.Formats, or identity
	yaml string
}

var identity = kind{"identity", "identity: {}"}

func (k kind) encrypts() bool { return k != identity }

// keyed is a provider with keys in the file: name and secret, in turn.
func keyed(format stored.Format, keys ...string) kind {
	var list []string
	for i := 0; i < len(keys); i += 2 {
		secret := base64.StdEncoding.EncodeToString([]byte(keys[i+1]))
		list = append(list, fmt.Sprintf("{name: %q, secret: %s}", keys[i], secret))
	}
	return kind{format.Kind, fmt.Sprintf("%s: {keys: [%s]}", format.Kind, strings.Join(list, ", "))}
}

// key is a key of n bytes, all of them c.
func key(c string, n int) string { return strings.Repeat(c, n) }

func kmsV1(name, endpoint string) kind {
	return kind{stored.KMSv1.Kind, fmt.Sprintf("kms: {apiVersion: v1, name: %s, endpoint: %q}", name, endpoint)}
}

func kmsV2(name, endpoint string) kind {
	return kind{stored.KMSv2.Kind, fmt.Sprintf("kms: {apiVersion: v2, name: %s, endpoint: %q}", name, endpoint)}
}

var kmsName = regexp.MustCompile(`kms: {apiVersion: v2, name: ([^,]+),`)

// entry is an element of a file's list of resources.
func entry(resources string, providers ...kind) string {
	lines := fmt.Sprintf("- resources: [%s]\n  providers:\n", resources)
	for _, p := range providers {
		lines += "  - " + p.yaml + "\n"
	}
	return lines
}

func file(entries ...string) string {
	return "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n" + strings.Join(entries, "")
}

// fileOf is a file for secrets alone.
func fileOf(providers ...kind) string { return file(entry("secrets", providers...)) }

// everyKind has each provider that there is, identity last.
func everyKind(t testing.TB) []kind {
	_, endpoint := startStrict(t, "1")
	return everyKindOn(startV1(t), endpoint)
}

// everyKindOn is everyKind on plugins of KMS v1 and v2.
func everyKindOn(v1, v2 string) []kind {
	return []kind{
		keyed(stored.AESCBC, "key1", key("c", 32)),
		keyed(stored.AESGCM, "key1", key("g", 32)),
		keyed(stored.Secretbox, "key1", key("s", 32)),
		kmsV1("one", v1),
		kmsV2("two", v2),
		identity,
	}
}

// first is the list with one of its kinds put first.
func first(k kind, all []kind) []kind {
	list := []kind{k}
	for _, other := range all {
		if other != k {
			list = append(list, other)
		}
	}
	return list
}

// write has a server write, where its reader will look.
func (s server) write(plaintext []byte) ([]byte, error) {
	before := bytes.Clone(plaintext)
	data, err := s.TransformToStorage(context.Background(), plaintext, here)
	if err == nil && !bytes.Equal(before, plaintext) {
		return nil, fmt.Errorf("%s changed what it was given to write", s.name)
	}
	return data, err
}

func (s server) mustWrite(t testing.TB, plaintext []byte) []byte {
	t.Helper()
	data, err := s.write(plaintext)
	require.NoError(t, err, s.name)
	return data
}
