package main

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// openShift is the prefix of the kube-apiserver of OpenShift. One with that serves
// what OpenShift's own apiservers serve too, as through them.
const openShift = "/kubernetes.io"

// openShiftServed is that, by group and version.
var openShiftServed = map[string][]string{
	"route.openshift.io/v1": {"routes"},
	"oauth.openshift.io/v1": {"oauthaccesstokens", "oauthauthorizetokens"},
}

// openShiftPlaces are where they store, and openShiftTokens what has no namespace.
var openShiftPlaces = map[string]schema.GroupResource{
	"/openshift.io/routes/":                {Group: "route.openshift.io", Resource: "routes"},
	"/openshift.io/oauth/accesstokens/":    {Group: "oauth.openshift.io", Resource: "oauthaccesstokens"},
	"/openshift.io/oauth/authorizetokens/": {Group: "oauth.openshift.io", Resource: "oauthauthorizetokens"},
}

const openShiftTokens = "/openshift.io/oauth/"

// serves are the resources of an apiserver, by group and version.
func (a *apiserver) serves() map[string][]string {
	all := map[string][]string{}
	for version, resources := range served {
		all[version] = resources
	}
	if a.prefix == openShift {
		for version, resources := range openShiftServed {
			all[version] = resources
		}
	}
	return all
}

// place is what the etcd keys of a resource begin with.
func (a *apiserver) place(group, resource string) string {
	for place, r := range openShiftPlaces {
		if a.prefix == openShift && r.Group == group && r.Resource == resource {
			return place
		}
	}
	if group == "" && resource == "services" {
		return a.prefix + "/services/specs/"
	}
	if group == "" && resource == "endpoints" {
		return a.prefix + "/services/endpoints/"
	}
	if group != "" {
		group += "/"
	}
	return a.prefix + "/" + group + resource + "/"
}

// resourceOf is that of an etcd key.
func resourceOf(key string) schema.GroupResource {
	for place, r := range openShiftPlaces {
		if strings.HasPrefix(key, place) {
			return r
		}
	}
	switch {
	case strings.HasPrefix(key, "/registry/services/specs/"):
		return schema.GroupResource{Resource: "services"}
	case strings.HasPrefix(key, "/registry/services/endpoints/"):
		return schema.GroupResource{Resource: "endpoints"}
	case strings.HasPrefix(key, "/registry/apiregistration.k8s.io/apiservices/"):
		return schema.GroupResource{Group: "apiregistration.k8s.io", Resource: "apiservices"}
	case strings.HasPrefix(key, "/registry/leases/"):
		return schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}
	}
	parts := strings.Split(key, "/")
	resource := schema.GroupResource{Resource: parts[len(parts)-3]}
	if len(parts) == 6 {
		resource.Group = parts[2]
	}
	return resource
}
