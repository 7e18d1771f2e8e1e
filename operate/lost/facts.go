package lost

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kube-atrest/atrest/operate/audit"
	"github.com/kube-atrest/atrest/operate/fleet"
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

// ownerAt names an owner by what an etcd key tells of it, too: neither its kind nor its UID.
func ownerAt(group, namespace, name string) string { return group + "/" + namespace + "/" + name }

// anyAt is for all owners of a namespace, or of none: any of them may own what opens and
// cannot be read.
func anyAt(namespace string) string { return namespace + "/" }

// owners has why an owner is left that owns, or may own, something that is there.
type owners map[string]string

// of is why an object is left that may be an owner; empty if it may go.
func (os owners) of(o Object) string {
	return cmp.Or(os[ownerAt(schema.ParseGroupResource(o.Resource).Group, o.Namespace, o.Name)], os[anyAt(o.Namespace)])
}

// opens notes who owns an object that opens.
func (os owners) opens(o Object, plaintext []byte) {
	meta, err := audit.Metadata(plaintext)
	if err != nil {
		os.note(o, anyAt, fmt.Sprintf("it may own %s, which opens, and of which the owner cannot be read: see with atrest decrypt what that is", o.Title()))
	}
	os.add(o, meta.OwnerReferences, fmt.Sprintf("it owns %s by its name, which opens and would be deleted after it: take that owner reference from it first, or restore this one", o.Title()))
}

// left notes who owns an object that an apiserver reads, or may read.
func (os owners) left(o Object, err error) {
	var reads *fleet.ReadError
	if !errors.As(err, &reads) {
		os.note(o, anyAt, fmt.Sprintf("it may own %s, of which it is not known whether an apiserver reads it, and which would be deleted after it", o.Title()))
		return
	}
	os.add(o, reads.Owners, fmt.Sprintf("it owns %s by its name, which apiserver %s reads and which would be deleted after it: read that one out first, and restore this one", o.Title(), reads.Apiserver))
}

func (os owners) add(o Object, references []metav1.OwnerReference, why string) {
	for _, owner := range references {
		version, _ := schema.ParseGroupVersion(owner.APIVersion)
		os.note(o, func(namespace string) string { return ownerAt(version.Group, namespace, owner.Name) }, why)
	}
}

// note notes why an owner is left: it is in the namespace of what it owns, or in none.
func (os owners) note(o Object, at func(namespace string) string, why string) {
	for _, namespace := range []string{o.Namespace, ""} {
		if os[at(namespace)] == "" {
			os[at(namespace)] = why
		}
	}
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
