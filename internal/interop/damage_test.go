package interop

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apiserver/pkg/storage/value"

	"github.com/kube-atrest/atrest/internal/faultplugin"
	"github.com/kube-atrest/atrest/internal/stored"
)

// Cut at every byte, with every bit flipped, and moved to another etcd key: a
// short value of every format, written by either side, gets one verdict from
// both. The differences that are met are those that are documented, and no more
// often than the format explains.
func TestDamagedValuesGetOneVerdict(t *testing.T) {
	kinds := everyKind(t)
	for _, k := range kinds {
		content := fileOf(first(k, kinds)...)
		theirs, ours := theirSeed.start(t, content), ourCounter.start(t, content)
		for _, writer := range sides {
			t.Run(fmt.Sprintf("%s by %s", k.name, writer.name), func(t *testing.T) {
				data := writer.start(t, content).mustWrite(t, []byte("damage me"))
				found, err := agreeOnDamage(theirs, ours, data)
				require.NoError(t, err)
				requireDifferences(t, k, writer, found)
			})
		}
	}
}

// requireDifferences holds those that were met to what theirSeed and ours may
// differ in.
func requireDifferences(t *testing.T, k kind, writer side, found map[difference]int) {
	t.Helper()
	switch {
	case k.name == stored.KMSv1.Kind:
		delete(found, downgrade) // one cut in 256 is met, see TestADamagedAESGCMValueIsNoAESCBCWhereItsDEKIsKnown
		require.Equal(t, map[difference]int{ivAlone: 1}, found, "cut after 16 bytes that may be an IV")
	case k.name == stored.AESCBC.Kind:
		require.Equal(t, map[difference]int{ivAlone: 1}, found, "cut after the IV")
	case k.name == stored.KMSv2.Kind && writer.source != theirSeed.source:
		require.Equal(t, map[difference]int{sourceTypeAlone: 1}, found, "undamaged")
	default:
		require.Empty(t, found)
	}
}

// A value that is moved to another etcd key opens there, to both, if its
// format is not bound to the key, and only then.
func TestMovedValuesGetOneVerdict(t *testing.T) {
	for _, c := range cells(t, everyKind(t)) {
		f, _, _ := stored.Identify(c.mustWrite(t, []byte("plain")))
		moved := c.read(c.mustWrite(t, []byte("plain")), there)
		require.Equal(t, !f.BoundToKey, moved.opened, "%s by %s", c.kind.name, c.server.name)
	}
}

// What is in etcd under a prefix that nobody is configured for, and what begins
// like a prefix and is none.
func TestUnknownValuesGetOneVerdict(t *testing.T) {
	for _, content := range []string{
		fileOf(identity),
		fileOf(keyed(stored.AESGCM, "key1", key("g", 32)), identity),
		fileOf(keyed(stored.AESGCM, "key1", key("g", 32))),
		file(entry("pods", identity)), // no rule for secrets
	} {
		theirs, ours := theirSeed.start(t, content), ourCounter.start(t, content)
		for _, data := range []string{
			"", "{}", "k8s\x00...", "k8s:enc", "k8s:enc:", "k8s:enc:aesgcm", "k8s:enc:aesgcm:v1:", "k8s:enc:aesgcm:v1:key1",
			"k8s:enc:aesgcm:v1:key1:", "k8s:enc:aesgcm:v1:key2:", "k8s:enc:aesgcm:v2:key1:", "k8s:enc:kms:v1:x:", "k8s:enc:kms:v2:x:",
			"k8s:enc:kms:v3:x:", "K8S:ENC:aesgcm:v1:key1:", " k8s:enc:aesgcm:v1:key1:",
		} {
			found, err := agree(theirs, ours, []byte(data), here)
			require.NoError(t, err, "%s", content)
			require.Equal(t, none, found)
		}
	}
}

// An etcd key is never empty; if it were, one of the two would take the process
// down.
func TestAnEmptyEtcdKeyIsNoPanic(t *testing.T) {
	p := faultplugin.Start(t)
	content := fileOf(kmsV2("empty", p.Endpoint()))
	for _, s := range []side{ourCounter, ourSeed} {
		started := s.start(t, content)
		data, err := started.TransformToStorage(t.Context(), []byte("plain"), value.DefaultContext(""))
		require.NoError(t, err)
		require.Equal(t, verdict{opened: true, value: "plain"}, started.read(data, value.DefaultContext("")))
	}
	theirs := theirSeed.start(t, content)
	require.Panics(t, func() {
		_, _ = theirs.TransformToStorage(t.Context(), []byte("plain"), value.DefaultContext(""))
	})
}
