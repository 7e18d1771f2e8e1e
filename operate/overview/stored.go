package overview

import (
	"fmt"
	"maps"
	"slices"

	"github.com/kube-atrest/atrest/internal/hashed"
	"github.com/kube-atrest/atrest/operate/audit"
	"github.com/kube-atrest/atrest/operate/rotation"
)

// stored judges what etcd holds by what the apiservers tell.
func (j *judge) stored() {
	e := j.seen.Etcd
	if e == nil {
		return
	}
	problem := e.Problem
	if problem == "" && e.Report == nil {
		problem = "nobody looked"
	}
	if problem == "" {
		if err := e.Report.NotEmpty(); err != nil {
			problem = err.Error()
		}
	}
	if problem != "" {
		j.add(Unknown, Problem{What: "what etcd holds is not known", Why: problem})
		return
	}
	for _, resource := range e.Report.Resources {
		for _, c := range resource.Forms {
			j.count(resource.Name, c)
		}
	}
}

// count judges objects of a resource that are stored alike.
func (j *judge) count(resource string, c audit.Count) {
	encrypted := j.writtenWith(resource)
	what := fmt.Sprintf("%s of %s", objects(c.Objects), resource)
	stored := what + is(c.Objects) + "stored "
	switch {
	case c.Kind == audit.Unknown || c.Kind == audit.Undecodable:
		j.add(NotWell, Problem{What: what + " cannot be read", Why: "atrest audit lists them"})
	case c.Kind.IsKMS() && !j.readable(stored, c.Form):
	case len(encrypted) == 0:
	case c.Kind == audit.Plaintext:
		j.add(NotWell, Problem{What: what + is(c.Objects) + "in plaintext",
			Why: list(encrypted) + " is to encrypt them: have them rewritten, with atrest migrate"})
	case !c.Kind.IsKMS() || !slices.Contains(encrypted, c.Name):
		j.notes = append(j.notes, fmt.Sprintf("%swith %s, and they are written with %s now: atrest migrate rewrites what lags", stored, c.Form, list(encrypted)))
	}
}

// readable judges whether what is stored with KMS can be read, and notes if it lags.
func (j *judge) readable(stored string, form audit.Form) bool {
	keyIDs, told, complete := map[string]bool{}, false, len(j.usable) == len(j.seen.Apiservers)
	for _, i := range j.usable {
		complete = complete && i.Complete
		if p, has := i.Providers[form.Name]; has && !p.Silent {
			told = true
			keyIDs[p.KeyID], keyIDs[p.WroteKeyID] = true, true
		}
	}
	about := Problem{Provider: form.Name, Why: "put the provider back, to read with, and have them rewritten, with atrest migrate"}
	switch {
	case !told && complete:
		about.What = fmt.Sprintf("%swith %s, which no apiserver has", stored, form.Name)
		j.add(NotWell, about)
	case !told:
		about.What = fmt.Sprintf("%swith %s, of which no apiserver tells", stored, form.Name)
		j.add(Unknown, about)
	case form.KeyIDHash != "" && !keyIDs[form.KeyIDHash]:
		j.notes = append(j.notes, fmt.Sprintf("%sunder an earlier key_id of %s, %s: atrest migrate rewrites what lags", stored, form.Name, hashed.Short(form.KeyIDHash)))
	default:
		return true
	}
	return false
}

// writtenWith are the providers that a resource is written with, as far as apiservers
// tell. A wildcard is not looked into: another rule may come before it.
func (j *judge) writtenWith(resource string) []string {
	all := map[string]bool{}
	for _, i := range j.usable {
		for name, p := range i.Providers {
			if p.Told.Role == rotation.RoleWrites && slices.Contains(p.Told.WritesFor, resource) {
				all[name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(all))
}

func objects(n int64) string {
	if n == 1 {
		return "1 object"
	}
	return fmt.Sprintf("%d objects", n)
}

func is(n int64) string {
	if n == 1 {
		return " is "
	}
	return " are "
}
