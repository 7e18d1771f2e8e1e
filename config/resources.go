package config

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// everything is the rule '*.*'.
var everything = schema.GroupResource{Group: "*", Resource: "*"}

// Where a problem comes from that kube-apiserver's validation does not know: it
// finds the first two later, and the others never.
const (
	originMasked = "masked"
	originGate   = "KMSv1 gate"
	originName   = "impossible name"
	originPairs  = "too many pairs"
)

// resources reads the names of one entry.
func (c *checker) resources(in []string, at *field.Path) []mention {
	if len(in) == 0 {
		c.report(field.Required(at, fmt.Sprintf("at least one %s is required: name what to encrypt, for example secrets", at)))
	}
	c.overlap(in, at)
	mentions := make([]mention, 0, len(in))
	for i, name := range in {
		path := at.Index(i)
		if e := checkName(name, path); e != nil {
			c.report(e)
			continue
		}
		m := mention{resource: schema.ParseGroupResource(name), path: path.String()}
		c.masked(m, path)
		mentions = append(mentions, m)
	}
	for _, m := range mentions {
		if m.resource.Resource == "*" {
			c.wildcards[m.resource] = m.path
		}
	}
	return mentions
}

// overlap refuses resources that are named twice in one list, or by a wildcard
// of the same list.
func (c *checker) overlap(in []string, at *field.Path) {
	seen := sets.New[schema.GroupResource]()
	groups := map[string]int{}
	duplicate := ""
	for _, name := range in {
		resource := schema.ParseGroupResource(name)
		if seen.Has(resource) && duplicate == "" {
			duplicate = shownValue(name)
			c.report(field.Invalid(at, duplicate, "the same resource cannot be specified multiple times: remove one"))
		}
		seen.Insert(resource)
		groups[resource.Group]++
	}
	for _, name := range in {
		r := schema.ParseGroupResource(name)
		if r.Resource == "*" && (groups[r.Group] > 1 || r == everything && len(in) > 1) {
			c.report(field.Invalid(at, shownValue(name), "using overlapping resources such as 'secrets' and '*.' "+
				"in the same resource list is not allowed as they will be masked: keep the wildcard, or the names"))
			return
		}
	}
}

// masked refuses a resource that a wildcard of an earlier entry covers: the
// later entry would never be used.
func (c *checker) masked(m mention, at *field.Path) {
	for _, wildcard := range []schema.GroupResource{{Group: m.resource.Group, Resource: "*"}, everything} {
		if path, ok := c.wildcards[wildcard]; ok {
			name := shownValue(nameOf(m.resource))
			remedy := "move this entry before that one"
			if m.resource == wildcard {
				remedy = "join the two entries"
			}
			c.report(field.Invalid(at, name, fmt.Sprintf("resource %q is masked by earlier rule %q (%s): %s",
				name, nameOf(wildcard), path, remedy)).WithOrigin(originMasked))
			return
		}
	}
}

// checkName gives the first thing that is wrong with a resource's name.
func checkName(name string, at *field.Path) *field.Error {
	shown := shownValue(name)
	r := schema.ParseGroupResource(name)
	switch {
	case strings.ToLower(name) != name:
		return field.Invalid(at, shown, "resource name should not contain capital letters")
	case name == "*":
		return field.Invalid(at, shown, "use '*.' to encrypt all the resources from core API group or *.* to encrypt all resources")
	case name == "apiserveripinfo" || name == "serviceipallocations" || name == "servicenodeportallocations":
		return field.Invalid(at, shown, "resources which do not have REST API/s cannot be encrypted: remove it")
	case r.Group == "events.k8s.io":
		return field.Invalid(at, shown, "'*.events.k8s.io' objects are stored using the 'events' API group in etcd. "+
			"Use 'events' instead in the config file")
	case r.Group == "extensions":
		return field.Invalid(at, shown, "'extensions' group has been removed and cannot be used for encryption: "+
			"name the group that has the resource today")
	case r.Group == "*" && r.Resource != "*":
		return field.Invalid(at, shown, "encrypting the same resource across groups is not supported: name each group, or use '*.*'")
	case strings.Contains(name, "/"):
		return field.Invalid(at, shown, "no resource has this name, nothing would be encrypted: "+
			"leave out what follows '/', a subresource is stored with its resource").WithOrigin(originName)
	case !canExist(r):
		return field.Invalid(at, shown, "no resource can have this name, nothing would be encrypted: "+
			"write resource, resource.group, '*.group' or '*.*'").WithOrigin(originName)
	}
	return nil
}

// canExist reports whether an API server can serve such a resource: a DNS label
// in a group that is a DNS name, or in the core group, whose name is empty.
func canExist(r schema.GroupResource) bool {
	return (r.Resource == "*" || len(utilvalidation.IsDNS1123Label(r.Resource)) == 0) &&
		(r.Group == "" || r == everything || len(utilvalidation.IsDNS1123Subdomain(r.Group)) == 0)
}

// nameOf is the resource as the file has it.
func nameOf(r schema.GroupResource) string {
	if r.Resource == "*" && r.Group == "" {
		return "*."
	}
	return r.String()
}
