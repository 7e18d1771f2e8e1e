package lost

import (
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
)

// protobuf is an object as apiservers store it.
func protobuf(t *testing.T, kind string, meta metav1.ObjectMeta, more []byte) []byte {
	t.Helper()
	raw, err := (&metav1.PartialObjectMetadata{ObjectMeta: meta}).Marshal()
	require.NoError(t, err)
	all, err := (&runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: kind}, Raw: append(raw, more...)}).Marshal()
	require.NoError(t, err)
	return append([]byte("k8s\x00"), all...)
}

func TestFactsOfACopy(t *testing.T) {
	meta := metav1.ObjectMeta{UID: "u", Labels: map[string]string{managedBy: endpointController}, OwnerReferences: []metav1.OwnerReference{
		{APIVersion: "v1", Kind: "Other", Name: "o"}, {APIVersion: "v1", Kind: "Owner", Name: "o", Controller: ptr.To(true)}}}
	owner := &Owner{"v1", "Owner", "o"}
	// A Secret has its data, a map of text to bytes, in the field before its type.
	secret := protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), []byte("data"))
	secret = protowire.AppendBytes(protowire.AppendTag(secret, secretType, protowire.BytesType), []byte("Opaque"))

	require.Equal(t, Facts{Type: "Opaque", UID: "u", Owner: owner, ByController: true}, factsOf(protobuf(t, "Secret", meta, secret)))
	require.Equal(t, Facts{UID: "u", Owner: owner, ByController: true}, factsOf(protobuf(t, "Other", meta, secret)), "field 3 of another kind is another")
	require.Equal(t, Facts{Type: "Opaque", UID: "u", Owner: owner}, factsOf([]byte(
		`{"type":"Opaque","metadata":{"uid":"u","ownerReferences":[{"apiVersion":"v1","kind":"Owner","name":"o","controller":true}]}}`)))
	require.Equal(t, Facts{UID: "u"}, factsOf([]byte(`{"type":{"a":1},"metadata":{"uid":"u","ownerReferences":[{"kind":"Owner","name":"o"}]}}`)), "who owns it only does not make it")
	for _, text := range []string{"", "{", "k8s\x00", "k8s\x00\xff\xff", "\xd9\xd9\xf7\xa0", "[]", `{"metadata":1}`} {
		require.Equal(t, Facts{}, factsOf([]byte(text)), "%q", text)
	}
}
