package interop

import (
	"bytes"
	"context"
	"crypto/cipher"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apiserver/pkg/storage/value"
	kubeaes "k8s.io/apiserver/pkg/storage/value/encrypt/aes"
	kubev1 "k8s.io/apiserver/pkg/storage/value/encrypt/envelope"

	"github.com/kube-atrest/atrest/internal/faultplugin"
	"github.com/kube-atrest/atrest/internal/stored"
)

// wrapsBase64 is what pluginV1 does, as kube-apiserver's own transformer asks.
type wrapsBase64 struct{ *faultplugin.V1 }

func (w wrapsBase64) Encrypt(data []byte) ([]byte, error) {
	return w.V1.Encrypt(context.Background(), data)
}
func (w wrapsBase64) Decrypt(data []byte) ([]byte, error) {
	return w.V1.Decrypt(context.Background(), data)
}

// theirV124 writes with KMS v1 as kube-apiserver did up to v1.24: AES-CBC.
func theirV124(name string) server {
	return server{side: side{name: "kube-apiserver of v1.24"}, Transformer: prefixed{
		Transformer: kubev1.NewEnvelopeTransformer(wrapsBase64{&faultplugin.V1{}}, -1, func(block cipher.Block) (value.Transformer, error) {
			return kubeaes.NewCBCTransformer(block), nil
		}),
		prefix: stored.KMSv1.PrefixFor(name),
	}}
}

type prefixed struct {
	value.Transformer
	prefix string
}

func (p prefixed) TransformToStorage(ctx context.Context, data []byte, at value.Context) ([]byte, error) {
	out, err := p.Transformer.TransformToStorage(ctx, data, at)
	return append([]byte(p.prefix), out...), err
}

// What was written up to v1.24 is read, damaged or not, as kube-apiserver reads
// it, is stale to both, and is AES-GCM after the next update.
func TestKMSv1ValuesOfAESCBCMoveToAESGCM(t *testing.T) {
	file := fileOf(kmsV1("one", startV1(t)))
	old, theirs, ours := theirV124("one"), theirSeed.start(t, file), ourCounter.start(t, file)
	for _, size := range sizes {
		for _, reader := range []server{theirs, ours} {
			require.NoError(t, crosses(old, reader, bytes.Repeat([]byte{'v'}, size), true))
		}
	}
	for _, size := range []int{0, 9, 16, 20} {
		found, err := agreeOnDamage(theirs, ours, old.mustWrite(t, bytes.Repeat([]byte{'v'}, size)))
		require.NoError(t, err)
		require.Equal(t, map[difference]int{ivAlone: 1}, found, "cut after the IV")
	}

	for _, first := range []server{theirs, ours} {
		e := etcd{"/a": nil}
		data, err := old.TransformToStorage(t.Context(), content, value.DefaultContext("/a"))
		require.NoError(t, err)
		e["/a"] = data
		written, err := e.update(first, "/a", nothing)
		require.NoError(t, err)
		require.True(t, written)
		writes, err := settle([]server{theirs, ours}, e, 1)
		require.NoError(t, err)
		require.Empty(t, writes)
		require.False(t, ours.read(e["/a"], there).opened, "AES-GCM is bound to the etcd key")
	}
}

// A damaged AES-GCM value of the right length may pass for AES-CBC, and opens
// to garbage: once in some 256 times. A server of ours that knows from before
// that its DEK has sealed AES-GCM refuses it. One that does not has nothing to
// tell by, and does as kube-apiserver does.
func TestADamagedAESGCMValueIsNoAESCBCWhereItsDEKIsKnown(t *testing.T) {
	file := fileOf(kmsV1("one", startV1(t)))
	theirs, ours := theirSeed.start(t, file), ourCounter.start(t, file)
	tried, met := 0, 0
	for ; met < 3 && tried < 500; tried++ {
		data := theirs.mustWrite(t, []byte("4444")) // nonce, value and tag are two blocks
		require.True(t, ours.read(data, here).opened)
		for _, damaged := range damages(data)[len(data):] {
			found, err := agree(theirs, ours, damaged, here)
			require.NoError(t, err)
			if found != downgrade {
				continue
			}
			met++
			cold := ourSeed.start(t, file)
			found, err = agree(theirs, cold, damaged, here)
			require.NoError(t, err)
			require.Equal(t, none, found)
			require.True(t, cold.read(damaged, here).stale)
		}
	}
	require.Positive(t, met, "none of %d values could be damaged so", tried)
}
