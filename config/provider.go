package config

import (
	"bytes"
	"fmt"
	"slices"
	"time"
)

// Kind is what a provider does to a value. The encrypting kinds carry the names
// of the stored forms.
type Kind string

// The kinds of kube-apiserver.
const (
	AESCBC    Kind = "aescbc"
	AESGCM    Kind = "aesgcm"
	Secretbox Kind = "secretbox"
	KMSv1     Kind = "kms v1"
	KMSv2     Kind = "kms v2"
	Identity  Kind = "identity"
)

// IsKMS reports whether it is a KMS plugin that has the key, of v1 or v2.
func (k Kind) IsKMS() bool { return k == KMSv1 || k == KMSv2 }

// Provider is one element of a list of providers: complete, checked and
// read-only. A pointer to it is its identity: a provider that serves several
// resources is one Provider.
type Provider struct {
	kind   Kind
	path   string
	keys   []Key
	kms    KMS
	writes bool
}

// Kind tells which of [Provider.Keys] and [Provider.KMS] is set; neither is for
// identity.
func (p *Provider) Kind() Kind { return p.kind }

// Path is the element's place in the file, such as resources[0].providers[1].
func (p *Provider) Path() string { return p.path }

// Keys are those of an aescbc, aesgcm or secretbox provider, at least one. The
// first one writes, all are tried in order when reading. Two may share a name.
func (p *Provider) Keys() []Key { return slices.Clone(p.keys) }

// KMS is the plugin of a kms v1 or kms v2 provider.
func (p *Provider) KMS() KMS { return p.kms }

// Writes reports whether the provider is the first one of some resource. One that
// does not write is only read.
func (p *Provider) Writes() bool { return p.writes }

// String names the provider and its place.
func (p *Provider) String() string {
	if p.kms.Name != "" {
		return fmt.Sprintf("%s %q at %s", p.kind, shorten(p.kms.Name, maxValue), p.path)
	}
	return fmt.Sprintf("%s at %s", p.kind, p.path)
}

// Key is a key held in the file. Formatting or marshalling it in any way, also
// as a field of another type, shows the name alone.
type Key struct {
	// Name is not empty. It may contain ':' and have any length.
	Name string
	// secret is behind a function because reflection, which the formatting of an
	// unexported field falls back to, does not call one.
	secret func() []byte
}

func newKey(name string, secret []byte) Key {
	return Key{Name: name, secret: func() []byte { return secret }}
}

// Secret is a copy of the key itself: 16, 24 or 32 bytes for aescbc and aesgcm,
// 32 for secretbox.
func (k Key) Secret() []byte {
	if k.secret == nil {
		return nil
	}
	return bytes.Clone(k.secret())
}

// String shows the name alone.
func (k Key) String() string { return fmt.Sprintf("key %q %s", k.Name, redacted) }

// GoString shows the name alone.
func (k Key) GoString() string { return k.String() }

// KMS is how a plugin is reached.
type KMS struct {
	// Name is part of the prefix of every value that the provider stores.
	Name string
	// Endpoint is the URL as written, and Address the socket that it means: a
	// path, or '@' and a name in the abstract namespace of Linux. Address is
	// empty for an endpoint without a path, which no plugin can be behind.
	Endpoint, Address string
	// Timeout bounds a single call and is positive.
	Timeout time.Duration
	// CacheSize is the number of data keys that kms v1 keeps; a negative one
	// turns the cache off. It is 0 for kms v2.
	CacheSize int
}
