package lost

import (
	"bytes"
	"encoding/json"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
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

// factsOf reads a plaintext as apiservers store it: JSON or protobuf. Of anything else
// nothing is known.
func factsOf(plaintext []byte) Facts {
	if raw, ok := bytes.CutPrefix(plaintext, []byte("k8s\x00")); ok {
		return factsOfProtobuf(raw)
	}
	var object struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
		Type     string            `json:"type"`
	}
	// The type is of a Secret only; elsewhere it may be anything.
	var metadata struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
	}
	if json.Unmarshal(plaintext, &object) == nil {
		return factsFrom(object.Metadata, object.Type)
	}
	if json.Unmarshal(plaintext, &metadata) == nil {
		return factsFrom(metadata.Metadata, "")
	}
	return Facts{}
}

// factsOfProtobuf reads a runtime.Unknown, whose content has the metadata of the object
// as its first field, whatever it is.
func factsOfProtobuf(raw []byte) Facts {
	var unknown runtime.Unknown
	var object metav1.PartialObjectMetadata
	if unknown.Unmarshal(raw) != nil || object.Unmarshal(unknown.Raw) != nil {
		return Facts{}
	}
	kind := ""
	if unknown.Kind == "Secret" {
		kind = field(unknown.Raw, secretType)
	}
	return factsFrom(object.ObjectMeta, kind)
}

// ownersOf are those of an object, whoever of them controls it.
func ownersOf(plaintext []byte) []metav1.OwnerReference {
	var object metav1.PartialObjectMetadata
	raw, isProtobuf := bytes.CutPrefix(plaintext, []byte("k8s\x00"))
	if !isProtobuf {
		_ = json.Unmarshal(plaintext, &object) // of anything else nothing is known
		return object.OwnerReferences
	}
	var unknown runtime.Unknown
	if unknown.Unmarshal(raw) != nil || object.Unmarshal(unknown.Raw) != nil {
		return nil
	}
	return object.OwnerReferences
}

// ownerAt names an owner by what an etcd key tells of it, too: neither its kind nor its UID.
func ownerAt(group, namespace, name string) string { return group + "/" + namespace + "/" + name }

// own notes who owns an object that opens: the owner is in its namespace or in none.
func own(owned map[string]string, o Object, plaintext []byte) {
	for _, owner := range ownersOf(plaintext) {
		version, _ := schema.ParseGroupVersion(owner.APIVersion)
		for _, namespace := range []string{o.Namespace, ""} {
			if at := ownerAt(version.Group, namespace, owner.Name); owned[at] == "" {
				owned[at] = o.Resource + " " + strings.TrimPrefix(o.Namespace+"/"+o.Name, "/")
			}
		}
	}
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
