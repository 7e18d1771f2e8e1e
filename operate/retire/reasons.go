package retire

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/operate/audit"
	"github.com/kube-atrest/atrest/operate/rotation"
)

// Reason is why it may not go.
type Reason struct {
	// Kind is objects, backup, apiserver, "no answer" or "not named".
	Kind    string `json:"reason"`
	Where   string `json:"where"`
	Message string `json:"message"`
	// Objects is how many need it, and Resources which.
	Objects   int64       `json:"objects,omitempty"`
	Resources []Dependent `json:"resources,omitempty"`

	provider string // of an apiserver
}

// Dependent is the objects of one resource that need it.
type Dependent struct {
	Resource string   `json:"resource"`
	Objects  int64    `json:"objects"`
	Keys     []string `json:"keys"`
}

// against are all reasons why r may not go.
func (e Evidence) against(r Subject, most int) []Reason {
	reasons := e.Etcd.against(r, most, Reason{Kind: "objects"})
	for _, backup := range e.Snapshots {
		reasons = append(reasons, backup.against(r, most, Reason{Kind: "backup", Message: "it may go when this backup is no longer kept"})...)
	}
	return append(reasons, e.againstBy(r)...)
}

// againstBy are the reasons that apiservers give, and that nobody gives for them.
func (e Evidence) againstBy(r Subject) []Reason {
	var reasons []Reason
	names := e.apiservers()
	if len(names) == 0 {
		reasons = append(reasons, Reason{Kind: "no answer", Where: "apiservers", Message: "none was asked, so nobody knows what they write with: name each"})
	}
	for _, name := range names {
		told := map[string]bool{}
		for _, seen := range slices.Backward(e.Apiservers[:]) { // of a provider, what is so now
			for _, because := range r.usedBy(name, seen) {
				key := cmp.Or(because.provider, because.Message)
				if !told[key] {
					told[key], reasons = true, append(reasons, because)
				}
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(e.Unshown)) {
		reasons = append(reasons, Reason{Kind: "no answer", Where: "apiserver " + name,
			Message: "nobody knows whether it stores in what was counted: " + e.Unshown[name]})
	}
	reasons = append(reasons, e.written(r, reasons)...)
	if e.Apart != "" {
		reasons = append(reasons, Reason{Kind: "no answer", Where: "apiservers", Message: "they are not known to be of one cluster: " + e.Apart})
	}
	if e.Elsewhere != "" {
		reasons = append(reasons, Reason{Kind: "no answer", Where: "etcd", Message: "it is not all that there is: " + e.Elsewhere})
	}
	if e.Untold != "" {
		reasons = append(reasons, Reason{Kind: "no answer", Where: "other apiservers", Message: "nobody knows whether there are any: " + e.Untold})
	}
	for _, name := range slices.Sorted(slices.Values(e.Unnamed)) {
		reasons = append(reasons, Reason{Kind: "not named", Where: "apiserver " + name,
			Message: "is one of the cluster's and was not asked, so nobody knows what it writes with: name it with --apiservers, or, if it is gone, excuse it with --without-apiservers"})
	}
	return reasons
}

// written are the reasons that are seen in what apiservers stored, and in that one is
// another now than before the count: what it stored meanwhile nobody saw.
func (e Evidence) written(r Subject, known []Reason) []Reason {
	var reasons []Reason
	for _, w := range e.Written {
		tells := func(because Reason) bool { return because.Where == "apiserver "+w.Apiserver }
		if _, needs := r.needOf("", w.Form); needs && !slices.ContainsFunc(slices.Concat(known, reasons), tells) {
			reasons = append(reasons, Reason{Kind: "apiserver", Where: "apiserver " + w.Apiserver, Message: fmt.Sprintf("stores with %s", w.Form)})
		}
	}
	before, after := rotation.Identities(e.Apiservers[0]), rotation.Identities(e.Apiservers[1])
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if now, asked := after[name]; asked && (now != before[name] || e.loadedAgain(name)) {
			reasons = append(reasons, Reason{Kind: "no answer", Where: "apiserver " + name,
				Message: "was started anew or took another configuration into use while the objects were counted: ask again"})
		}
	}
	return reasons
}

// clockSlack is by how much a moment may seem to differ from one look to the next: the
// clock of an apiserver is known by its Date, in whole seconds.
const clockSlack = 5 * time.Second

// loadedAgain reports whether an apiserver has its configuration since another time than
// before the count: it had another one between.
func (e Evidence) loadedAgain(apiserver string) bool {
	before, after := e.Apiservers[0][apiserver].ConfigSince, e.Apiservers[1][apiserver].ConfigSince
	return after.Sub(before).Abs() > clockSlack
}

// apiservers are those that were asked, at either time.
func (e Evidence) apiservers() []string {
	names := slices.AppendSeq(slices.Collect(maps.Keys(e.Apiservers[0])), maps.Keys(e.Apiservers[1]))
	slices.Sort(names)
	return slices.Compact(names)
}

// need is why objects keep something from going, and what to do about it.
type need struct{ why, remedy string }

// The needs, in the order in which they are told.
var (
	underIt = need{"stored under it", "have them rewritten first, with atrest migrate"}
	underV1 = need{"stored with KMS v1, which names no key_id, so that they may need this one",
		"have them rewritten first, with atrest migrate, under a provider of KMS v2"}
	broken = need{"that cannot be read, and may have been stored under it", "see them with atrest audit, and restore or delete them first"}
	merged = need{fmt.Sprintf("possibly stored under it: more than %d resources and ways to store them are not told apart", audit.MaxRows),
		"have everything rewritten first, with atrest migrate"}
	astray = need{"possibly stored under it, in an etcd where no apiserver looks for them", audit.DeleteAstray}
	needs  = []need{underIt, underV1, broken, merged, astray}
)

// needOf is whether objects of a resource that are stored in a form need r.
func (r Subject) needOf(resource string, f audit.Form) (n need, ok bool) {
	switch {
	case r.opens(f):
		return underIt, true
	case resource == audit.Rest && (f.Kind.IsKMS() || f.Kind == audit.Undecodable):
		return merged, true
	case f.Kind == config.KMSv1 && r.KeyID != "":
		return underV1, true
	case f.Kind == audit.Unknown, f.Kind == audit.Undecodable && f.Begins.IsKMS():
		return broken, true
	}
	return need{}, false
}

// against are the reasons in one place, which are like one: with its message for
// the remedy, if it has one.
func (s Stock) against(r Subject, most int, like Reason) []Reason {
	var reasons []Reason
	for _, n := range needs {
		because := like
		because.Where = s.Place
		for _, resource := range s.Report.Resources {
			if d := r.dependent(resource, n, most); d.Objects > 0 {
				because.Objects += d.Objects
				because.Resources = append(because.Resources, d)
			}
		}
		if because.Objects > 0 {
			because.Message = fmt.Sprintf("%s %s: %s", objects(because.Objects), n.why, cmp.Or(like.Message, n.remedy))
			reasons = append(reasons, because)
		}
	}
	return reasons
}

// dependent are the objects of a resource that have one need.
func (r Subject) dependent(resource audit.Resource, n need, most int) Dependent {
	d := Dependent{Resource: resource.Name}
	for _, c := range resource.Forms {
		found, ok := r.needOf(resource.Name, c.Form)
		if c.Astray {
			found = astray
		}
		if ok && found == n {
			d.Objects += c.Objects
			d.Keys = append(d.Keys, c.Keys...)
		}
	}
	slices.Sort(d.Keys)
	d.Keys = d.Keys[:min(len(d.Keys), most)]
	return d
}

// usedBy are the reasons that an apiserver gives as it was seen at one time.
func (r Subject) usedBy(apiserver string, seen map[string]rotation.Instance) []Reason {
	where := "apiserver " + apiserver
	i, asked := seen[apiserver]
	if !asked {
		i.Problem = "it was asked only once, and has to be before the objects are counted and after"
	}
	if i.Problem != "" {
		return []Reason{{Kind: "no answer", Where: where, Message: "nobody knows what it writes with: " + i.Problem}}
	}
	var reasons []Reason
	if i.Pending != "" {
		reasons = append(reasons, Reason{Kind: "no answer", Where: where,
			Message: "it has not taken its file into use as it is now, so nobody knows what it writes with once it has: " + i.Pending})
	}
	if problem := untold(i); problem != "" {
		reasons = append(reasons, Reason{Kind: "no answer", Where: where, Message: "it is not ready, and its metrics do not tell of a plugin that was away since it started, " +
			"nor of a write that it cannot change the key of: " + problem})
	}
	for _, name := range slices.Sorted(maps.Keys(i.Providers)) {
		if because := r.usedAs(name, i.Providers[name]); because != "" {
			reasons = append(reasons, Reason{Kind: "apiserver", Where: where, Message: because, provider: name})
		}
	}
	return reasons
}

// untold is what an apiserver that tells by its metrics alone says is wrong with its
// plugins: what those lack nobody knows.
func untold(i rotation.Instance) string {
	if i.Complete {
		return ""
	}
	for _, name := range slices.Sorted(maps.Keys(i.Providers)) {
		if p := i.Providers[name]; !p.Healthy && !p.Silent {
			return p.Problem
		}
	}
	return ""
}

// usedAs is how one provider of an apiserver uses it, or empty.
func (r Subject) usedAs(name string, p rotation.Provider) string {
	switch {
	case p.Silent:
		return ""
	case r.Provider == name && p.WroteKeyID != "":
		return "has it in its configuration, and wrote with it: make another provider the first one, have the objects rewritten, and then take it out"
	case r.Provider == name:
		return "has it in its configuration: take it out first"
	case r.Provider != "":
		return ""
	case p.KeyID == "" && p.WroteKeyID != r.KeyID:
		return fmt.Sprintf("the plugin of provider %q has named no key_id, as none of KMS v1 does, so which it uses is not known: "+
			"wait until it names one, or take the provider out of the configuration, first", name)
	case p.KeyID == r.KeyID && p.WroteKeyID == r.KeyID:
		return fmt.Sprintf("the plugin of provider %q names it, and the latest write was under it: rotate it first", name)
	case p.KeyID == r.KeyID:
		return fmt.Sprintf("the plugin of provider %q names it: rotate it, or take the provider out of the configuration, first", name)
	case p.WroteKeyID == r.KeyID:
		return fmt.Sprintf("the latest write with provider %q was under it, though the plugin names another: "+
			"wait until the apiserver has written under that, or take the provider out of the configuration, first", name)
	}
	return ""
}
