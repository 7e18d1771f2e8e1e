package audit

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kube-atrest/atrest/config"
)

// FindingKind groups findings. A finding is of the first kind that applies.
type FindingKind string

// The kinds, the worst first.
const (
	// Broken: no key opens it, see [Unknown] and [Undecodable].
	Broken FindingKind = "broken"
	// Unreadable: the resource's providers have none of that kind and name, so
	// that apiservers with this configuration cannot read it.
	Unreadable FindingKind = "unreadable"
	// NotOpened: the provider is there, and it did not open.
	NotOpened FindingKind = "not opened"
	// InPlaintext: it is plaintext, and the resource is written encrypted.
	InPlaintext FindingKind = "in plaintext"
	// Outdated: it can be read, and is not under the key that is written with.
	Outdated FindingKind = "outdated"
)

var worstFirst = []FindingKind{Broken, Unreadable, NotOpened, InPlaintext, Outdated}

// Finding is what a configuration says otherwise than what is stored.
type Finding struct {
	Kind     FindingKind `json:"finding"`
	Resource string      `json:"resource"`
	// Form is how the objects are stored, and Objects how many they are.
	Form
	Objects int64 `json:"objects"`
	// Astray is as in [Count]: the apiservers cannot rewrite it.
	Astray bool `json:"astray,omitempty"`
	// Message says what it means and what to do, in one line.
	Message string `json:"message"`
	// Keys are the first etcd keys.
	Keys []string `json:"keys,omitempty"`
}

// String is one line without the keys.
func (f Finding) String() string {
	as := ", stored as " + f.Form.String()
	if f.Kind == InPlaintext {
		as = ""
	}
	return fmt.Sprintf("%s: %d %s%s: %s", f.Resource, f.Objects, f.Kind, as, f.Message)
}

// Current tells the [envelope.HashKeyID] of the key_id that a KMS v2 provider
// writes under now; "" if that is not known, and then any is taken for current.
type Current func(provider string) string

// Against lists what in a report does not agree with a configuration, the worst
// first and then by resource. current may be nil. What is only [Outdated] is
// right while it is being migrated.
func (r *Report) Against(c *config.Configuration, current Current) []Finding {
	var found []Finding
	for _, resource := range r.Resources {
		e := expectationOf(c, resource.Name, current)
		for _, stored := range resource.Forms {
			if e.others(stored) {
				continue
			}
			found = append(found, e.findings(stored)...)
		}
	}
	slices.SortStableFunc(found, func(a, b Finding) int {
		return cmp.Compare(slices.Index(worstFirst, a.Kind), slices.Index(worstFirst, b.Kind))
	})
	return found
}

// Unjudged is how many objects Against says nothing of, as the configuration does not name
// their resources and another apiserver's may: see [Count].Beside. c may be nil.
func (r *Report) Unjudged(c *config.Configuration) (objects int64) {
	if c == nil {
		return 0
	}
	for _, resource := range r.Resources {
		e := expectationOf(c, resource.Name, nil)
		for _, stored := range resource.Forms {
			if e.others(stored) {
				objects += stored.Objects
			}
		}
	}
	return objects
}

// Undated are the KMS providers, by name, with which objects are stored that are to be,
// and of which it is not known whether they are [Outdated], so that Against says nothing
// of it: those of KMS v2 of which current does not tell the key_id, and those of KMS v1,
// which stores none.
func (r *Report) Undated(c *config.Configuration, current Current) (v2, v1 []string) {
	for _, resource := range r.Resources {
		e := expectationOf(c, resource.Name, current)
		for _, stored := range resource.Forms {
			switch {
			case e.judge(stored.Form) != "":
			case stored.Kind == config.KMSv1:
				v1 = append(v1, stored.Name)
			case stored.Kind == config.KMSv2 && e.current(stored.Name) == "":
				v2 = append(v2, stored.Name)
			}
		}
	}
	slices.Sort(v2)
	slices.Sort(v1)
	return slices.Compact(v2), slices.Compact(v1)
}

// Broken lists what no configuration can read, and what did not open.
func (r *Report) Broken() []Finding {
	var found []Finding
	for _, resource := range r.Resources {
		e := expectation{resource: resource.Name}
		for _, stored := range resource.Forms {
			if f, ok := e.broken(stored); ok {
				found = append(found, f)
			}
		}
	}
	return found
}

// expectation is what a configuration says of one resource.
type expectation struct {
	resource string
	unnamed  bool // by the configuration
	// reads are what values can be read with, the first of which is what is
	// written with.
	reads   []Form
	plugins []string // of KMS v2, for all resources
	current Current
}

// elsewhere reports whether what is not read is of a provider that another entry has.
func (e expectation) elsewhere(f Form) bool {
	return f.Kind == config.KMSv2 && slices.Contains(e.plugins, f.Name)
}

func expectationOf(c *config.Configuration, resource string, current Current) expectation {
	if current == nil {
		current = func(string) string { return "" }
	}
	e := expectation{resource: resource, current: current}
	for _, p := range c.For(schema.ParseGroupResource(resource)) {
		if p.Kind() == config.Identity {
			e.reads = append(e.reads, Form{Kind: Plaintext})
		}
		for _, name := range namesOf(p) {
			e.reads = append(e.reads, Form{Kind: p.Kind(), Name: name})
		}
	}
	for _, p := range c.Providers() {
		if p.Kind() == config.KMSv2 {
			e.plugins = append(e.plugins, p.KMS().Name)
		}
	}
	if e.reads == nil {
		e.reads, e.unnamed = []Form{{Kind: Plaintext}}, true
	}
	return e
}

// others reports whether only the configuration of another apiserver tells of a row.
func (e expectation) others(c Count) bool { return c.Beside && e.unnamed && e.judge(c.Form) != Broken }

// NeedsRewrite gives the function that tells of a form in which an object of a
// resource is stored whether the object has to be rewritten: it is [InPlaintext]
// or [Outdated]. What is worse cannot be rewritten, and is false. current may be
// nil. The function is safe for concurrent use if current is.
func NeedsRewrite(c *config.Configuration, r schema.GroupResource, current Current) func(Form) bool {
	e := expectationOf(c, r.String(), current)
	return func(f Form) bool {
		kind := e.judge(f)
		return kind == InPlaintext || kind == Outdated
	}
}

// WrittenWith is how apiservers with a configuration store an object of a
// resource. current may be nil; its answer is the key_id.
func WrittenWith(c *config.Configuration, r schema.GroupResource, current Current) Form {
	e := expectationOf(c, r.String(), current)
	written := e.reads[0]
	if written.Kind == config.KMSv2 {
		written.KeyIDHash = e.current(written.Name)
	}
	return written
}

// judge tells what is to be said of a form, or nothing.
func (e expectation) judge(f Form) FindingKind {
	read := Form{Kind: f.Kind, Name: f.Name}
	switch {
	case f.Kind == Unknown || f.Kind == Undecodable:
		return Broken
	case e.resource == Rest || !slices.Contains(e.reads, read):
		return Unreadable
	case read == e.reads[0] && e.isCurrent(f):
		return ""
	case read.Kind == Plaintext:
		return InPlaintext
	}
	return Outdated
}

// findings are those of one row: of the objects that did not open, and of all.
func (e expectation) findings(c Count) []Finding {
	kind := e.judge(c.Form)
	message := e.remedy(kind, c.Form)
	if c.Astray {
		message = DeleteAstray
	}
	switch kind {
	case Broken, Unreadable:
		return []Finding{e.finding(kind, c, message)}
	}
	var found []Finding
	if f, ok := e.broken(c); ok {
		found = append(found, f)
	}
	if kind != "" {
		found = append(found, e.finding(kind, c, message))
	}
	return found
}

func (e expectation) isCurrent(f Form) bool {
	if f.Kind != config.KMSv2 {
		return true
	}
	now := e.current(f.Name)
	return now == "" || now == f.KeyIDHash
}

// nothingReads is the remedy for what is Broken.
const nothingReads = "nothing reads it: restore it from a backup, or delete it from etcd"

// DeleteAstray is the remedy for what is [Count].Astray: nothing reads or rewrites it.
const DeleteAstray = "no apiserver looks for it in that etcd: see that the one they look in has what is needed of it, and delete it there with etcdctl del"

// remedy is what a finding says of a form.
func (e expectation) remedy(kind FindingKind, f Form) string {
	read, written := Form{Kind: f.Kind, Name: f.Name}, e.reads[0]
	switch {
	case kind == Broken:
		return nothingReads
	case kind == Unreadable && e.resource == Rest:
		return "too much to tell apart: audit one resource at a time"
	case kind == Unreadable && read.Kind == Plaintext:
		return "add identity to the resource's providers, as the last one"
	case kind == Unreadable && e.elsewhere(read):
		return fmt.Sprintf("put the resource into the entry of %s, which may be in that one only, and rewrite it there before it leaves", read)
	case kind == Unreadable:
		return fmt.Sprintf("add %s to the resource's providers, after the first one", read)
	case kind == InPlaintext:
		return fmt.Sprintf("rewrite it, so that it is stored with %s", written)
	case read != written:
		return fmt.Sprintf("rewrite it before its key goes: %s is written with now", written)
	}
	return fmt.Sprintf("rewrite it before its KEK goes: key_id %s is written under now", e.current(f.Name))
}

// broken is what can be said of a row without a configuration.
func (e expectation) broken(c Count) (Finding, bool) {
	switch {
	case c.Kind == Unknown || c.Kind == Undecodable:
		return e.finding(Broken, c, nothingReads), true
	case c.NotOpened > 0:
		f := e.finding(NotOpened, c, "the report's problems say why")
		f.Objects = c.NotOpened
		return f, true
	}
	return Finding{}, false
}

func (e expectation) finding(kind FindingKind, c Count, message string) Finding {
	return Finding{Kind: kind, Resource: e.resource, Form: c.Form, Objects: c.Objects, Astray: c.Astray, Message: message, Keys: c.Keys}
}
