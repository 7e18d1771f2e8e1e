package config

import (
	"fmt"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/apis/apiserver"
)

func (c *checker) kms(in *apiserver.KMSConfiguration, at *field.Path) (Kind, KMS) {
	kind := c.kmsVersion(in.APIVersion, at.Child("apiVersion"))
	c.kmsName(in, at.Child("name"))
	c.cacheSize(in, at.Child("cachesize"))
	kms := KMS{Name: in.Name, Endpoint: in.Endpoint, Address: c.address(in.Endpoint, at.Child("endpoint"))}
	if in.Timeout != nil {
		kms.Timeout = in.Timeout.Duration
	}
	if kms.Timeout <= 0 {
		c.report(field.Invalid(at.Child("timeout"), kms.Timeout.String(), "timeout should be a positive value, as in 3s"))
	}
	if kind == KMSv1 && in.CacheSize != nil {
		kms.CacheSize = int(*in.CacheSize)
	}
	return kind, kms
}

func (c *checker) kmsVersion(version string, at *field.Path) Kind {
	switch version {
	case "v1":
		if !c.options.KMSv1 {
			c.report(field.Forbidden(at, "KMSv1 is deprecated and will only receive security updates going forward. "+
				"Use KMSv2 instead: write apiVersion: v2, for it is v1 where it is not written. "+
				"Set --feature-gates=KMSv1=true to use the deprecated KMSv1 feature").WithOrigin(originGate))
		}
		return KMSv1
	case "v2":
	default:
		c.report(field.Invalid(at, scrub(version), "unsupported apiVersion for KMS provider, only v1 and v2 are supported"))
	}
	return KMSv2
}

// kmsName keeps kube-apiserver's rule to the letter: a name counts as taken for
// any v2 provider after it, for a v1 provider only while reloading.
func (c *checker) kmsName(in *apiserver.KMSConfiguration, at *field.Path) {
	name := shownValue(in.Name)
	if in.Name == "" {
		c.report(field.Required(at, "name is a mandatory field for a provider: it is stored with every value"))
	}
	if in.APIVersion != "v1" && strings.Contains(in.Name, ":") {
		c.report(field.Invalid(at, name, fmt.Sprintf("invalid KMS provider name %q, must not contain ':', "+
			"which ends the name in stored values", name)))
	}
	if (c.options.Reload || in.APIVersion != "v1") && c.kmsNames.Has(in.Name) {
		c.report(field.Invalid(at, name, fmt.Sprintf("duplicate KMS provider name %q, names must be unique: "+
			"list the resources in one entry, or rename a provider that has stored nothing yet", name)))
	}
	c.kmsNames.Insert(in.Name)
}

func (c *checker) cacheSize(in *apiserver.KMSConfiguration, at *field.Path) {
	switch {
	case in.CacheSize == nil:
	case in.APIVersion != "v1":
		c.report(field.Invalid(at, *in.CacheSize, "cachesize is not supported in v2: remove it"))
	case *in.CacheSize == 0:
		c.report(field.Invalid(at, *in.CacheSize, "cachesize should be a positive value, or negative to disable"))
	}
}

const endpointForm = "write unix:///path/to/the.sock, or unix:///@name for an abstract socket"

// address checks an endpoint and gives the socket that it means.
func (c *checker) address(endpoint string, at *field.Path) string {
	shown := shownValue(endpoint)
	if endpoint == "" {
		c.report(field.Invalid(at, "", "endpoint is a mandatory field for a kms: "+endpointForm))
		return ""
	}
	u, err := url.Parse(endpoint)
	if err != nil {
		c.report(field.Invalid(at, shown, fmt.Sprintf("invalid endpoint for kms provider, error: %s: %s",
			shorten(withoutSecret(err.Error()), maxText), endpointForm)))
		return ""
	}
	if u.Scheme != "unix" {
		c.report(field.Invalid(at, shown, fmt.Sprintf("unsupported scheme %q for KMS provider, only unix is supported: %s",
			shorten(u.Scheme, maxValue), endpointForm)))
		return ""
	}
	return socket(u)
}

// socket is the path of the URL and nothing else; what begins with "/@" is a
// name in the abstract namespace.
func socket(u *url.URL) string {
	if strings.HasPrefix(u.Path, "/@") {
		return u.Path[1:]
	}
	return u.Path
}

// URL is the endpoint in the one form that says what it means, in which a path
// is escaped once.
func (k KMS) URL() string {
	path := k.Address
	if strings.HasPrefix(path, "@") {
		path = "/" + path
	}
	return (&url.URL{Scheme: "unix", Path: path}).String()
}
