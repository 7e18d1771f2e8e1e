package audit

import (
	"cmp"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// What a report holds at most, so that no store can make it grow without end.
const (
	// MaxRows is how many pairs of a resource and a form are told apart.
	MaxRows = 4096
	// maxDEKs is how many DEKs and seeds are told apart, some 20 bytes each.
	maxDEKs = 1 << 20
	// Rest is the name of what was not told apart.
	Rest = "(others)"

	maxListedKey = 1 << 10
	maxWhy       = 512
)

// row is what is counted together.
type row struct {
	resource schema.GroupResource
	form     Form
	astray   bool
	beside   bool
}

type count struct {
	Count
	deks map[uint64]struct{}
}

// tally counts objects. Its size depends on the number of resources, forms and
// DEKs, all of them bounded, and not on the number of objects.
type tally struct {
	rows     map[row]*count
	problems map[problemKind][]Problem
	guessed  map[string]struct{}
	outside  outside
	seed     maphash.Seed
	deks     int // in all rows
	listed   int // of keys in a row, and of problems of a kind
}

type problemKind int

const (
	problemStored problemKind = iota
	problemOpening
)

func newTally(listed int) *tally {
	return &tally{
		rows: map[row]*count{}, problems: map[problemKind][]Problem{}, guessed: map[string]struct{}{}, outside: outside{},
		seed: maphash.MakeSeed(), listed: listed,
	}
}

// add counts one object; opening is the error of opening it, if it was tried.
func (t *tally) add(o Object, r schema.GroupResource, known bool, i Inspection, opening error) {
	c := t.count(row{r, i.Form, o.Astray != "", o.beside})
	c.Objects++
	c.Bytes += int64(len(o.Value))
	c.Keys = listFirst(c.Keys, where(o), t.listed, strings.Compare)
	if !known && len(t.guessed) < MaxRows {
		t.guessed[shown(r.String())] = struct{}{}
	}
	t.addDEK(c, i.WrappedDEK)
	if i.Problem != nil {
		t.list(problemStored, o, r, i, i.Problem)
	}
	switch {
	case errors.Is(opening, ErrNotTried):
		c.NotTried++
	case opening != nil:
		c.NotOpened++
		t.list(problemOpening, o, r, i, opening)
	}
}

// count is the counter of a row, or that of the rest if there are too many.
func (t *tally) count(r row) *count {
	if c, ok := t.rows[r]; ok {
		return c
	}
	if len(t.rows) >= MaxRows {
		r = row{schema.GroupResource{Resource: Rest}, Form{Kind: r.form.Kind}, r.astray, false}
	}
	c, ok := t.rows[r]
	if !ok {
		c = &count{Count: Count{Form: r.form, Astray: r.astray, Beside: r.beside}, deks: map[uint64]struct{}{}}
		t.rows[r] = c
	}
	return c
}

// addDEK tells DEKs apart by 64 bits of a keyed hash: that two of a million
// have the same is as likely as one in ten million.
func (t *tally) addDEK(c *count, wrapped []byte) {
	if len(wrapped) == 0 {
		return
	}
	hash := maphash.Bytes(t.seed, wrapped)
	if _, ok := c.deks[hash]; ok {
		return
	}
	if t.deks >= maxDEKs {
		c.DEKsAtLeast = true
		return
	}
	t.deks++
	c.deks[hash] = struct{}{}
}

func (t *tally) list(kind problemKind, o Object, r schema.GroupResource, i Inspection, why error) {
	p := Problem{Key: where(o), Resource: shown(r.String()), Form: i.Form, Why: cut(why.Error(), maxWhy)}
	t.problems[kind] = listFirst(t.problems[kind], p, t.listed, func(a, b Problem) int { return strings.Compare(a.Key, b.Key) })
}

// listFirst keeps the first n in their order, whatever order they come in.
func listFirst[T any](list []T, v T, n int, compare func(a, b T) int) []T {
	i, _ := slices.BinarySearchFunc(list, v, compare)
	if i >= n {
		return list
	}
	return slices.Insert(list[:min(len(list), n-1)], i, v)
}

// report is what was counted.
func (t *tally) report() *Report {
	r := &Report{
		Problems: slices.Concat(t.problems[problemStored], t.problems[problemOpening]),
		Guessed:  slices.Sorted(maps.Keys(t.guessed)), Elsewhere: t.outside.sorted(),
	}
	resources := map[string]*Resource{}
	for key, c := range t.rows {
		name := shown(key.resource.String())
		resource, ok := resources[name]
		if !ok {
			resource = &Resource{Name: name}
			resources[name] = resource
		}
		c.DEKs = int64(len(c.deks))
		resource.Forms = append(resource.Forms, c.Count)
		resource.Objects += c.Objects
		resource.Bytes += c.Bytes
		r.Objects += c.Objects
		r.Bytes += c.Bytes
	}
	for _, name := range slices.Sorted(maps.Keys(resources)) {
		slices.SortFunc(resources[name].Forms, byForm)
		r.Resources = append(r.Resources, *resources[name])
	}
	return r
}

func byForm(a, b Count) int {
	return cmp.Or(strings.Compare(string(a.Kind), string(b.Kind)), strings.Compare(a.Name, b.Name),
		strings.Compare(a.KeyIDHash, b.KeyIDHash), strings.Compare(string(a.DEKSource), string(b.DEKSource)),
		strings.Compare(string(a.Begins), string(b.Begins)), strings.Compare(fmt.Sprint(a.Astray, a.Beside), fmt.Sprint(b.Astray, b.Beside)))
}

// where is the etcd key of an object, and the etcd if that one is not to have it.
func where(o Object) string {
	if o.Astray == "" {
		return shown(o.Key)
	}
	return fmt.Sprintf("%s in %s, where no apiserver looks for it", shown(o.Key), cut(o.Astray, maxListedKey))
}

// shown is an etcd key in a form that can be listed.
func shown(key string) string { return cut(key, maxListedKey) }

// cut makes valid UTF-8 of at most n bytes and three dots.
func cut(s string, n int) string {
	if len(s) > n {
		for n > 0 && !utf8.RuneStart(s[n]) {
			n--
		}
		s = s[:n] + "..."
	}
	return strings.ToValidUTF8(s, "?")
}
