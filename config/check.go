package config

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/apis/apiserver"
)

// entry is one element of the file's list: these resources, those providers.
type entry struct {
	resources []mention
	providers []*Provider
}

// mention is a resource where the file names it.
type mention struct {
	resource schema.GroupResource
	path     string
}

// checker collects what is wrong with a file while it reads it through.
type checker struct {
	options  Options
	problems []error
	// wildcards are those of earlier entries, and where they stand.
	wildcards map[schema.GroupResource]string
	// kmsNames are those of earlier providers, of either version.
	kmsNames sets.Set[string]
}

func (c *checker) report(e *field.Error) { c.problems = append(c.problems, e) }

// check turns the file's lists into checked entries; they have a meaning only
// if there is no problem.
func check(file *apiserver.EncryptionConfiguration, o Options) ([]entry, []error) {
	c := &checker{options: o, wildcards: map[schema.GroupResource]string{}, kmsNames: sets.New[string]()}
	root := field.NewPath("resources")
	if len(file.Resources) == 0 {
		c.report(field.Required(root, "at least one resources is required: name what to encrypt, and the providers"))
	}
	if pairs := pairsIn(file.Resources); pairs > maxPairs {
		c.report(field.Invalid(root, pairs, fmt.Sprintf("the entries have more than %d pairs of a resource and a provider: "+
			"name groups of resources by a wildcard", maxPairs)).WithOrigin(originPairs))
	}
	entries := make([]entry, 0, len(file.Resources))
	for i, in := range file.Resources {
		entries = append(entries, entry{
			resources: c.resources(in.Resources, root.Index(i).Child("resources")),
			providers: c.providers(in.Providers, root.Index(i).Child("providers")),
		})
	}
	return entries, c.problems
}

// maxPairs bounds what a small file can grow into: every pair is a reference
// from a rule to a provider.
const maxPairs = 1 << 20

func pairsIn(in []apiserver.ResourceConfiguration) int {
	pairs := 0
	for _, entry := range in {
		pairs += len(entry.Resources) * len(entry.Providers)
	}
	return pairs
}

func (c *checker) providers(in []apiserver.ProviderConfiguration, at *field.Path) []*Provider {
	if len(in) == 0 {
		c.report(field.Required(at, fmt.Sprintf("at least one %s is required: the first one writes; identity: {} stores plaintext", at)))
	}
	providers := make([]*Provider, 0, len(in))
	for i, p := range in {
		providers = append(providers, c.provider(p, at.Index(i)))
	}
	return providers
}

// provider reads one element of the list. Of several kinds in one element it
// checks the first, so that the operator sees those mistakes too.
func (c *checker) provider(in apiserver.ProviderConfiguration, at *field.Path) *Provider {
	switch kinds := kindsIn(in); len(kinds) {
	case 0:
		c.report(field.Invalid(at, "", "provider does not contain any of the expected providers: "+
			"KMS, AESGCM, AESCBC, Secretbox, Identity: write one of them, in lower case"))
	case 1:
	default:
		c.report(field.Invalid(at, strings.Join(kinds, ", "),
			"more than one provider specified in a single element, should split into different list elements"))
	}
	p := &Provider{path: at.String()}
	switch {
	case in.KMS != nil:
		p.kind, p.kms = c.kms(in.KMS, at.Child("kms"))
	case in.AESGCM != nil:
		p.kind, p.keys = AESGCM, c.keys(in.AESGCM.Keys, at.Child("aesgcm", "keys"), 16, 24, 32)
	case in.AESCBC != nil:
		p.kind, p.keys = AESCBC, c.keys(in.AESCBC.Keys, at.Child("aescbc", "keys"), 16, 24, 32)
	case in.Secretbox != nil:
		p.kind, p.keys = Secretbox, c.keys(in.Secretbox.Keys, at.Child("secretbox", "keys"), 32)
	default:
		p.kind = Identity
	}
	return p
}

// kindsIn lists the fields that are set.
func kindsIn(in apiserver.ProviderConfiguration) []string {
	var kinds []string
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"kms", in.KMS != nil},
		{"aesgcm", in.AESGCM != nil},
		{"aescbc", in.AESCBC != nil},
		{"secretbox", in.Secretbox != nil},
		{"identity", in.Identity != nil},
	} {
		if f.set {
			kinds = append(kinds, f.name)
		}
	}
	return kinds
}
