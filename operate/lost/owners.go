package lost

import (
	"cmp"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kube-atrest/atrest/operate/audit"
	"github.com/kube-atrest/atrest/operate/fleet"
	"github.com/kube-atrest/atrest/operate/migrate"
)

// ownerAt names an owner by what an etcd key tells of it, too, which is not its UID.
func ownerAt(r schema.GroupResource, namespace, name string) string {
	return r.String() + "/" + namespace + "/" + name
}

// anyOf is for all resources of a group: of which one a kind is nobody tells here, but of the
// kinds of the core group, all of which have a regular plural.
func anyOf(group string) schema.GroupResource { return schema.GroupResource{Group: group} }

func resourcesOf(group, kind string) []schema.GroupResource {
	if group != "" {
		return []schema.GroupResource{anyOf(group)}
	}
	var all []schema.GroupResource
	for _, plural := range plurals(kind) {
		all = append(all, schema.GroupResource{Resource: plural})
	}
	return all
}

// anyAt is for all owners of a namespace, or of none: any of them may own what opens and
// cannot be read.
func anyAt(namespace string) string { return namespace + "/" }

// owners has why an owner is left that owns, or may own, something that is there.
type owners map[string]string

// of is why an object is left that may be an owner; empty if it may go.
func (os owners) of(o Object) string {
	r := schema.ParseGroupResource(o.Resource)
	return cmp.Or(os[ownerAt(r, o.Namespace, o.Name)], os[ownerAt(anyOf(r.Group), o.Namespace, o.Name)], os[serviceOf(o)], os[anyAt(o.Namespace)])
}

// serviceOf is for the Service of Endpoints, and for itself: with it Endpoints of its name
// are deleted, whoever made them.
func serviceOf(o Object) string {
	if o.Resource != "services" && o.Resource != "endpoints" {
		return ""
	}
	return "service " + o.Namespace + "/" + o.Name
}

// hasEndpoints notes that a Service is left whose Endpoints nobody makes again.
func (os owners) hasEndpoints(o Object) {
	if o.Resource == "endpoints" {
		os[serviceOf(o)] = fmt.Sprintf("%s would be deleted after it, which its controller did not make: restore this one", o.Title())
	}
}

// opens notes who owns an object that opens.
func (os owners) opens(o Object, plaintext []byte) {
	meta, err := audit.Metadata(plaintext)
	if err != nil {
		os.note(o, anyAt, fmt.Sprintf("it may own %s, which opens, and of which the owner cannot be read: see with atrest decrypt what that is", o.Title()))
	}
	if err != nil || !factsFrom(meta, "").ByController {
		os.hasEndpoints(o)
	}
	os.add(o, meta.OwnerReferences, fmt.Sprintf("it owns %s by its name, which opens and would be deleted after it: take that owner reference from it first, or restore this one", o.Title()))
}

// left notes who owns an object that an apiserver reads, or may read.
func (os owners) left(o Object, err error) {
	var reads *fleet.ReadError
	switch {
	case errors.Is(err, migrate.ErrNoResource):
		os.note(o, anyAt, fmt.Sprintf("it may own %s, which would be deleted after it once an API serves that again: have it served, or if none is to, delete %s from etcd, and ask again", o.Title(), o.Key))
		return
	case !errors.As(err, &reads):
		os.note(o, anyAt, fmt.Sprintf("it may own %s, of which it is not known whether an apiserver reads it, and which would be deleted after it", o.Title()))
		return
	}
	os.hasEndpoints(o)
	os.add(o, reads.Owners, fmt.Sprintf("it owns %s by its name, which apiserver %s reads and which would be deleted after it: read that one out first, and restore this one", o.Title(), reads.Apiserver))
}

func (os owners) add(o Object, references []metav1.OwnerReference, why string) {
	for _, owner := range references {
		version, _ := schema.ParseGroupVersion(owner.APIVersion)
		for _, r := range resourcesOf(version.Group, owner.Kind) {
			os.note(o, func(namespace string) string { return ownerAt(r, namespace, owner.Name) }, why)
		}
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
