package overview

import (
	"fmt"
	"maps"
	"slices"
	"strings"

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
			j.count(resource, c)
		}
	}
}

// count judges objects of a resource that are stored alike.
func (j *judge) count(resource audit.Resource, c audit.Count) {
	encrypted := j.writtenWith(resource.Name)
	what := fmt.Sprintf("%s of %s", objects(c.Objects), resource.Name)
	stored := what + is(c.Objects) + "stored "
	lags := ""
	if len(encrypted) > 0 && (!c.Kind.IsKMS() || !slices.Contains(encrypted, c.Name)) {
		lags = fmt.Sprintf("they are written with %s now: atrest migrate rewrites what lags", list(encrypted))
	}
	switch {
	case c.Kind == audit.Unknown || c.Kind == audit.Undecodable:
		j.add(NotWell, Problem{What: what + " cannot be read", Why: "atrest audit lists them"})
	case c.Kind.IsKMS() && !j.readable(stored, c.Form):
	case c.Kind == audit.Plaintext:
		j.plain(resource, what+is(c.Objects)+"in plaintext", encrypted)
	case !c.Kind.IsKMS():
		j.add(Unknown, Problem{What: fmt.Sprintf("%swith %s, of which no apiserver tells", stored, c.Form),
			Why: joined("atrest check FILE --etcd says whether they can be read, with FILE as an apiserver has it", lags)})
	case lags != "":
		j.notes = append(j.notes, fmt.Sprintf("%swith %s, and %s", stored, c.Form, lags))
	}
}

// plain judges what is in plaintext.
func (j *judge) plain(resource audit.Resource, what string, encrypted []string) {
	wild := j.writtenWith(wildcards(resource.Name)...)
	switch {
	case len(encrypted) > 0:
		j.add(NotWell, Problem{What: what, Why: list(encrypted) + " is to encrypt them: have them rewritten, with atrest migrate"})
	case len(wild) > 0:
		j.add(Unknown, Problem{What: what + ", and whether they are to be is not known",
			Why: list(wild) + " writes what a wildcard is for, and whether another entry is for them is not told: see atrest check FILE --etcd, with FILE as an apiserver has it"})
	case slices.ContainsFunc(resource.Forms, func(f audit.Count) bool { return isKey(f.Form) }):
		j.add(Unknown, Problem{What: what + ", and whether they are to be is not known",
			Why: "others are under a key in the file, of which no apiserver tells: see atrest check FILE --etcd, with FILE as an apiserver has it"})
	}
}

// isKey reports whether a form is that of a key in the file.
func isKey(f audit.Form) bool {
	return !f.Kind.IsKMS() && f.Kind != audit.Plaintext && f.Kind != audit.Unknown && f.Kind != audit.Undecodable
}

// wildcards are those that a resource is covered by, as a file has them.
func wildcards(resource string) []string {
	_, group, _ := strings.Cut(resource, ".")
	return []string{"*." + group, "*.*"}
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

// writtenWith are the providers that one of the names of a file is written with, as far
// as apiservers tell.
func (j *judge) writtenWith(names ...string) []string {
	all := map[string]bool{}
	for _, i := range j.usable {
		for name, p := range i.Providers {
			if p.Told.Role == rotation.RoleWrites && slices.ContainsFunc(names, func(n string) bool { return slices.Contains(p.Told.WritesFor, n) }) {
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
