package lost

import (
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// again is one of the objects that are made again by themselves, by what their etcd key
// says alone; what is empty may be anything.
type again struct{ resource, namespace, name, by string }

var byKey = []again{
	{"events", "", "", "nobody: it expires"},
	{"apiServerIPInfo", "", "", "kube-apiserver"},
	{"configmaps", "", "kube-root-ca.crt", "kube-controller-manager"},
	{"configmaps", "kube-system", "extension-apiserver-authentication", "kube-apiserver"},
	{"endpoints", "default", "kubernetes", "kube-apiserver"},
	{"endpointslices.discovery.k8s.io", "default", "kubernetes", "kube-apiserver"},
	{"services", "default", "kubernetes", "kube-apiserver"},
	{"leases.coordination.k8s.io", "kube-node-lease", "", "the kubelet"},
	{"leases.coordination.k8s.io", "kube-system", "", "its holder"},
	{"leasecandidates.coordination.k8s.io", "kube-system", "", "the candidate"},
}

func (a again) is(o Object) bool {
	return a.resource == o.Resource && (a.namespace == "" || a.namespace == o.Namespace) && (a.name == "" || a.name == o.Name)
}

// never are the resources of which nothing is to be taken for made again, whoever owns
// it: what belongs to it goes with it.
var never = []string{"customresourcedefinitions.apiextensions.k8s.io", "namespaces", "nodes", "persistentvolumeclaims", "persistentvolumes", "serviceaccounts",
	"volumegroupsnapshots.groupsnapshot.storage.k8s.io", "volumesnapshots.snapshot.storage.k8s.io"}

// The types of Secrets of which something is to be said.
const (
	tokenType     = "kubernetes.io/service-account-token"
	bootstrapType = "bootstrap.kubernetes.io/token"
)

// The names that Kubernetes gives them, which anybody else may give too.
var (
	tokenName     = regexp.MustCompile(`-token-[bcdfghjklmnpqrstvwxz2456789]{5}$`)
	bootstrapName = regexp.MustCompile(`^bootstrap-token-[a-z0-9]{6}$`)
)

// What is said of those that somebody has to restore.
const (
	hintNever     = "what belongs to it is deleted with it: restore it, and do not delete it before"
	hintToken     = "the token of a service account: make the Secret again without data, with its type and its annotation kubernetes.io/service-account.name, and a new token is put in"
	hintTokenName = "by the name perhaps the token of a service account, which nothing makes again since Kubernetes 1.24"
	hintBootstrap = "a bootstrap token, which nothing makes again: kubeadm token create makes another"
	hintEndpoints = "made again if they are of a Service with a selector, which the etcd key does not tell"
	hintOwner     = "its owner, who would make it again, was not found, or is lost too"
	hintNotMade   = "its owner makes no such thing again: it is to be deleted with it"
)

// who makes an object again by itself, or a hint for whom it may help to restore it.
func (f *Found) who(o Object) (by, hint string) {
	for _, a := range byKey {
		if a.is(o) {
			return a.by, ""
		}
	}
	c, known := f.Copies[o.Key]
	switch {
	case slices.Contains(never, o.Resource):
		return "", hintNever
	case o.Resource == "secrets" && known && c.Facts.Type == tokenType:
		return "", hintToken
	case o.Resource == "secrets" && known && c.Facts.Type == bootstrapType,
		o.Resource == "secrets" && !known && o.Namespace == "kube-system" && bootstrapName.MatchString(o.Name):
		return "", hintBootstrap
	case known && c.Facts.Owner != nil && !c.Facts.Owner.makes(o.Resource):
		return "", hintNotMade
	case known && c.Facts.Owner != nil:
		if f.alive(*c.Facts.Owner, o.Namespace) {
			return c.Facts.Owner.Kind + " " + c.Facts.Owner.Name, ""
		}
		return "", hintOwner
	case o.Resource == "endpoints" && c.Facts.ByController && f.alive(Owner{"v1", "Service", o.Name}, o.Namespace):
		return "Service " + o.Name, ""
	case o.Resource == "secrets" && !known && tokenName.MatchString(o.Name):
		return "", hintTokenName
	case !known && slices.Contains([]string{"endpoints", "endpointslices.discovery.k8s.io"}, o.Resource):
		return "", hintEndpoints
	}
	return "", ""
}

// made are what the controllers of Kubernetes' own kinds make: whatever else has one as
// its owner was made by somebody else, to be deleted with it.
var made = map[string][]string{
	"apps/Deployment":        {"replicasets.apps"},
	"apps/ReplicaSet":        {"pods"},
	"apps/StatefulSet":       {"pods", "controllerrevisions.apps"},
	"apps/DaemonSet":         {"pods", "controllerrevisions.apps"},
	"batch/CronJob":          {"jobs.batch"},
	"batch/Job":              {"pods"},
	"/ReplicationController": {"pods"},
	"/Service":               {"endpoints", "endpointslices.discovery.k8s.io"},
	"/Endpoints":             {"endpointslices.discovery.k8s.io"},
	"/Pod":                   {"resourceclaims.resource.k8s.io"},
	"/Node":                  {"leases.coordination.k8s.io", "csinodes.storage.k8s.io"},
}

// isCustom reports whether a resource may be of a CustomResourceDefinition: its group is not
// Kubernetes' own.
func isCustom(resource string) bool {
	group := schema.ParseGroupResource(resource).Group
	return strings.Contains(group, ".") && !strings.HasSuffix(group, ".k8s.io")
}

// makes reports whether the controller of an owner makes objects of a resource again. Of
// a group that is not Kubernetes' own it is taken to make all that it owns.
func (o Owner) makes(resource string) bool {
	group := ""
	if version, err := schema.ParseGroupVersion(o.APIVersion); err == nil {
		group = version.Group
	}
	if isCustom("any." + group) {
		return true
	}
	return slices.Contains(made[group+"/"+o.Kind], resource)
}

// alive reports whether an owner is stored, and opens. What resource a kind is of is not
// known of every one: it is looked for by the usual plurals.
func (f *Found) alive(owner Owner, namespace string) bool {
	if f.There == nil {
		return false
	}
	version, err := schema.ParseGroupVersion(owner.APIVersion)
	if err != nil {
		return false
	}
	for _, plural := range plurals(owner.Kind) {
		for _, place := range f.Layout.Places(schema.GroupResource{Group: version.Group, Resource: plural}) {
			if f.There(place+owner.Name) || namespace != "" && f.There(place+namespace+"/"+owner.Name) {
				return true
			}
		}
	}
	return false
}

func plurals(kind string) []string {
	name := strings.ToLower(kind)
	return []string{name, name + "s", name + "es", strings.TrimSuffix(name, "y") + "ies"}
}
