package config

import (
	"encoding/base64"
	"encoding/json"
	"strings"

	"pgregory.net/rapid"
)

// object is a JSON object under construction.
type object = map[string]any

// grammar draws configurations. A wild one draws broken parts too.
type grammar struct {
	*rapid.T
	wild bool
	// local leaves out KMS providers.
	local bool
}

// oneOf draws from good, and from bad as well in one of eight draws if wild.
func oneOf[V any](g grammar, label string, good, bad []V) V {
	if g.wild && rapid.IntRange(0, 7).Draw(g.T, label+"?") == 0 {
		good = bad
	}
	return rapid.SampledFrom(good).Draw(g.T, label)
}

func some[V any](g grammar, label string, most int, draw func() V) []V {
	least := 1
	if g.wild && rapid.IntRange(0, 15).Draw(g.T, "no "+label) == 0 {
		least = 0
	}
	list := make([]V, rapid.IntRange(least, most).Draw(g.T, label))
	for i := range list {
		list[i] = draw()
	}
	return list
}

func (g grammar) resource() string {
	return oneOf(g, "resource",
		[]string{"secrets", "configmaps", "pods", "secrets.", "events", "events.k8s.io", "deployments.apps", "daemonsets.apps",
			"pandas.awesome.bears.example", "*.apps", "*.", "*.awesome.bears.example", "*.*"},
		[]string{"Secrets", "*", "apiserveripinfo", "serviceipallocations.", "events.events.k8s.io", "*.events.k8s.io",
			"ingresses.extensions", "*.extensions", "secrets.*", "", "pods/status", "a b", ".apps", "*.*.apps", "a..b", ".", "sécrets"})
}

func (g grammar) key(lengths ...int) any {
	secret := func(length int) string {
		return base64.StdEncoding.EncodeToString(rapid.SliceOfN(rapid.Byte(), length, length).Draw(g.T, "key"))
	}
	good := secret(rapid.SampledFrom(lengths).Draw(g.T, "length"))
	key := object{
		"name": oneOf(g, "key name", []string{"k1", "k2", "k3", "a:b"}, []string{""}),
		"secret": oneOf(g, "secret", []string{good, good[:5] + "\n" + good[5:]},
			[]string{"", "not base64", good[1:], "_" + good[1:], secret(15), secret(33), secret(64), secret(16)}),
	}
	return g.broken(key, "secret", 12345)
}

// broken leaves a field out, sets it to a wrong type or to null, or adds an
// unknown one.
func (g grammar) broken(o object, field string, wrong any) object {
	if !g.wild || rapid.IntRange(0, 15).Draw(g.T, "broken") != 0 {
		return o
	}
	switch rapid.IntRange(0, 3).Draw(g.T, "how") {
	case 0:
		delete(o, field)
	case 1:
		o[field] = wrong
	case 2:
		o[field] = nil
	case 3:
		o[strings.ToUpper(field)] = o[field]
	}
	return o
}

func (g grammar) kms() any {
	kms := object{
		"name": oneOf(g, "name", []string{"a", "b", "c", "d", "e", "f"}, []string{"", "a:b"}),
		"endpoint": oneOf(g, "endpoint", []string{"unix:///run/a.sock", "unix:///@a", "unix://run/a", "unix:a"},
			[]string{"", "://", "http://a", "/run/a.sock", "unix://%", "UNIX:///a"}),
	}
	version := oneOf(g, "version", []string{"v1", "v2", "v2"}, []string{"", "v3", "V2"})
	if version != "" {
		kms["apiVersion"] = version
	}
	if timeout := oneOf(g, "timeout", []string{"", "3s", "1h", "1ns"}, []string{"0s", "-1s", "soon", "3"}); timeout != "" {
		kms["timeout"] = timeout
	}
	if size := oneOf(g, "cachesize", []any{nil, nil, nil, nil}, []any{0, 1, -1, 1000, 1 << 40, "1"}); size != nil {
		kms["cachesize"] = size
	}
	return g.broken(kms, "timeout", 3)
}

func (g grammar) provider() any {
	kinds := []string{"aesgcm", "aescbc", "secretbox", "identity", "kms"}
	if g.local {
		kinds = kinds[:4]
	}
	p := object{}
	for range oneOf(g, "kinds", []int{1}, []int{0, 2}) {
		switch kind := rapid.SampledFrom(kinds).Draw(g.T, "kind"); kind {
		case "identity":
			p[kind] = object{}
		case "kms":
			p[kind] = g.kms()
		case "secretbox":
			p[kind] = object{"keys": some(g, "keys", 3, func() any { return g.key(32) })}
		default:
			p[kind] = object{"keys": some(g, "keys", 3, func() any { return g.key(16, 24, 32) })}
		}
	}
	return g.broken(p, "identity", "yes")
}

func (g grammar) entry() any {
	return g.broken(object{
		"resources": some(g, "resources", 3, g.resource),
		"providers": some(g, "providers", 3, g.provider),
	}, "resources", "secrets")
}

// file draws a whole file: JSON, which after "---" is YAML too.
func (g grammar) file() []byte {
	kind := oneOf(g, "kind", []string{"EncryptionConfiguration"}, []string{"EncryptionConfig", "AdmissionConfiguration", ""})
	version := oneOf(g, "apiVersion", []string{"apiserver.config.k8s.io/v1"},
		[]string{"v1", "apiserver.config.k8s.io/v1beta1", "apiserver.config.k8s.io/__internal", ""})
	if rapid.IntRange(0, 7).Draw(g.T, "legacy") == 0 {
		kind, version = "EncryptionConfig", "v1"
	}
	text, err := json.Marshal(object{"kind": kind, "apiVersion": version, "resources": some(g, "entries", 3, g.entry)})
	if err != nil {
		g.Fatal(err)
	}
	before := rapid.SampledFrom([]string{"", "---\n"}).Draw(g.T, "before")
	twice := oneOf(g, "twice", []string{""}, []string{`"kind":`, `"name":`, `"identity":`, `"resources":`})
	after := oneOf(g, "after", []string{"", "\n"}, []string{"\n---\n", "\n---\n# end\n", "\n---\na: b\n", "\n---\n{", "\n...\n", "}", "x"})
	return []byte(before + doubled(string(text), twice) + after)
}

// doubled repeats a field with the value null, so that it stands there twice.
func doubled(text, field string) string {
	if field == "" {
		return text
	}
	return strings.Replace(text, field, field+`null,`+field, 1)
}
