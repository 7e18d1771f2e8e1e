// Package redact keeps keys out of texts. A type that holds a key embeds [As],
// and then no verb of fmt and no text encoder reaches the fields beside it.
//
// That holds for a value that is printed itself or behind an exported field or
// an interface. fmt does not ask the methods of what lies in an unexported
// field, so a key must lie behind a pointer there, or its holder embed As too.
package redact

import (
	"fmt"
	"io"
)

// As is what is printed in place of what it is embedded in, followed by
// "(redacted)".
type As string

// String is the name and the word redacted.
func (a As) String() string {
	if a == "" {
		return "(redacted)"
	}
	return string(a) + " (redacted)"
}

// GoString is the same as String.
func (a As) GoString() string { return a.String() }

// Format is the same as String, under every verb.
func (a As) Format(s fmt.State, _ rune) { _, _ = io.WriteString(s, a.String()) }

// MarshalText is the same as String, for JSON, YAML and structured logs.
func (a As) MarshalText() ([]byte, error) { return []byte(a.String()), nil }
