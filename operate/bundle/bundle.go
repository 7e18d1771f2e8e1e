package bundle

import (
	"bytes"
	"slices"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/internal/redact"
)

// MaxSize is the most that a bundle may have, in bytes of names and contents: what a
// Kubernetes Secret can hold.
const MaxSize = 1 << 20

// MaxPlugins is the most plugins in one bundle.
const MaxPlugins = 64

// Draft is what a [Bundle] is made of.
type Draft struct {
	redact.As // it holds credentials
	// Revision is the generation of the bundle, from 1 on: whoever makes another one
	// counts up.
	Revision uint64
	// Salt goes into the hash, so that who sees one cannot try which PIN it is of: up to 64
	// random bytes, kept from one revision to the next. It may be left away.
	Salt []byte
	// EncryptionConfig is the EncryptionConfiguration as the apiserver reads it.
	EncryptionConfig []byte
	// Plugins are in any order. One that is there twice has to be the same both times.
	Plugins []DraftPlugin
}

// DraftPlugin is one plugin of a [Draft].
type DraftPlugin struct {
	redact.As // it holds credentials
	KeyID     KeyID
	// Settings are the bytes of [Settings], as YAML or JSON.
	Settings []byte
	// Parts are the files that the settings need, and no others.
	Parts map[Part][]byte
}

// Bundle is complete, checked and read-only, and safe for concurrent use. What it hands
// out are copies.
type Bundle struct {
	redact.As // it holds credentials
	revision  uint64
	salt      []byte
	hash      string
	folder    string
	raw       []byte
	config    *config.Configuration
	plugins   []*Plugin // in the order of their keyIDs
}

// Revision is its generation, from 1 on.
func (b *Bundle) Revision() uint64 { return b.revision }

// Salt is a copy of [Draft.Salt], for the next revision.
func (b *Bundle) Salt() []byte { return bytes.Clone(b.salt) }

// Hash names the content and the salt, the revision aside, as "sha256:" and 64 digits in
// hex: two bundles with one hash have the same configuration, settings, credentials and
// CAs.
func (b *Bundle) Hash() string { return b.hash }

// EncryptionConfig is a copy of the file for the apiserver.
func (b *Bundle) EncryptionConfig() []byte { return bytes.Clone(b.raw) }

// Configuration is the meaning of [Bundle.EncryptionConfig].
func (b *Bundle) Configuration() *config.Configuration { return b.config }

// SocketFolder is the absolute path of the folder in which the configuration has all
// the sockets. It is empty without a plugin.
func (b *Bundle) SocketFolder() string { return b.folder }

// Plugins are in the order of their keyIDs, the oldest first.
func (b *Bundle) Plugins() []*Plugin { return slices.Clone(b.plugins) }

// Plugin is that of a keyID, nil if there is none.
func (b *Bundle) Plugin(id KeyID) *Plugin {
	for _, p := range b.plugins {
		if p.id == id {
			return p
		}
	}
	return nil
}
