package transformer

import (
	"fmt"
	"io"
)

// redacted is embedded by every type that holds a key, so that no verb of fmt
// and no text encoder (JSON, YAML, slog) reaches the fields beside it.
type redacted string

var (
	_ fmt.Formatter  = redacted("")
	_ fmt.GoStringer = redacted("")
)

// String names the provider and nothing of its key.
func (r redacted) String() string { return string(r) + " (key redacted)" }

// GoString is the same as String.
func (r redacted) GoString() string { return r.String() }

// Format is the same as String under every verb.
func (r redacted) Format(s fmt.State, _ rune) { _, _ = io.WriteString(s, r.String()) }

// MarshalText is the same as String.
func (r redacted) MarshalText() ([]byte, error) { return []byte(r.String()), nil }
