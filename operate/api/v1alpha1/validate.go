package v1alpha1

import (
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Validate gives what is wrong with the name and with what is wanted, as an apiserver with
// the CustomResourceDefinition would, each error at the same field in the same words. What is
// written by people is not in them, but for a type that there is not. It takes an object
// with or without defaults. What is there and null, or an optional text that is empty, it
// cannot tell from what is not there, and takes it for that. The status, which people do not
// write, is not looked at.
func (e *EncryptionAtRest) Validate() field.ErrorList {
	var c checker
	c.rule(nil, e.Name == SingletonName, "there is one EncryptionAtRest, and its name is cluster")
	e.Spec.check(&c, field.NewPath("spec"))
	return c.errors()
}

// Validate gives what is wrong with the spec, as [EncryptionAtRest.Validate] does.
func (v *VaultKMSConfig) Validate() field.ErrorList {
	var c checker
	v.Spec.check(&c, field.NewPath("spec"))
	return c.errors()
}

func (s *EncryptionAtRestSpec) check(c *checker, at *field.Path) {
	if c.required(at.Child("encryption"), s.Encryption != nil) {
		s.Encryption.check(c, at.Child("encryption"))
	}
	checkResources(c, at.Child("resources"), s.Resources)
	if s.Nodes != nil {
		s.Nodes.check(c, at.Child("nodes"))
	}
	if s.Renewal != nil {
		s.Renewal.check(c, at.Child("renewal"))
	}
	c.text(at.Child("retry"), s.Retry, 0, 64)
}

func (e *Encryption) check(c *checker, at *field.Path) {
	one(c, at.Child("type"), e.Type, "", Identity, AESCBC, AESGCM, Secretbox, KMSType)
	c.rule(at, (e.Type == KMSType) == (e.KMS != nil), "kms config is required when encryption type is KMS, and forbidden otherwise")
	if e.KMS != nil {
		e.KMS.check(c, at.Child("kms"))
	}
}

func (k *KMS) check(c *checker, at *field.Path) {
	if k.Type != "" {
		one(c, at.Child("type"), k.Type, VaultProvider, PKCS11Provider, TPMProvider, KeyFileProvider)
	}
	switch {
	case k.Type == "" && k.PluginConfig == nil:
		c.rules = append(c.rules, field.Required(at.Child("type"), "type is required when pluginConfig is not set"))
	case k.Type != "" && k.PluginConfig != nil:
		c.rules = append(c.rules, field.Forbidden(at.Child("pluginConfig"), "pluginConfig is forbidden when type is set"))
	}
	c.duration(at.Child("timeout"), k.Timeout, "timeout must be between 100ms and 1m, as in 10s",
		func(d time.Duration) bool { return d >= 100*time.Millisecond && d <= time.Minute })
	k.checkBackends(c, at)
	if k.PluginConfig != nil {
		k.PluginConfig.check(c, at.Child("pluginConfig"))
	}
}

// checkBackends checks that there is the one of the type, and no other.
func (k *KMS) checkBackends(c *checker, at *field.Path) {
	union := func(t KMSProviderType, given bool, name string) {
		c.rule(at, (k.Type == t) == given, name+" config is required when kms provider type is "+string(t)+", and forbidden otherwise")
	}
	union(VaultProvider, k.Vault != nil, "vault")
	union(PKCS11Provider, k.PKCS11 != nil, "pkcs11")
	union(TPMProvider, k.TPM != nil, "tpm")
	union(KeyFileProvider, k.KeyFile != nil, "keyFile")
	if k.Vault != nil {
		k.Vault.check(c, at.Child("vault"))
	}
	if k.PKCS11 != nil {
		k.PKCS11.check(c, at.Child("pkcs11"))
	}
	if k.TPM != nil {
		k.TPM.check(c, at.Child("tpm"))
	}
	if k.KeyFile != nil {
		k.KeyFile.check(c, at.Child("keyFile"))
	}
}

var (
	groupVersion = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)
	dnsLabel     = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)
	resourceName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
	labelKey     = regexp.MustCompile(`^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`)
	labelValue   = regexp.MustCompile(`^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$`)
)

func (p *PluginConfigReference) check(c *checker, at *field.Path) {
	if at := at.Child("apiVersion"); c.required(at, c.text(at, p.APIVersion, 1, 64)) {
		c.rule(at, groupVersion.MatchString(p.APIVersion), "apiVersion must be in the format <group>/<version>")
	}
	if at := at.Child("resource"); c.required(at, c.text(at, p.Resource, 1, 63)) {
		c.rule(at, dnsLabel.MatchString(p.Resource), "resource must be the plural name of a resource, in lower case")
	}
	c.name(at.Child("name"), p.Name, 253)
}

// checkResources takes none for the default.
func checkResources(c *checker, at *field.Path, all []ResourceName) {
	if all != nil {
		checkSet(c, at, all, 64)
	}
	for i, r := range all {
		at, name := at.Index(i), string(r)
		if !c.text(at, name, 1, 317) {
			c.misfit(at, "be at least 1 chars long")
		}
		c.rule(at, resourceName.MatchString(name), "must be RESOURCE or RESOURCE.GROUP in lower case, such as secrets or routes.route.openshift.io, without a wildcard or a subresource")
		never := []string{"apiserveripinfo", "serviceipallocations", "servicenodeportallocations"}
		c.rule(at, !slices.Contains(never, name) && !strings.HasSuffix(name, ".extensions") && !strings.HasSuffix(name, ".events.k8s.io"),
			"must be a resource that an apiserver can encrypt: write events for events.k8s.io, and the group of today for extensions")
	}
}

// checkSet checks that a list has one item at least, at most so many, and none twice.
func checkSet[T ~string](c *checker, at *field.Path, all []T, most int) {
	switch {
	case len(all) == 0:
		c.misfit(at, "have at least 1 items")
	case len(all) > most:
		c.schema = append(c.schema, field.TooMany(at, len(all), most))
	}
	for i, item := range all {
		if slices.Contains(all[:i], item) {
			c.schema = append(c.schema, field.Duplicate(at.Index(i), item))
		}
	}
}

func (n *Nodes) check(c *checker, at *field.Path) {
	c.rule(at, (n.Names != nil) != (n.MatchLabels != nil), "exactly one of names and matchLabels must be set")
	if n.Names != nil {
		checkSet(c, at.Child("names"), n.Names, 100)
	}
	for i, name := range n.Names {
		at := at.Child("names").Index(i)
		if !c.text(at, string(name), 1, 253) {
			c.misfit(at, "be at least 1 chars long")
		}
		c.rule(at, dnsName.MatchString(string(name)),
			"must be the name of a node: no more than 253 lower case letters, digits, '-' and '.', and a letter or a digit at each end")
	}
	if n.MatchLabels != nil {
		checkLabels(c, at.Child("matchLabels"), n.MatchLabels)
	}
}

func checkLabels(c *checker, at *field.Path, labels map[string]LabelValue) {
	switch {
	case len(labels) == 0:
		c.misfit(at, "have at least 1 properties")
	case len(labels) > 8:
		c.schema = append(c.schema, field.TooMany(at, len(labels), 8))
	}
	valid := true
	for key, value := range labels {
		c.text(at.Child(key), string(value), 0, 63)
		valid = valid && labelKey.MatchString(key) && labelValue.MatchString(string(value))
	}
	c.rule(at, valid, "matchLabels must be labels of Kubernetes, such as node-role.kubernetes.io/control-plane with an empty value")
}

func (r *Renewal) check(c *checker, at *field.Path) {
	if *r == (Renewal{}) {
		c.misfit(at, "have at least 1 properties")
	}
	c.text(at.Child("reason"), r.Reason, 1, 256)
	c.duration(at.Child("after"), r.After, "after must be at least 1h, as in 168h", func(d time.Duration) bool { return d >= time.Hour })
}
