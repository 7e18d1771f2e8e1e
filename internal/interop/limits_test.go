package interop

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	kmstypes "k8s.io/apiserver/pkg/storage/value/encrypt/envelope/kmsv2/v2"

	"github.com/kube-atrest/atrest/internal/faultplugin"
	"github.com/kube-atrest/atrest/internal/stored"
)

// answers are ways in which a plugin answers, and whether that can be stored.
var answers = map[string]struct {
	keyID       string
	size        int // of the wrapped DEK; 0 for as it comes
	annotations map[string][]byte
	refused     bool
}{
	"no annotation":            {},
	"one annotation":           {annotations: annotated(1, 5)},
	"two annotations":          {annotations: annotated(2, 5)},
	"three annotations":        {annotations: annotated(3, 5)},
	"an empty annotation":      {annotations: annotated(1, 0)},
	"nine annotations":         {annotations: annotated(9, 40)},
	"annotations at the limit": {annotations: map[string][]byte{"a.example.com": long(stored.MaxAnnotations - len("a.example.com"))}},
	"annotations over it":      {annotations: map[string][]byte{"a.example.com": long(stored.MaxAnnotations - len("a.example.com") + 1)}, refused: true},
	"a name of no domain":      {annotations: map[string][]byte{"a": nil}, refused: true},
	"a name in capitals":       {annotations: map[string][]byte{"A.example.com": nil}, refused: true},
	"key_id of one byte":       {keyID: "k"},
	"key_id of other bytes":    {keyID: "π \x00 \n"},
	"key_id at the limit":      {keyID: string(long(stored.MaxKeyID))},
	"key_id over it":           {keyID: string(long(stored.MaxKeyID + 1)), refused: true},
	"wrapped DEK at the limit": {size: stored.MaxEncryptedDEKSource},
	"wrapped DEK over it":      {size: stored.MaxEncryptedDEKSource + 1, refused: true},
}

func long(n int) []byte { return []byte(strings.Repeat("x", n)) }

func annotated(n, size int) map[string][]byte {
	all := map[string][]byte{}
	for i := range n {
		all[fmt.Sprintf("a%d.example.com", i)] = long(size)
	}
	return all
}

// Whatever a plugin answers within the limits, each side writes and each reads;
// whatever it answers beyond them, no side writes.
func TestAnswersOfAPluginCross(t *testing.T) {
	for name, answer := range answers {
		t.Run(name, func(t *testing.T) {
			plugin, endpoint := startStrict(t, "1")
			plugin.size = answer.size
			plugin.Set(func(b *faultplugin.Behaviour) {
				b.Annotations = answer.annotations
				if answer.keyID != "" {
					b.KeyID = answer.keyID
				}
			})
			k := kmsV2("limits", endpoint)
			var servers []cell
			for _, s := range sides {
				servers = append(servers, cell{s.start(t, fileOf(k)), k})
			}
			for _, writer := range servers {
				if answer.refused {
					_, err := writer.write([]byte("plain"))
					require.Error(t, err, writer.server.name)
					continue
				}
				for _, reader := range servers {
					for _, size := range []int{0, 17, 64 << 10} {
						require.NoError(t, crosses(writer.server, reader.server, long(size), stale(writer, reader)))
					}
				}
			}
		})
	}
}

// changes are of an object that is in etcd, and whether it still opens.
var changes = map[string]struct {
	change func(*kmstypes.EncryptedObject)
	opens  bool
}{
	"none":                     {func(*kmstypes.EncryptedObject) {}, true},
	"key_id at the limit":      {func(o *kmstypes.EncryptedObject) { o.KeyID = string(long(stored.MaxKeyID)) }, true},
	"key_id over it":           {func(o *kmstypes.EncryptedObject) { o.KeyID = string(long(stored.MaxKeyID + 1)) }, false},
	"no key_id":                {func(o *kmstypes.EncryptedObject) { o.KeyID = "" }, false},
	"wrapped DEK at the limit": {func(o *kmstypes.EncryptedObject) { lengthen(o, stored.MaxEncryptedDEKSource) }, true},
	"wrapped DEK over it":      {func(o *kmstypes.EncryptedObject) { lengthen(o, stored.MaxEncryptedDEKSource+1) }, false},
	"no wrapped DEK":           {func(o *kmstypes.EncryptedObject) { o.EncryptedDEKSource = nil }, false},
	"no data":                  {func(o *kmstypes.EncryptedObject) { o.EncryptedData = nil }, false},
	"an unknown source type":   {func(o *kmstypes.EncryptedObject) { o.EncryptedDEKSourceType = 2 }, false},
	"the other source type":    {func(o *kmstypes.EncryptedObject) { o.EncryptedDEKSourceType ^= 1 }, false},
	"annotations at the limit": {func(o *kmstypes.EncryptedObject) { annotate(o, "a.b", stored.MaxAnnotations-3) }, true},
	"annotations over it":      {func(o *kmstypes.EncryptedObject) { annotate(o, "a.b", stored.MaxAnnotations-2) }, false},
	"annotation of no domain":  {func(o *kmstypes.EncryptedObject) { annotate(o, "ab", 1) }, false},
}

func annotate(o *kmstypes.EncryptedObject, name string, size int) {
	o.Annotations = map[string][]byte{name: long(size)}
}

// lengthen makes a wrapped DEK n bytes long without changing what it is:
// base64 passes over line ends.
func lengthen(o *kmstypes.EncryptedObject, n int) {
	o.EncryptedDEKSource = append(o.EncryptedDEKSource, strings.Repeat("\n", n-len(o.EncryptedDEKSource))...)
}

// The same limits hold for what is read, whoever put it there.
func TestStoredValuesBeyondTheLimitsGetOneVerdict(t *testing.T) {
	p := faultplugin.Start(t) // it does not look at key_id and annotations
	content := fileOf(kmsV2("limits", p.Endpoint()))
	prefix := stored.KMSv2.PrefixFor("limits")
	for _, readers := range [][2]side{{theirSeed, ourCounter}, {theirSeed, ourSeed}, {theirDEK, ourCounter}, {theirDEK, ourSeed}} {
		theirs, ours := readers[0].start(t, content), readers[1].start(t, content)
		for _, writer := range []server{theirs, ours} {
			data := writer.mustWrite(t, []byte("plain"))
			for name, c := range changes {
				object := &kmstypes.EncryptedObject{}
				require.NoError(t, proto.Unmarshal(data[len(prefix):], object))
				c.change(object)
				payload, err := proto.Marshal(object)
				require.NoError(t, err)
				changed := append([]byte(prefix), payload...)
				found, err := agree(theirs, ours, changed, here)
				require.NoError(t, err, name)
				require.Equal(t, c.opens, ours.read(changed, here).opened, name)
				require.Equal(t, c.opens && writer.source != theirs.source && object.KeyID == "1", found == sourceTypeAlone, name)
			}
		}
	}
}
