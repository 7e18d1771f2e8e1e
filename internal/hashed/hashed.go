// Package hashed names things by their SHA-256, as kube-apiserver's metrics do:
// "sha256:" and 64 digits in hex.
package hashed

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
)

const scheme = "sha256:"

// Name names a content.
func Name(content []byte) string {
	sum := sha256.Sum256(content)
	return scheme + hex.EncodeToString(sum[:])
}

// ID names an identifier, such as a key_id, which is chosen by another and may be
// anything. It is empty for an empty one.
func ID(id string) string {
	if id == "" {
		return ""
	}
	return Name([]byte(id))
}

var name = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// IsName reports whether s is a name as they are made here.
func IsName(s string) bool { return name.MatchString(s) }

// Short is as much of a name as tells things apart in a table. What is short already
// stays.
func Short(name string) string {
	const digits = len(scheme) + 12
	if len(name) <= digits {
		return name
	}
	return name[:digits] + "…"
}
