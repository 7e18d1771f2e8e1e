package transformer

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/storage/value"

	"github.com/kube-atrest/atrest/internal/stored"
)

var (
	// ErrNoProvider occurs on a read when no entry of the chain has the value's
	// prefix: its key or provider is no longer configured, or never was.
	// Nothing is wrong with the value. Adding the key back makes it readable.
	ErrNoProvider = errors.New("no matching prefix found")

	// ErrCorrupt occurs on a read when the value's own provider and key are
	// there and the value does not open: it was damaged, moved to another etcd
	// key, or written with another key of the same name. Trying again does not
	// help. An unreachable KMS plugin is not ErrCorrupt.
	ErrCorrupt = stored.ErrCorrupt
)

// Bounds on what an error repeats of its surroundings, in bytes and entries.
const (
	maxEtcdKey = 512
	maxPrefix  = 128
	maxHeader  = 32
	maxListed  = 16
	maxCauses  = 8
)

func (c *Chain) sealError(provider string, at value.Context, err error) error {
	return fmt.Errorf("%s at %s: seal with %s: %w", c.resource, etcdKey(at), provider, err)
}

func (c *Chain) noProviderError(data []byte, at value.Context) error {
	return fmt.Errorf("%s at %s: stored %s: %w among %s; %s", c.resource, etcdKey(at),
		storedWith(data), ErrNoProvider, c.configured(), remedyNoProvider(data))
}

func (c *Chain) openError(data []byte, at value.Context, errs []error) error {
	err := error(causes(errs))
	if len(errs) == 1 {
		err = errs[0]
	}
	return fmt.Errorf("%s at %s: stored %s: %w; %s", c.resource, etcdKey(at),
		storedWith(data), err, remedyOpen(err))
}

func remedyNoProvider(data []byte) string {
	if !stored.IsEncrypted(data) {
		return "add identity to the resource's providers, as the last one, to read it"
	}
	return "add that provider and key back to the resource's providers, after the first one, to read it"
}

func remedyOpen(err error) string {
	if errors.Is(err, ErrCorrupt) {
		return "check that the configured key is the one it was written with, else restore it from a backup"
	}
	return "the value itself is not known to be damaged: try again when the provider works"
}

// storedWith says how a value is stored, of which it repeats the header only.
func storedWith(data []byte) string {
	format, name, ok := stored.Identify(data)
	switch {
	case ok:
		return fmt.Sprintf("with %s, %s %q", format.Kind, format.NameOf, name)
	case format.Kind != "":
		return fmt.Sprintf("with %s, without a readable %s name", format.Kind, format.NameOf)
	case stored.IsEncrypted(data):
		return "in an unknown format, beginning " + quoted(string(data[:min(len(data), maxHeader+1)]), maxHeader)
	}
	return "as plaintext"
}

func etcdKey(at value.Context) string {
	return quoted(string(at.AuthenticatedData()), maxEtcdKey)
}

// name is how an error names an entry.
func (l *link) name() string {
	if l.prefix == "" {
		return "identity"
	}
	return quoted(l.prefix, maxPrefix)
}

// configured lists the entries, the first of which writes.
func (c *Chain) configured() string {
	names := make([]string, 0, maxListed+1)
	for i := range c.links[:min(len(c.links), maxListed)] {
		names = append(names, c.links[i].name())
	}
	if more := len(c.links) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return "[" + strings.Join(names, ", ") + "]"
}

// quoted bounds s before it quotes it.
func quoted(s string, limit int) string {
	if len(s) <= limit {
		return fmt.Sprintf("%q", s)
	}
	return fmt.Sprintf("%q...", s[:limit])
}

// causes is why each of several entries did not open a value. It reads as one
// line, without repetitions: several keys of one name mostly fail alike.
type causes []error

func (e causes) Error() string {
	var texts []string
	for _, err := range e {
		if text := err.Error(); !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
		if len(texts) == maxCauses {
			break
		}
	}
	return strings.Join(texts, "; ")
}

// Unwrap lets errors.Is and errors.As find every cause, a gRPC status among them.
func (e causes) Unwrap() []error { return e }
