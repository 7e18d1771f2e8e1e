package audit_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"

	"github.com/kube-atrest/atrest/operate/audit"
)

// Whatever apiservers store objects as, their metadata are read, and what cannot be read is
// not taken for empty.
func TestMetadataOfEachSerialization(t *testing.T) {
	meta := metav1.ObjectMeta{UID: "u", Name: "tls", CreationTimestamp: metav1.Unix(1700000000, 0).Rfc3339Copy(),
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "Widget", Name: "cert", UID: "w"}}}
	object := map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": meta, "spec": map[string]any{"n": 1, "b": []byte{1}}}
	asJSON, err := json.Marshal(object)
	require.NoError(t, err)
	asCBOR, err := direct.Marshal(object)
	require.NoError(t, err)
	raw, err := (&metav1.PartialObjectMetadata{ObjectMeta: meta}).Marshal()
	require.NoError(t, err)
	asProtobuf, err := (&runtime.Unknown{Raw: raw}).Marshal()
	require.NoError(t, err)
	for name, plaintext := range map[string][]byte{"JSON": asJSON, "CBOR": append([]byte("\xd9\xd9\xf7"), asCBOR...), "protobuf": append([]byte("k8s\x00"), asProtobuf...)} {
		is, err := audit.Metadata(plaintext)
		require.NoError(t, err, name)
		require.Equal(t, meta.OwnerReferences, is.OwnerReferences, name)
		require.Equal(t, meta.UID, is.UID, name)
	}
	for _, text := range []string{"{}", "\xd9\xd9\xf7\xa0"} {
		is, err := audit.Metadata([]byte(text))
		require.NoError(t, err, "%q", text)
		require.Empty(t, is)
	}
	for _, text := range []string{"", "{", "[]", `{"metadata":1}`, "k8s\x00\xff", "k8s\x00\x12\x01\xff", "\xd9\xd9\xf7\x80", "\xd9\xd9\xf7\xa1\x48metadata\x01"} {
		is, err := audit.Metadata([]byte(text))
		require.Error(t, err, "%q", text)
		require.Empty(t, is)
	}
}
