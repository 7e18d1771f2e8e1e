package faults

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"pgregory.net/rapid"

	"github.com/kube-atrest/atrest/internal/hashed"
	"github.com/kube-atrest/atrest/internal/stored"
)

// resources are those of the simulation. The last one has a group.
var resources = []schema.GroupResource{secrets, configmaps, {Group: "apps", Resource: "deployments"}}

// means is what a value is stored with in the simulation: a plugin, one of the
// keys in the file, or nothing.
type means struct {
	plugin int // or -1
	key    string
}

// The keys that stand in the files, by name.
var keys = map[string]struct{ kind, secret string }{
	"gcm": {"aesgcm", "key of 16 bytes."},
	"cbc": {"aescbc", "a key of 24 bytes, true."},
	"box": {"secretbox", "a key of thirty-two bytes, or so"},
}

const plugins = 3

// allMeans are all there are.
var allMeans = []means{{0, ""}, {1, ""}, {2, ""}, {-1, "gcm"}, {-1, "cbc"}, {-1, "box"}, {-1, "identity"}}

// element is what stands in the file for m, of the resource numbered r. A
// plugin has another name in each resource's list, as names must differ.
func (m means) element(w *world, r int) string {
	switch {
	case m.plugin >= 0:
		return kms(fmt.Sprintf("p%dr%d", m.plugin, r), w.machines[m.plugin].Plugin, "timeout: 300ms")
	case m.key == "identity":
		return identity
	}
	k := keys[m.key]
	secret := base64.StdEncoding.EncodeToString([]byte(k.secret))
	return fmt.Sprintf("%s: {keys: [{name: %s, secret: %s}]}", k.kind, m.key, secret)
}

// meansOf is what a stored value says that it was stored with.
func meansOf(value []byte) means {
	format, name, ok := stored.Identify(value)
	switch {
	case !ok:
		return means{-1, "identity"}
	case format == stored.KMSv2:
		return means{int(name[1] - '0'), ""}
	}
	return means{-1, name}
}

// content is a file of the simulation that can be used.
type content struct {
	text  string
	hash  string
	means [][]means // by resource; the first one writes
}

// newContent is a file with the means given for each resource.
func (w *world) newContent(all [][]means) content {
	w.files++
	var rules []string
	for i, r := range resources {
		var elements []string
		for _, m := range all[i] {
			elements = append(elements, m.element(w, i))
		}
		rules = append(rules, rule(r.String(), elements...))
	}
	text := fmt.Sprintf("# %d\n", w.files) + fileOf(rules...)
	return content{text, hashed.Name([]byte(text)), all}
}

// anyContent draws a file in which each resource has some means.
func (w *world) anyContent(rt *rapid.T) content {
	var all [][]means
	for _, r := range resources {
		n := rapid.IntRange(1, len(allMeans)).Draw(rt, "number of providers")
		all = append(all, rapid.Permutation(allMeans).Draw(rt, r.String())[:n])
	}
	return w.newContent(all)
}

// fullContent draws a file in which each resource has all means.
func (w *world) fullContent(rt *rapid.T) content {
	var all [][]means
	for _, r := range resources {
		all = append(all, rapid.Permutation(allMeans).Draw(rt, r.String()))
	}
	return w.newContent(all)
}

// badContent draws one that cannot be used.
func (w *world) badContent(rt *rapid.T) string {
	good := w.newContent([][]means{allMeans, allMeans, allMeans}).text
	return rapid.SampledFrom([]string{
		"",
		"kind: [",
		strings.Replace(good, "name: gcm", "name: ''", 1),
		strings.Replace(good, "resources:", "resource:", 1),
		strings.Replace(good, "aescbc", "aesxyz", 1),
		good[:len(good)/2] + "\n- {",
		good + good,
	}).Draw(rt, "content")
}

func (c *content) names(r int, m means) bool { return slices.Contains(c.means[r], m) }

// has reports whether c names m for any resource.
func (c *content) has(m means) bool {
	return slices.ContainsFunc(c.means, func(all []means) bool { return slices.Contains(all, m) })
}
