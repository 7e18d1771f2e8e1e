package audit

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// DefaultPrefix is kube-apiserver's --etcd-prefix.
const DefaultPrefix = "/registry"

// Layout tells which resource an etcd key belongs to. It is read-only and safe
// for concurrent use.
//
// An etcd key does not say so by itself. kube-apiserver stores its own resources
// by their name alone, whatever their group (/registry/deployments/...), five of
// them by another name (nodes under /registry/minions), and custom resources and
// those of the aggregator by group and name (/registry/example.com/widgets/...).
// A Layout resolves that so:
//
//  1. what it was told, and Kubernetes' own resources, by the first two parts
//     of the path or else the first;
//  2. a first part with a dot is a group, as the groups of custom resources have
//     one and the names of resources have none; the second part is the resource;
//  3. anything else is taken for a resource of the core group, and is a guess.
type Layout struct {
	prefix string
	paths  map[string]schema.GroupResource
}

// NewLayout is the layout under a prefix, which with or without a slash at its
// beginning and end means the same, as to an apiserver; "" is [DefaultPrefix]. told adds to Kubernetes' own
// resources, or overrules them: by path under the prefix, of one or two parts.
func NewLayout(prefix string, told map[string]schema.GroupResource) Layout {
	if prefix == "" {
		prefix = DefaultPrefix
	}
	prefix = path.Join("/", prefix)
	paths := maps.Clone(own)
	if prefix == openShiftPrefix {
		maps.Copy(paths, openShift)
	}
	maps.Copy(paths, told)
	return Layout{prefix: strings.TrimRight(prefix, "/") + "/", paths: paths}
}

// Prefix begins every key of the layout, and ends in '/'.
func (l Layout) Prefix() string { return l.prefix }

// Resource is that of an etcd key; known is false for a guess.
func (l Layout) Resource(key string) (r schema.GroupResource, known bool) {
	return l.below(strings.TrimPrefix(key, l.prefix))
}

// below is the resource of a key by its path below a prefix.
func (l Layout) below(path string) (r schema.GroupResource, known bool) {
	if r, ok := lookUp(l.paths, path); ok {
		return r, true
	}
	parts := strings.SplitN(path, "/", 3)
	if len(parts) > 1 && parts[1] != "" && strings.Contains(parts[0], ".") {
		return schema.GroupResource{Group: parts[0], Resource: parts[1]}, true
	}
	return schema.GroupResource{Resource: parts[0]}, false
}

// lookUp finds what a path begins with, by its first two parts or else the first.
func lookUp(paths map[string]schema.GroupResource, path string) (schema.GroupResource, bool) {
	parts := strings.SplitN(path, "/", 3)
	if len(parts) > 1 {
		if r, ok := paths[parts[0]+"/"+parts[1]]; ok {
			return r, true
		}
	}
	r, ok := paths[parts[0]]
	return r, ok
}

// Paths are all places where the objects of a resource are, sorted: one for most.
// They are below the prefix and end in a slash; below ranges are objects, which
// have none at the end.
func (l Layout) Paths(r schema.GroupResource) []string {
	var all []string
	for _, at := range slices.Sorted(maps.Keys(l.paths)) {
		switch {
		case l.paths[at] != r:
		case strings.HasPrefix(at, "ranges/"):
			all = append(all, at)
		default:
			all = append(all, at+"/")
		}
	}
	switch {
	case all != nil:
		return all
	case r.Group != "":
		return []string{r.Group + "/" + r.Resource + "/"}
	}
	return []string{r.Resource + "/"}
}

// ParsePath reads "path=resource.group", as in
// "oauth/accesstokens=oauthaccesstokens.oauth.openshift.io".
func ParsePath(text string) (path string, r schema.GroupResource, err error) {
	path, name, ok := strings.Cut(text, "=")
	path = strings.Trim(path, "/")
	r = schema.ParseGroupResource(name)
	if !ok || path == "" || r.Resource == "" || strings.Count(path, "/") > 1 {
		return "", r, fmt.Errorf("%q is not a path and its resource: write path=resource.group, "+
			"with a path of one or two parts below the prefix", text)
	}
	return path, r, nil
}

// own are the resources of kube-apiserver v1.36 and before, by their path below
// the prefix. The last ones have no REST API, and are encrypted by a wildcard only.
var own = ownPaths(map[string][]string{
	"": {
		"configmaps", "endpoints=services/endpoints", "events", "limitranges", "namespaces", "nodes=minions",
		"persistentvolumeclaims", "persistentvolumes", "pods", "podtemplates", "replicationcontrollers=controllers",
		"resourcequotas", "secrets", "serviceaccounts", "services=services/specs",
		"apiServerIPInfo=masterleases", "apiServerIPInfo=peerserverleases",
		"serviceipallocations=ranges/serviceips", "serviceipallocations=ranges/secondaryserviceips",
		"servicenodeportallocations=ranges/servicenodeports",
	},
	"admissionregistration.k8s.io": {
		"mutatingadmissionpolicies", "mutatingadmissionpolicybindings", "mutatingwebhookconfigurations",
		"validatingadmissionpolicies", "validatingadmissionpolicybindings", "validatingwebhookconfigurations",
	},
	"apps":                         {"controllerrevisions", "daemonsets", "deployments", "replicasets", "statefulsets"},
	"autoscaling":                  {"horizontalpodautoscalers"},
	"batch":                        {"cronjobs", "jobs"},
	"certificates.k8s.io":          {"certificatesigningrequests", "clustertrustbundles", "podcertificaterequests"},
	"coordination.k8s.io":          {"leasecandidates", "leases"},
	"discovery.k8s.io":             {"endpointslices"},
	"flowcontrol.apiserver.k8s.io": {"flowschemas", "prioritylevelconfigurations"},
	"internal.apiserver.k8s.io":    {"storageversions"},
	"networking.k8s.io":            {"ingressclasses", "ingresses=ingress", "ipaddresses", "networkpolicies", "servicecidrs"},
	"node.k8s.io":                  {"runtimeclasses"},
	"policy":                       {"poddisruptionbudgets", "podsecuritypolicies=podsecuritypolicy"},
	"rbac.authorization.k8s.io":    {"clusterrolebindings", "clusterroles", "rolebindings", "roles"},
	"resource.k8s.io": {
		"deviceclasses", "devicetaintrules", "resourceclaims", "resourceclaimtemplates", "resourcepoolstatusrequests", "resourceslices",
	},
	"scheduling.k8s.io": {"podgroups", "priorityclasses", "workloads"},
	"storage.k8s.io": {
		"csidrivers", "csinodes", "csistoragecapacities", "storageclasses", "volumeattachments", "volumeattributesclasses",
	},
	"storagemigration.k8s.io": {"storageversionmigrations"},
})

// OpenShift's own apiservers keep what they serve below a prefix of their own, in
// the same etcd. These are the resources that it encrypts there.
const openShiftPrefix = "/openshift.io"

var openShift = ownPaths(map[string][]string{
	"oauth.openshift.io": {"oauthaccesstokens=oauth/accesstokens", "oauthauthorizetokens=oauth/authorizetokens"},
	"route.openshift.io": {"routes"},
})

// ownPaths turns names, or names and paths where those differ, by group into
// resources by path.
func ownPaths(groups map[string][]string) map[string]schema.GroupResource {
	paths := map[string]schema.GroupResource{}
	for group, resources := range groups {
		for _, resource := range resources {
			name, path, differs := strings.Cut(resource, "=")
			if !differs {
				path = name
			}
			paths[path] = schema.GroupResource{Group: group, Resource: name}
		}
	}
	return paths
}
