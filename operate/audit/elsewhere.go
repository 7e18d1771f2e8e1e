package audit

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Elsewhere is what a walk of the whole keyspace saw outside the layout's prefix.
type Elsewhere struct {
	// Prefix is the first part of the etcd keys, such as /openshift.io; [Rest] is
	// what was not told apart.
	Prefix string `json:"prefix"`
	// Keys is how many there are, and Encrypted how many of them hold a value that
	// an apiserver encrypted. Those are counted with the objects of the report, and so
	// is Plaintext: see [Options.Encrypts].
	Keys      int64 `json:"keys"`
	Encrypted int64 `json:"encrypted"`
	Plaintext int64 `json:"plaintext,omitempty"`
}

// maxElsewhere is how many prefixes are told apart.
const maxElsewhere = 64

// outside counts keys by the first part of their paths.
type outside map[string]*Elsewhere

func (o outside) add(key string, encrypted, plaintext bool) {
	prefix := shown(firstPart(key))
	if o[prefix] == nil && len(o) >= maxElsewhere {
		prefix = Rest
	}
	if o[prefix] == nil {
		o[prefix] = &Elsewhere{Prefix: prefix}
	}
	o[prefix].Keys++
	if encrypted {
		o[prefix].Encrypted++
	}
	if plaintext {
		o[prefix].Plaintext++
	}
}

// sorted are those with most encrypted values first.
func (o outside) sorted() []Elsewhere {
	var all []Elsewhere
	for _, prefix := range slices.Sorted(maps.Keys(o)) {
		all = append(all, *o[prefix])
	}
	slices.SortStableFunc(all, func(a, b Elsewhere) int { return int(b.Encrypted - a.Encrypted) })
	return all
}

// firstPart is a key up to its second slash.
func firstPart(key string) string {
	if i := strings.IndexByte(key[min(len(key), 1):], '/'); i >= 0 {
		return key[:i+1]
	}
	return key
}

// maxParts is how far into a key of an unknown prefix a resource is looked for.
const maxParts = 5

// elsewhere is the resource of a key that is not below the layout's prefix. The
// prefix is not known: it is as long as it takes for a known resource to follow,
// or else has one part, and what follows is judged as below the layout's own.
func (l Layout) elsewhere(key string) (schema.GroupResource, bool) {
	prefix := firstPart(key)
	rest := strings.TrimPrefix(key[len(prefix):], "/")
	if prefix == openShiftPrefix {
		if r, ok := lookUp(openShift, rest); ok {
			return r, true
		}
	}
	guess, known := below(l.paths, rest)
	for n := 1; !known && n < maxParts; n++ {
		_, rest, _ = strings.Cut(rest, "/")
		if r, ok := lookUp(l.paths, rest); ok {
			return r, true
		}
	}
	return guess, known
}
