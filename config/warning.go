package config

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/kube-atrest/atrest/internal/stored"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// WarningKind groups warnings, for a metric.
type WarningKind string

// The kinds of warnings.
const (
	// duplicateKeyName: two keys of one provider share a name. It works, each is
	// tried, but who reads the stored name cannot tell which key it was.
	duplicateKeyName WarningKind = "duplicate_key_name"
	// identityWrites: a resource that other providers read is written in
	// plaintext. It is right while everything is being decrypted.
	identityWrites WarningKind = "identity_writes"
	// notBoundToKey: the provider's values are not authenticated together with
	// their etcd key.
	notBoundToKey WarningKind = "not_bound_to_key"
	// endpointPart: a part of a KMS endpoint is ignored.
	endpointPart WarningKind = "endpoint_part"
	// unservedResource: the server has no such resource. See
	// [Configuration.Unserved].
	unservedResource WarningKind = "unserved_resource"
)

// Warning is about something that works, and that kube-apiserver says nothing
// about, but that is seldom meant.
type Warning struct {
	Kind WarningKind
	// Path is a field of the file, such as resources[0].providers[1].
	Path string
	// Message is one line, without the path.
	Message string
}

// String is path and message.
func (w Warning) String() string { return w.Path + ": " + w.Message }

// Warnings are what the file says about itself, in its order of providers.
func (c *Configuration) Warnings() []Warning { return slices.Clone(c.warnings) }

// Unserved warns of every resource named in the file that the server does not
// serve, which is most often a typo that leaves the real one in plaintext, and of
// every wildcard of a group of which it serves nothing: served is asked for the
// resource "*" of it. A custom resource is served once its definition exists.
func (c *Configuration) Unserved(served func(schema.GroupResource) bool) []Warning {
	var found []Warning
	for _, rule := range c.rules {
		if rule.Resource.Group == "*" || served(rule.Resource) {
			continue
		}
		remedy := "correct the name, or ignore this if it is to be defined later"
		plural := schema.GroupResource{Group: rule.Resource.Group, Resource: rule.Resource.Resource + "s"}
		if served(plural) {
			remedy = fmt.Sprintf("is %q meant?", nameOf(plural))
		}
		for _, path := range rule.Paths {
			found = append(found, Warning{unservedResource, path,
				fmt.Sprintf("this server has no resource %q, so nothing is encrypted by its name: %s", nameOf(rule.Resource), remedy)})
		}
	}
	return found
}

func warnings(c *Configuration) []Warning {
	inPlaintext := writtenInPlaintext(c.rules)
	var found []Warning
	for _, p := range c.providers {
		found = append(found, keyWarnings(p)...)
		found = append(found, bindingWarnings(p)...)
		found = append(found, endpointWarnings(p)...)
		found = append(found, identityWarnings(p, inPlaintext[p])...)
	}
	return found
}

func keyWarnings(p *Provider) []Warning {
	var found []Warning
	first := map[string]int{}
	for i, key := range p.keys {
		if j, taken := first[key.Name]; taken {
			found = append(found, Warning{duplicateKeyName, fmt.Sprintf("%s.%s.keys[%d].name", p.path, p.kind, i),
				fmt.Sprintf("the name %q is that of keys[%d] too: both are tried, but stored values do not tell "+
					"which of them is needed; give a new key a new name", shorten(key.Name, maxValue), j)})
			continue
		}
		first[key.Name] = i
	}
	return found
}

func bindingWarnings(p *Provider) []Warning {
	format, encrypts := stored.FormatOf(string(p.kind))
	if !encrypts || format.BoundToKey {
		return nil
	}
	return []Warning{{notBoundToKey, p.path,
		fmt.Sprintf("%s does not bind a value to its etcd key: who can write to etcd can put one object's value "+
			"in the place of another's; prefer kms v2 or aesgcm", p.kind)}}
}

func endpointWarnings(p *Provider) []Warning {
	u, err := url.Parse(p.kms.Endpoint)
	if err != nil || p.kms.Endpoint == "" {
		return nil
	}
	message := ""
	switch {
	case p.kms.Address == "":
		message = "has no path after unix://, so no plugin can be reached: " + endpointForm
	case u.Host != "" || u.User != nil || u.RawQuery != "" || u.Fragment != "":
		message = fmt.Sprintf("means %q, as for kube-apiserver: only the path after the host counts; "+
			"write %s, or with all of the path after unix:// and three slashes", shorten(p.kms.Address, maxValue), shorten(p.kms.URL(), maxValue))
	default:
		return nil
	}
	return []Warning{{endpointPart, p.path + ".kms.endpoint",
		strconv.Quote(shorten(p.kms.Endpoint, maxValue)) + " " + message}}
}

// maxNamed bounds the resources that one warning names.
const maxNamed = 10

func identityWarnings(p *Provider, names []string) []Warning {
	if len(names) == 0 {
		return nil
	}
	if more := len(names) - maxNamed; more > 0 {
		names = append(names[:maxNamed], fmt.Sprintf("%d more", more))
	}
	return []Warning{{identityWrites, p.path,
		fmt.Sprintf("identity comes first, so %s are written in plaintext although other providers are listed: "+
			"right while decrypting everything; otherwise put identity last", strings.Join(names, ", "))}}
}

// writtenInPlaintext lists, for each identity provider that comes first, the
// resources which have another provider besides.
func writtenInPlaintext(rules []Rule) map[*Provider][]string {
	names := map[*Provider][]string{}
	for _, rule := range rules {
		first := rule.Providers[0]
		encrypts := func(p *Provider) bool { return p.kind != Identity }
		if first.kind == Identity && slices.ContainsFunc(rule.Providers, encrypts) {
			names[first] = append(names[first], strconv.Quote(nameOf(rule.Resource)))
		}
	}
	return names
}
