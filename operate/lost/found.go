package lost

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/operate/audit"
)

// Reason is why nothing opens an object.
type Reason string

// The reasons.
const (
	// NoKey: the configuration has no key or provider of the name it is stored under.
	NoKey Reason = "no key"
	// UnknownKey: the plugin answers that it has no such key, or has not sealed that.
	UnknownKey Reason = "unknown to the plugin"
	// Damaged: it is cut off or changed, was moved, or is under another key of the name.
	Damaged Reason = "does not open"
)

// Object is one that nothing opens.
type Object struct {
	// Key is that of etcd, and the others are what it says.
	Key       string `json:"key"`
	Resource  string `json:"resource"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	audit.Form
	Reason Reason `json:"reason"`

	modRevision int64
	astray      string // as audit.Object.Astray
}

// objectAt is the object of an etcd key.
func objectAt(l audit.Layout, key string) Object {
	r, _ := l.Resource(key)
	o := Object{Key: key, Resource: r.String(), Name: key}
	for _, place := range l.Places(r) {
		if path, ok := strings.CutPrefix(key, place); ok && path != "" {
			o.Name = path
		}
	}
	if namespace, name, ok := strings.Cut(o.Name, "/"); ok && o.Name != key {
		o.Namespace, o.Name = namespace, name
	}
	return o
}

// Unknown are objects of one form of which it is not known whether they are lost.
type Unknown struct {
	Resource string `json:"resource"`
	audit.Form
	Objects int64 `json:"objects"`
	// Where is the backup that they are in, empty for the cluster itself.
	Where string `json:"where,omitempty"`
	// Why is that of the first of them, in one line.
	Why string `json:"why"`
	// Keys are the etcd keys of the first of them in the cluster for which everybody was asked.
	Keys []string `json:"keys,omitempty"`
}

// maxUnknownKeys bounds [Unknown].Keys.
const maxUnknownKeys = 1000

// Misplaced are objects that apiservers cannot read, and that are not lost: the keys of
// another resource open them, or of another name, or none is needed; or no apiserver looks
// for them where they are.
type Misplaced struct {
	Resource string `json:"resource"`
	audit.Form
	Objects int64 `json:"objects"`
	// With is the resource whose providers open them, empty for plaintext.
	With string `json:"with,omitempty"`
	// As is the name that the key or provider has in the configuration, if it is another
	// than theirs.
	As string `json:"as,omitempty"`
	// Taken reports whether another key or provider has their name now.
	Taken bool `json:"taken,omitempty"`
	// Astray is the etcd that they are in, if no apiserver looks for them there. They were
	// not opened.
	Astray string `json:"astray,omitempty"`
}

// Copy is what a backup has of an object, and opens.
type Copy struct {
	// Backup names it, and Revision is that of the backup; or several, with none, of
	// which nobody knows which is the latest.
	Backup   string
	Revision int64
	Facts    Facts

	among []dated // all that have it
}

// Found is what was found.
type Found struct {
	Lost      []Object
	Unknown   []Unknown
	Misplaced []Misplaced
	// Unjudged is how many objects another apiserver may store, by another configuration,
	// as those of OpenShift do.
	Unjudged int64
	// Aggregated is how many of what did not open an aggregated apiserver stores.
	Aggregated int64
	// Copies are the latest that open, by etcd key, and Backups how many were looked into.
	Copies  map[string]Copy
	Backups int
	// Others are the objects that Unjudged and Aggregated count: they may be owned by what is
	// lost.
	Others []Object
	// Notes are what else is to be known.
	Notes []string
	// Layout finds the etcd keys of owners.
	Layout audit.Layout
	// There reports whether something that opens stands under an etcd key; nil if that
	// was not looked at.
	There func(key string) bool
}

// Leave takes out of what is lost what c does not name and an aggregated apiserver serves,
// by these API groups: that has a configuration and plugins of its own, which may be away.
func (f *Found) Leave(c *config.Configuration, groups []string) {
	all := len(f.Lost)
	f.Lost = slices.DeleteFunc(f.Lost, func(o Object) bool {
		r := schema.ParseGroupResource(o.Resource)
		leave := slices.Contains(groups, r.Group) && c.For(r) == nil
		if leave {
			f.Others = append(f.Others, o)
		}
		return leave
	})
	f.Aggregated += int64(all - len(f.Lost))
}
