package interop

import (
	"encoding/base64"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"k8s.io/apiserver/pkg/storage/value"
	kmstypes "k8s.io/apiserver/pkg/storage/value/encrypt/envelope/kmsv2/v2"

	"github.com/kube-atrest/atrest/internal/faultplugin"
	"github.com/kube-atrest/atrest/internal/stored"
)

// folderOf is where the go command keeps the source of a package of the
// workspace.
func folderOf(t testing.TB, importPath string) string {
	t.Helper()
	p, err := build.Import(importPath, ".", build.FindOnly)
	require.NoError(t, err, "run the tests inside the workspace, which has %s", importPath)
	return p.Dir
}

// constants are the string constants of a function of a source file, which is
// read rather than copied: kube-apiserver's own tests hold values that older
// versions stored.
func constants(t testing.TB, importPath, file, function string) map[string]string {
	t.Helper()
	source, err := parser.ParseFile(token.NewFileSet(), filepath.Join(folderOf(t, importPath), file), nil, parser.SkipObjectResolution)
	require.NoError(t, err)
	found := map[string]string{}
	for _, d := range source.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Name.Name != function {
			continue
		}
		ast.Inspect(f, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || len(spec.Values) != 1 {
				return true
			}
			if literal, ok := spec.Values[0].(*ast.BasicLit); ok && literal.Kind == token.STRING {
				found[spec.Names[0].Name] = must(strconv.Unquote(literal.Value))
			}
			return true
		})
	}
	require.NotEmpty(t, found, "%s has no %s", file, function)
	return found
}

const (
	aesTests         = "k8s.io/apiserver/pkg/storage/value/encrypt/aes"
	integrationTests = "k8s.io/kubernetes/test/integration/controlplane/transformation"
)

// oldValue is a value of an older kube-apiserver, where it was stored, and what
// it opens to or begins with.
type oldValue struct {
	provider kind
	at       string
	data     []byte
	begins   string
}

func oldValues(t testing.TB) map[string]oldValue {
	plugin := faultplugin.Start(t)
	seeded := constants(t, aesTests, "aes_test.go", "TestExtendedNonceGCMLegacyDataCompatibility")
	object, err := proto.Marshal(&kmstypes.EncryptedObject{
		EncryptedData: []byte(seeded["legacyCiphertext"]), KeyID: "1", EncryptedDEKSourceType: 1,
		EncryptedDEKSource: []byte(base64.StdEncoding.EncodeToString([]byte(seeded["legacyKey"]))),
	})
	require.NoError(t, err)
	gcm := constants(t, aesTests, "aes_test.go", "TestGCMLegacyDataCompatibility")
	v2 := constants(t, integrationTests, "kmsv2_transformation_test.go", "testKMSv2ProviderLegacyData")
	at := "/" + v2["legacyDataEtcdPrefix"] + "/registry/secrets/" + v2["legacyDataNamespace"] + "/"
	provider := kmsV2("kms-provider", plugin.Endpoint())
	return map[string]oldValue{
		"aesgcm": {keyed(stored.AESGCM, "key1", "snorlax_awesomes"), "bamboo",
			append([]byte(stored.AESGCM.PrefixFor("key1")), gcm["legacyCiphertext"]...), "pandas are the best"},
		"the first seed": {provider, "bamboo", append([]byte(stored.KMSv2.PrefixFor("kms-provider")), object...), "pandas are the best"},
		"v1.27":          {provider, at + v2["dekSourceAESGCMKeyName"], []byte(v2["dekSourceAESGCMKeyData"]), "k8s\x00"},
		"v1.28":          {provider, at + v2["dekSourceHKDFSHA256XNonceAESGCMSeedName"], []byte(v2["dekSourceHKDFSHA256XNonceAESGCMSeedData"]), "k8s\x00"},
	}
}

// What older versions stored, as kube-apiserver's own tests have it, opens
// through whole configurations of either side, to the same content.
func TestValuesOfOlderVersionsOpen(t *testing.T) {
	for name, old := range oldValues(t) {
		content := fileOf(old.provider)
		for _, readers := range [][2]side{{theirSeed, ourCounter}, {theirDEK, ourSeed}} {
			theirs, ours := readers[0].start(t, content), readers[1].start(t, content)
			found, err := agree(theirs, ours, old.data, value.DefaultContext(old.at))
			require.NoError(t, err, name)
			_, payload := payloadOf(old.data)
			require.Equal(t, old.provider.name == stored.KMSv2.Kind && typeOf(payload) != theirs.source, found == sourceTypeAlone, name)

			got := ours.read(old.data, value.DefaultContext(old.at))
			require.True(t, got.opened, name)
			require.False(t, got.stale, name)
			require.Equal(t, old.begins, got.value[:len(old.begins)], name)
			require.False(t, ours.read(old.data, here).opened, name)
		}
	}
}
