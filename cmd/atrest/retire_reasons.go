package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/operate/audit"
	"github.com/kube-atrest/atrest/operate/rotation"
	"github.com/kube-atrest/atrest/operate/rotation/observe"
)

// retiree is what is to go: a KMS provider by its name, or a key_id by its hash.
type retiree struct{ provider, keyID string }

func (r retiree) String() string {
	if r.provider != "" {
		return fmt.Sprintf("KMS provider %q", r.provider)
	}
	return "key_id " + r.keyID
}

// opens reports whether it takes r to open what is stored in a form.
func (r retiree) opens(f audit.Form) bool {
	if r.provider != "" {
		return isKMS(f) && f.Name == r.provider
	}
	return f.KeyIDHash == r.keyID
}

func isKMS(f audit.Form) bool { return f.Kind == config.KMSv1 || f.Kind == config.KMSv2 }

// identify finds out what a name is of.
func (r *retireCommand) identify(name string, found evidence) (retiree, error) {
	providers, keyIDs := found.names()
	keyID := rotation.KeyIDHash(name)
	if hashOfKeyID.MatchString(name) && !keyIDs[keyID] {
		keyID = name
	}
	switch isProvider, isKeyID := providers[name], keyIDs[keyID]; {
	case r.provider, !r.keyID && isProvider && !isKeyID:
		return retiree{provider: name}, nil
	case r.keyID, isKeyID && !isProvider:
		return retiree{keyID: keyID}, nil
	case isProvider:
		return retiree{}, usagef("%q is a KMS provider and a key_id: say which, with --provider or --key-id", name)
	}
	if _, isKey := providers[name]; isKey {
		return retiree{}, fmt.Errorf("%q is a key of the configuration file, and not of a KMS: atrest audit counts what is stored under it", name)
	}
	return retiree{}, fmt.Errorf("nothing knows %q: there are the KMS providers %s and the key_ids %s; "+
		"if it was one of them and is gone from everywhere, say which, with --provider or --key-id", name, someOf(providers), someOf(keyIDs))
}

// names are all KMS providers, and all key_ids by their hashes.
func (e evidence) names() (providers, keyIDs map[string]bool) {
	providers, keyIDs = map[string]bool{}, map[string]bool{}
	for _, stock := range e.stocks() {
		for _, resource := range stock.report.Resources {
			for _, c := range resource.Forms {
				providers[c.Name] = providers[c.Name] || isKMS(c.Form)
				keyIDs[c.KeyIDHash] = true
			}
		}
	}
	for _, seen := range e.apiservers {
		for _, i := range seen {
			for name, p := range i.Providers {
				providers[name], keyIDs[p.KeyID], keyIDs[p.WroteKeyID] = true, true, true
			}
		}
	}
	delete(providers, "") // of what is stored in no form that has one
	delete(keyIDs, "")
	return providers, keyIDs
}

// someOf lists a few names.
func someOf(names map[string]bool) string {
	const few = 20
	var all []string
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if names[name] {
			all = append(all, name)
		}
	}
	switch more := len(all) - few; {
	case len(all) == 0:
		return "(none)"
	case more > 0:
		return fmt.Sprintf("%s and %d more", strings.Join(all[:few], ", "), more)
	}
	return strings.Join(all, ", ")
}

// reason is why it may not go.
type reason struct {
	// Kind is objects, backup, apiserver or "no answer".
	Kind    string `json:"reason"`
	Where   string `json:"where"`
	Message string `json:"message"`
	// Objects is how many need it, and Resources which.
	Objects   int64       `json:"objects,omitempty"`
	Resources []dependent `json:"resources,omitempty"`
}

// dependent is the objects of one resource that need it.
type dependent struct {
	Resource string   `json:"resource"`
	Objects  int64    `json:"objects"`
	Keys     []string `json:"keys"`
}

// against are all reasons why r may not go.
func (e evidence) against(r retiree, most int) []reason {
	reasons := e.etcd.against(r, most, reason{Kind: "objects", Message: "stored under it: have them rewritten first, with atrest migrate"})
	for _, backup := range e.snapshots {
		reasons = append(reasons, backup.against(r, most, reason{Kind: "backup", Message: "stored under it: it may go when this backup is no longer kept"})...)
	}
	for _, name := range slices.Sorted(maps.Keys(e.apiservers[0])) {
		var said []string
		for _, seen := range e.apiservers {
			for _, because := range r.usedBy(name, seen[name]) {
				if !slices.Contains(said, because.Message) {
					said, reasons = append(said, because.Message), append(reasons, because)
				}
			}
		}
	}
	return reasons
}

// against are the reasons in one place, which are like one.
func (s stock) against(r retiree, most int, like reason) []reason {
	because, apart := like, like
	because.Where, apart.Where = s.place, s.place
	for _, resource := range s.report.Resources {
		d := dependent{Resource: resource.Name}
		for _, c := range resource.Forms {
			switch {
			case r.opens(c.Form):
				d.Objects += c.Objects
				d.Keys = append(d.Keys, c.Keys...)
			case resource.Name == audit.Rest && isKMS(c.Form):
				apart.Objects += c.Objects
			}
		}
		if d.Objects > 0 {
			slices.Sort(d.Keys)
			d.Keys = d.Keys[:min(len(d.Keys), most)]
			because.Objects += d.Objects
			because.Resources = append(because.Resources, d)
		}
	}
	var reasons []reason
	if because.Objects > 0 {
		because.Message = counted(int(because.Objects), "object") + " " + like.Message
		reasons = append(reasons, because)
	}
	if apart.Objects > 0 {
		apart.Message = fmt.Sprintf("%s possibly stored under it: more than %d resources and ways to store them are not told apart: have everything rewritten first, with atrest migrate",
			counted(int(apart.Objects), "object"), audit.MaxRows)
		reasons = append(reasons, apart)
	}
	return reasons
}

// usedBy are the reasons that an apiserver gives.
func (r retiree) usedBy(apiserver string, i rotation.Instance) []reason {
	where := "apiserver " + apiserver
	if i.Problem != "" {
		return []reason{{Kind: "no answer", Where: where, Message: "nobody knows what it writes with: " + i.Problem}}
	}
	var reasons []reason
	for _, name := range slices.Sorted(maps.Keys(i.Providers)) {
		if because := r.usedAs(name, i.Providers[name]); because != "" {
			reasons = append(reasons, reason{Kind: "apiserver", Where: where, Message: because})
		}
	}
	return reasons
}

// usedAs is how one provider of an apiserver uses it, or empty.
func (r retiree) usedAs(name string, p rotation.Provider) string {
	switch {
	case !observe.Configured(p):
		return ""
	case r.provider == name && p.WroteKeyID != "":
		return "has it in its configuration, and wrote with it: make another provider the first one, have the objects rewritten, and then take it out"
	case r.provider == name:
		return "has it in its configuration: take it out first"
	case r.provider != "":
		return ""
	case p.KeyID == r.keyID && p.WroteKeyID == r.keyID:
		return fmt.Sprintf("the plugin of provider %q names it, and the latest write was under it: rotate it first", name)
	case p.KeyID == r.keyID:
		return fmt.Sprintf("the plugin of provider %q names it: rotate it, or take the provider out of the configuration, first", name)
	case p.WroteKeyID == r.keyID:
		return fmt.Sprintf("the latest write with provider %q was under it, though the plugin names another: "+
			"wait until the apiserver has written under that, or take the provider out of the configuration, first", name)
	}
	return ""
}
