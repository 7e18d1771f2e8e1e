package audit

import (
	"bytes"
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// OfCluster is the etcd key of the namespace kube-system, by whose UID a cluster is known.
func (l Layout) OfCluster() string { return l.Prefix() + "namespaces/kube-system" }

// Metadata reads those of a plaintext as apiservers store it: JSON, or protobuf, in which
// they are the first field of any object. They are empty if it is neither.
func Metadata(plaintext []byte) metav1.ObjectMeta {
	raw, ok := bytes.CutPrefix(plaintext, []byte("k8s\x00"))
	if !ok {
		var object struct {
			Metadata metav1.ObjectMeta `json:"metadata"`
		}
		if json.Unmarshal(plaintext, &object) != nil {
			return metav1.ObjectMeta{}
		}
		return object.Metadata
	}
	var unknown runtime.Unknown
	var object metav1.PartialObjectMetadata
	if unknown.Unmarshal(raw) != nil || object.Unmarshal(unknown.Raw) != nil {
		return metav1.ObjectMeta{}
	}
	return object.ObjectMeta
}
