package lost

import (
	"bytes"
	"encoding/json"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kube-atrest/atrest/operate/audit"
)

// Facts are what is kept of a copy that opened, and no value of it.
type Facts struct {
	// Type is that of a Secret, Owner who controls it, if somebody does, and UID that of
	// the object.
	Type  string
	Owner *Owner
	UID   string
	// ByController reports whether its labels say that it is the endpoints of a Service,
	// as the controller makes them.
	ByController bool
}

// Owner is an object that controls another one.
type Owner struct{ APIVersion, Kind, Name string }

// The label by which the controller of endpoints knows its own, and its value.
const (
	managedBy          = "endpoints.kubernetes.io/managed-by"
	endpointController = "endpoint-controller"
)

// factsOf reads a plaintext as apiservers store it: JSON, CBOR or protobuf. Of anything else
// nothing is known.
func factsOf(plaintext []byte) Facts {
	meta, _ := audit.Metadata(plaintext)
	return factsFrom(meta, typeOf(plaintext))
}

// typeOf is the type of a Secret; elsewhere it may be anything.
func typeOf(plaintext []byte) string {
	raw, ok := bytes.CutPrefix(plaintext, []byte("k8s\x00"))
	if !ok {
		var object struct {
			Type string `json:"type"`
		}
		if json.Unmarshal(plaintext, &object) != nil {
			return ""
		}
		return object.Type
	}
	var unknown runtime.Unknown
	if unknown.Unmarshal(raw) != nil || unknown.Kind != "Secret" {
		return ""
	}
	return field(unknown.Raw, secretType)
}

// Title is its resource, namespace and name, as in secrets shop/db.
func (o Object) Title() string {
	return o.Resource + " " + strings.TrimPrefix(o.Namespace+"/"+o.Name, "/")
}

// secretType is the number of the field type of a Secret, in k8s.io/api/core/v1.
const secretType protowire.Number = 3

// field is the text of a field of a message, or empty.
func field(message []byte, wanted protowire.Number) string {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return ""
		}
		message = message[n:]
		if number == wanted && kind == protowire.BytesType {
			text, _ := protowire.ConsumeBytes(message)
			return string(text)
		}
		if n = protowire.ConsumeFieldValue(number, kind, message); n < 0 {
			return ""
		}
		message = message[n:]
	}
	return ""
}

func factsFrom(m metav1.ObjectMeta, kind string) Facts {
	f := Facts{Type: kind, UID: string(m.UID), ByController: m.Labels[managedBy] == endpointController}
	if c := metav1.GetControllerOfNoCopy(&m); c != nil {
		f.Owner = &Owner{APIVersion: c.APIVersion, Kind: c.Kind, Name: c.Name}
	}
	return f
}
