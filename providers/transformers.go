package providers

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage/value"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/envelope"
	"github.com/kube-atrest/atrest/transformer"
)

// Transformers are the built providers of one file. They do not change, but
// for what KMS providers do by themselves. Safe for concurrent use.
type Transformers struct {
	configuration *config.Configuration
	entries       map[*config.Provider][]transformer.Entry
	plugins       []*pluginUse // in the order of their first mention
	locals        []*localUse
	replaces      *Transformers // those in use, until these are; nil for the first
	warming       chan struct{} // holds a token for each DEK that is unwrapped ahead of its readers
	close         sync.Once
}

var _ value.ResourceTransformers = (*Transformers)(nil)

// pluginID tells plugins apart: names only choose the stored prefix.
type pluginID struct {
	kind      config.Kind
	socket    string
	timeout   time.Duration
	cacheSize int // 0 for kms v2
}

// sameSocket reports whether both are of one plugin, however it is called.
func (id pluginID) sameSocket(other pluginID) bool {
	return id.kind == other.kind && id.socket == other.socket
}

// pluginUse is what one file has of a plugin.
type pluginUse struct {
	id        pluginID
	providers []*config.Provider // that name it, in the order of the file
	observer  *observer
	counts    bool // for all uses of the socket, which share their counts
	source    source
	release   func() // gives back the hold on source
}

// use is what t has of a plugin; nil if it does not name it, or t is nil.
func (t *Transformers) use(id pluginID) *pluginUse {
	if t == nil {
		return nil
	}
	i := slices.IndexFunc(t.plugins, func(u *pluginUse) bool { return u.id == id })
	if i < 0 {
		return nil
	}
	return t.plugins[i]
}

// role is what the file uses the plugin for.
func (u *pluginUse) role() envelope.Role {
	if slices.ContainsFunc(u.providers, (*config.Provider).Writes) {
		return envelope.Writes
	}
	return envelope.Reads
}

// name is the first of those by which the file calls the plugin: the one that
// its metrics have.
func (u *pluginUse) name() string { return u.providers[0].KMS().Name }

func (u *pluginUse) names() []string {
	var names []string
	for _, p := range u.providers {
		names = append(names, p.KMS().Name)
	}
	return names
}

// Configuration is what the transformers were built from.
func (t *Transformers) Configuration() *config.Configuration { return t.configuration }

// TransformerForResource makes the transformer of a resource: its own rule, its
// group's, the one for everything, or identity.
func (t *Transformers) TransformerForResource(resource schema.GroupResource) value.Transformer {
	providers := t.configuration.For(resource)
	if providers == nil {
		return transformer.NewChain(resource, []transformer.Entry{identityEntry()})
	}
	var entries []transformer.Entry
	for _, p := range providers {
		entries = append(entries, t.entries[p]...)
	}
	return transformer.NewChain(resource, entries)
}

// Close ends the use of all plugins and waits for calls under way. Those that
// nobody else uses are disconnected.
func (t *Transformers) Close() {
	t.close.Do(func() {
		for _, u := range t.plugins {
			u.release()
		}
	})
}
