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
//
// OpenShift has two prefixes in one etcd: kube-apiserver's, and that of the apiservers
// of its own APIs. The layout of the first knows the second.
type Layout struct {
	prefix string
	paths  map[string]schema.GroupResource
	// beside is the other prefix, or empty, and besides what is below it.
	beside  string
	besides map[string]schema.GroupResource
}

// NewLayout is the layout under a prefix, which with or without a slash at its
// beginning and end means the same, as to an apiserver; "" is [DefaultPrefix]. told adds to Kubernetes' own
// resources, or overrules them: by path under the prefix, of one or two parts.
func NewLayout(prefix string, told map[string]schema.GroupResource) Layout {
	if prefix == "" {
		prefix = DefaultPrefix
	}
	prefix = path.Join("/", prefix)
	l := Layout{prefix: strings.TrimRight(prefix, "/") + "/", paths: maps.Clone(own)}
	switch prefix {
	case openShiftPrefix:
		maps.Copy(l.paths, openShift)
	case openShiftMain:
		l.beside, l.besides = openShiftPrefix+"/", maps.Clone(openShift)
		maps.Copy(l.besides, told)
	}
	maps.Copy(l.paths, told)
	return l
}

// Prefix begins the keys of the layout but those that are beside it, and ends in '/'.
func (l Layout) Prefix() string { return l.prefix }

// Beside begins the other keys of the layout, as of OpenShift's own apiservers, and
// ends in '/'. It is empty for all other layouts.
func (l Layout) Beside() string { return l.beside }

// Shares reports whether a key is below the prefix of OpenShift's own apiservers, each of
// which has a configuration and keys of its own.
func (l Layout) Shares(key string) bool {
	const shared = openShiftPrefix + "/"
	return (l.beside == shared || l.prefix == shared) && strings.HasPrefix(key, shared)
}

func (l Layout) prefixes() []string {
	if l.beside == "" {
		return []string{l.prefix}
	}
	return []string{l.prefix, l.beside}
}

// has reports whether a key is below a prefix of the layout.
func (l Layout) has(key string) bool { return strings.HasPrefix(key, l.prefix) || l.isBeside(key) }

func (l Layout) isBeside(key string) bool { return l.beside != "" && strings.HasPrefix(key, l.beside) }

// Resource is that of an etcd key; known is false for a guess.
func (l Layout) Resource(key string) (r schema.GroupResource, known bool) {
	if l.isBeside(key) {
		return below(l.besides, strings.TrimPrefix(key, l.beside))
	}
	return below(l.paths, strings.TrimPrefix(key, l.prefix))
}

// below is the resource of a key by its path below a prefix.
func below(paths map[string]schema.GroupResource, path string) (r schema.GroupResource, known bool) {
	if r, ok := lookUp(paths, path); ok {
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

// Places are what the etcd keys of a resource begin with, sorted: one for most. They end
// in a slash; below ranges are objects, which have none at the end.
func (l Layout) Places(r schema.GroupResource) []string {
	all := placesIn(l.paths, l.prefix, r)
	switch {
	case all != nil:
	case r.Group != "":
		all = []string{l.prefix + r.Group + "/" + r.Resource + "/"}
	default:
		all = []string{l.prefix + r.Resource + "/"}
	}
	return append(all, placesIn(l.besides, l.beside, r)...)
}

func placesIn(paths map[string]schema.GroupResource, prefix string, r schema.GroupResource) []string {
	var all []string
	for _, at := range slices.Sorted(maps.Keys(paths)) {
		switch {
		case paths[at] != r:
		case strings.HasPrefix(at, "ranges/"):
			all = append(all, prefix+at)
		default:
			all = append(all, prefix+at+"/")
		}
	}
	return all
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

// HasAPI is false for what kube-apiserver keeps for itself alone: no REST API ever serves
// it, nothing owns or is owned by it, and a wildcard alone encrypts it.
func HasAPI(r schema.GroupResource) bool {
	return r.Group != "" || r.Resource != "apiServerIPInfo" && r.Resource != "serviceipallocations" && r.Resource != "servicenodeportallocations"
}

// OpenShift's own apiservers keep what they serve below a prefix of their own, in the
// etcd of its kube-apiserver. Of these resources it encrypts routes and the two kinds of
// tokens.
const (
	openShiftMain   = "/kubernetes.io"
	openShiftPrefix = "/openshift.io"
)

var openShift = ownPaths(map[string][]string{
	"apps.openshift.io":  {"deploymentconfigs"},
	"build.openshift.io": {"buildconfigs", "builds"},
	"image.openshift.io": {"images", "imagestreams"},
	"oauth.openshift.io": {
		"oauthaccesstokens=oauth/accesstokens", "oauthauthorizetokens=oauth/authorizetokens",
		"oauthclientauthorizations=oauth/clientauthorizations", "oauthclients=oauth/clients",
	},
	"route.openshift.io":    {"routes"},
	"security.openshift.io": {"rangeallocations"},
	"template.openshift.io": {"brokertemplateinstances", "templateinstances", "templates"},
	"user.openshift.io":     {"groups", "identities=useridentities", "users"},
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
