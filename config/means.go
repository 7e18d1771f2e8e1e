package config

import (
	"crypto/subtle"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kube-atrest/atrest/internal/redact"
)

// Means is one thing that values are read with: a key of the file, a KMS plugin
// under a name, or nothing at all (identity). It shows no key material however
// it is formatted.
type Means struct {
	redact.As
	// Name says what it is, for people: as in aescbc key "a".
	Name string
	// secret tells keys of one name apart, and socket plugins.
	secret []byte
	socket string
}

// PlainMeans is that of identity, and of a resource without a rule.
func PlainMeans() Means { return Means{Name: string(Identity)} }

// Equal reports whether what is stored by one is read by the other.
func (m Means) Equal(o Means) bool {
	return m.Name == o.Name && m.socket == o.socket && subtle.ConstantTimeCompare(m.secret, o.secret) == 1
}

// Means are what the provider reads with, in the order of its keys: at least
// one, and one alone unless it has keys.
func (p *Provider) Means() []Means {
	switch p.kind {
	case Identity:
		return []Means{PlainMeans()}
	case KMSv1, KMSv2:
		return []Means{{Name: fmt.Sprintf("%s %q", p.kind, p.kms.Name), socket: p.kms.Address}}
	}
	var all []Means
	for _, k := range p.keys {
		all = append(all, Means{Name: fmt.Sprintf("%s key %q", p.kind, k.Name), secret: k.secret()})
	}
	return all
}

// meansOf lists what a resource is read with; the first one writes.
func (c *Configuration) meansOf(r schema.GroupResource) []Means {
	var all []Means
	for _, p := range c.For(r) {
		all = append(all, p.Means()...)
	}
	if len(all) == 0 {
		return []Means{PlainMeans()}
	}
	return all
}
