package retire

import (
	"fmt"
	"maps"
	"slices"

	"github.com/kube-atrest/atrest/operate/audit"
	"github.com/kube-atrest/atrest/operate/rotation"
)

// Reason is why it may not go.
type Reason struct {
	// Kind is objects, backup, apiserver or "no answer".
	Kind    string `json:"reason"`
	Where   string `json:"where"`
	Message string `json:"message"`
	// Objects is how many need it, and Resources which.
	Objects   int64       `json:"objects,omitempty"`
	Resources []Dependent `json:"resources,omitempty"`
}

// Dependent is the objects of one resource that need it.
type Dependent struct {
	Resource string   `json:"resource"`
	Objects  int64    `json:"objects"`
	Keys     []string `json:"keys"`
}

// against are all reasons why r may not go.
func (e Evidence) against(r Subject, most int) []Reason {
	reasons := e.Etcd.against(r, most, Reason{Kind: "objects", Message: "stored under it: have them rewritten first, with atrest migrate"})
	for _, backup := range e.Snapshots {
		reasons = append(reasons, backup.against(r, most, Reason{Kind: "backup", Message: "stored under it: it may go when this backup is no longer kept"})...)
	}
	for _, name := range slices.Sorted(maps.Keys(e.Apiservers[0])) {
		var said []string
		for _, seen := range e.Apiservers {
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
func (s Stock) against(r Subject, most int, like Reason) []Reason {
	because, apart := like, like
	because.Where, apart.Where = s.Place, s.Place
	for _, resource := range s.Report.Resources {
		d := Dependent{Resource: resource.Name}
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
	var reasons []Reason
	if because.Objects > 0 {
		because.Message = objects(because.Objects) + " " + like.Message
		reasons = append(reasons, because)
	}
	if apart.Objects > 0 {
		apart.Message = fmt.Sprintf("%s possibly stored under it: more than %d resources and ways to store them are not told apart: have everything rewritten first, with atrest migrate",
			objects(apart.Objects), audit.MaxRows)
		reasons = append(reasons, apart)
	}
	return reasons
}

// usedBy are the reasons that an apiserver gives.
func (r Subject) usedBy(apiserver string, i rotation.Instance) []Reason {
	where := "apiserver " + apiserver
	if i.Problem != "" {
		return []Reason{{Kind: "no answer", Where: where, Message: "nobody knows what it writes with: " + i.Problem}}
	}
	var reasons []Reason
	for _, name := range slices.Sorted(maps.Keys(i.Providers)) {
		if because := r.usedAs(name, i.Providers[name]); because != "" {
			reasons = append(reasons, Reason{Kind: "apiserver", Where: where, Message: because})
		}
	}
	return reasons
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
