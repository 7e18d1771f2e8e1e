package audit

import (
	"bytes"
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
)

// OfCluster is the etcd key of the namespace kube-system, by whose UID a cluster is known.
func (l Layout) OfCluster() string { return l.Prefix() + "namespaces/kube-system" }

// Metadata reads those of a plaintext as apiservers store it: JSON, CBOR, or protobuf, in
// which they are the first field of any object. They are empty with an error.
func Metadata(plaintext []byte) (metav1.ObjectMeta, error) {
	if raw, ok := bytes.CutPrefix(plaintext, []byte(asProtobuf)); ok {
		var unknown runtime.Unknown
		var object metav1.PartialObjectMetadata
		if err := unknown.Unmarshal(raw); err != nil {
			return metav1.ObjectMeta{}, err
		}
		if err := object.Unmarshal(unknown.Raw); err != nil {
			return metav1.ObjectMeta{}, err
		}
		return object.ObjectMeta, nil
	}
	if bytes.HasPrefix(plaintext, []byte(asCBOR)) {
		var all map[string]any
		if err := direct.Unmarshal(plaintext, &all); err != nil {
			return metav1.ObjectMeta{}, err
		}
		plaintext, _ = json.Marshal(map[string]any{"metadata": all["metadata"]}) // nothing, which is no JSON, if it fails
	}
	var object struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
	}
	if err := json.Unmarshal(plaintext, &object); err != nil {
		return metav1.ObjectMeta{}, err
	}
	return object.Metadata, nil
}
