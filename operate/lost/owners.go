package lost

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kube-atrest/atrest/operate/audit"
	"github.com/kube-atrest/atrest/operate/fleet"
	"github.com/kube-atrest/atrest/operate/migrate"
)

// removable are the resources of which something is deleted, by their kinds in lower case, as the
// garbage collector knows them too. What belongs to anything else may be deleted with it, by whoever
// made it, also without owner references.
var removable = map[string]string{"secret": "secrets", "configmap": "configmaps"}

func isRemovable(resource string) bool {
	return resource == removable["secret"] || resource == removable["configmap"]
}

// owners has why a Secret or a ConfigMap is left that owns, or may own, something of its namespace:
// the garbage collector deletes what has no owner any more. They own nothing elsewhere. The UID of
// one that is lost cannot be read, so that a name is what counts.
type owners map[string]string

func ownerAt(resource, namespace, name string) string { return namespace + "/" + resource + "/" + name }

// anyAt is for all of a namespace: each may own what is there and has owners that cannot be read.
func anyAt(namespace string) string { return namespace + "/" }

// ownerError is why an object is left that owns another, or may.
type ownerError string

func (e ownerError) Error() string { return string(e) }

// of is why an object is left that may be an owner; empty if it may go.
func (os owners) of(o Object) string {
	return cmp.Or(os[allOf(o.Resource)], os[ownerAt(o.Resource, o.Namespace, o.Name)], os[anyAt(o.Namespace)])
}

// allOf is for all of a resource: once one is deleted the watches of apiservers end, and what they
// have in memory they tell of no more.
func allOf(resource string) string { return "*/" + resource }

// opens notes who owns an object that opens.
func (os owners) opens(o Object, plaintext []byte) {
	meta, err := audit.Metadata(plaintext)
	if err != nil {
		os.any(o, "which opens, and of which the owner cannot be read: see with atrest decrypt what that is")
	}
	os.each(o, meta.OwnerReferences, "which opens and would be deleted after it: take that owner reference from it first, or restore this one")
}

// left notes who owns an object that is left: by what an apiserver reads of it, or anybody.
func (os owners) left(o Object, err error) {
	var reads *fleet.ReadError
	switch {
	case errors.As(err, &reads):
		os.each(o, reads.Owners, fmt.Sprintf("which apiserver %s reads and which would be deleted after it: read that one out first, and restore this one", reads.Apiserver))
	case errors.Is(err, migrate.ErrNoResource):
		os.any(o, fmt.Sprintf("which would be deleted after it once an API serves that again: have it served, or if none is to, delete %s from etcd, and ask again", o.Key))
	case errors.Is(err, ErrKept), errors.As(err, new(ownerError)):
		os.any(o, "which is left and opens for nobody, and would be deleted after it once it opens: restore that first, or delete it")
	default:
		os.any(o, "of which it is not known whether an apiserver reads it, and which would be deleted after it")
		os.note(o, allOf(o.Resource), fmt.Sprintf("%s is left, and an apiserver may have it in memory, which none tells once another of the %s is deleted: see to that one first", o.Title(), o.Resource))
	}
}

func (os owners) any(o Object, why string) {
	os.note(o, anyAt(o.Namespace), fmt.Sprintf("it may own %s, %s", o.Title(), why))
}

func (os owners) each(o Object, references []metav1.OwnerReference, why string) {
	for _, owner := range references {
		resource := removable[strings.ToLower(owner.Kind)]
		if strings.TrimPrefix(owner.APIVersion, "/") == "v1" && resource != "" {
			os.note(o, ownerAt(resource, o.Namespace, owner.Name), fmt.Sprintf("it owns %s by its name, %s", o.Title(), why))
		}
	}
}

func (os owners) note(o Object, at, why string) {
	if o.Namespace != "" && os[at] == "" {
		os[at] = why
	}
}
