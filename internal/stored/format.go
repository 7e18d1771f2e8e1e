// Package stored is the one place that knows what encrypted values look like
// in etcd: the prefixes that name a provider, and the KMS v2 stored object.
// Dispatch, audit and documentation read the same table.
//
// It holds no keys and does no cryptography.
package stored

import (
	"bytes"
	"strings"
)

// Reserved begins every encrypted value and no other: JSON begins with '{' and
// Kubernetes' protobuf with "k8s\x00".
const Reserved = "k8s:enc:"

// Format is one stored form. A value is Prefix, then a name and ':', then a
// payload whose layout belongs to the format.
type Format struct {
	// Kind is the provider's name in an EncryptionConfiguration; the two KMS
	// versions share the field "kms" and are told apart by apiVersion.
	Kind string
	// Prefix ends in ':' and begins with [Reserved].
	Prefix string
	// NameOf says what the name after the prefix is: a key or a KMS provider.
	NameOf string
	// BoundToKey reports whether the ciphertext is authenticated together with
	// its etcd key, so that a value moved to another key does not open.
	BoundToKey bool
}

// The formats of kube-apiserver v1.7 to today.
var (
	AESCBC    = Format{Kind: "aescbc", Prefix: "k8s:enc:aescbc:v1:", NameOf: "key"}
	AESGCM    = Format{Kind: "aesgcm", Prefix: "k8s:enc:aesgcm:v1:", NameOf: "key", BoundToKey: true}
	Secretbox = Format{Kind: "secretbox", Prefix: "k8s:enc:secretbox:v1:", NameOf: "key"}
	KMSv1     = Format{Kind: "kms v1", Prefix: "k8s:enc:kms:v1:", NameOf: "provider", BoundToKey: true}
	KMSv2     = Format{Kind: "kms v2", Prefix: "k8s:enc:kms:v2:", NameOf: "provider", BoundToKey: true}
)

// Formats lists every encrypted form; what matches none and does not begin
// with [Reserved] is plaintext (the identity provider).
var Formats = [...]Format{AESCBC, AESGCM, Secretbox, KMSv1, KMSv2}

// FormatOf is the form that providers of a kind write; identity has none.
func FormatOf(kind string) (f Format, ok bool) {
	for _, f := range Formats {
		if f.Kind == kind {
			return f, true
		}
	}
	return Format{}, false
}

// PrefixFor is what stands before the payload of a value written under name.
func (f Format) PrefixFor(name string) string { return f.Prefix + name + ":" }

// IsEncrypted reports whether value claims to be encrypted, by a known format or not.
func IsEncrypted(value []byte) bool {
	return len(value) >= len(Reserved) && string(value[:len(Reserved)]) == Reserved
}

// maxName bounds the name that Identify gives out, so that a damaged value
// cannot fill a log. Configured names have no limit in kube-apiserver.
const maxName = 253

// Identify names the format and the key or provider under which value was
// stored, as its prefix has it. A name may itself contain ':' (kube-apiserver
// allows it for keys), in which case only the part before it is returned.
// ok is false for plaintext and for unknown formats.
func Identify(value []byte) (f Format, name string, ok bool) {
	for _, f := range Formats {
		rest, found := bytes.CutPrefix(value, []byte(f.Prefix))
		if !found {
			continue
		}
		end := bytes.IndexByte(rest[:min(len(rest), maxName+1)], ':')
		if end < 0 {
			return f, "", false
		}
		return f, strings.ToValidUTF8(string(rest[:end]), "?"), true
	}
	return Format{}, "", false
}
