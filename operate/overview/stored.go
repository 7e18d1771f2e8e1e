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
	j.absent(e.Report)
	if slices.ContainsFunc(e.Reads, func(r Read) bool { return r.Verdict == Well }) {
		j.notes = append(j.notes, inMemory)
	}
	if slices.ContainsFunc(slices.Collect(maps.Values(j.usable)), func(i rotation.Instance) bool { return !i.Complete }) {
		j.notes = append(j.notes, "which resources are to be encrypted a kube-apiserver does not tell, so whether others are stored as they are to be is not judged: "+ofEntries)
	}
}

const (
	secrets   = "secrets"
	inMemory  = "what is stored with KMS is read now, if only with keys that apiservers have in memory: atrest check FILE --etcd has the plugins unwrap them"
	ofEntries = "see atrest check FILE --etcd, with FILE as an apiserver has it"
)

// absent judges that there are no Secrets, which nearly every cluster has.
func (j *judge) absent(r *audit.Report) {
	with := j.writtenWith(append(wildcards(secrets), secrets)...)
	has := func(of audit.Resource) bool { return of.Name == secrets || of.Name == audit.Rest }
	if len(with) == 0 || slices.ContainsFunc(r.Resources, has) {
		return
	}
	j.add(Unknown, Problem{What: "no object of secrets is stored there", Why: list(with) + " is to encrypt them: if they have an etcd of their own, name it with --etcd-servers-overrides; " +
		"else see whether it is the etcd of these apiservers, and whether there are any"})
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
	case c.Astray:
		j.add(Unknown, Problem{What: what + is(c.Objects) + "in another etcd than theirs", Why: audit.DeleteAstray})
	case c.Kind == audit.Unknown || c.Kind == audit.Undecodable:
		j.add(NotWell, Problem{What: what + " cannot be read", Why: "atrest audit lists them"})
	case c.Kind.IsKMS() && !j.readable(resource.Name, stored, c):
	case c.Kind == audit.Plaintext:
		j.plain(resource, what+is(c.Objects)+"in plaintext", encrypted)
	case !c.Kind.IsKMS():
		j.add(Unknown, Problem{What: fmt.Sprintf("%swith %s, of which no apiserver tells", stored, c.Form),
			Why: joined("atrest check FILE --etcd says whether they can be read, with FILE as an apiserver has it", lags)})
	case lags != "":
		j.notes = append(j.notes, fmt.Sprintf("%swith %s, and %s", stored, c.Form, lags))
	}
}

// plain judges what is in plaintext. Of Secrets, and of what was encrypted at some time,
// that is meant only if somebody says so.
func (j *judge) plain(resource audit.Resource, what string, encrypted []string) {
	if len(encrypted) > 0 {
		j.add(NotWell, Problem{What: what, Why: list(encrypted) + " is to encrypt them: have them rewritten, with atrest migrate"})
		return
	}
	among := func(is func(audit.Form) bool) bool {
		return slices.ContainsFunc(resource.Forms, func(c audit.Count) bool { return is(c.Form) })
	}
	why := ""
	wild := j.writtenWith(wildcards(resource.Name)...)
	switch {
	case len(wild) > 0:
		why = list(wild) + " writes what a wildcard is for, and whether another entry is for them is not told"
	case among(isKey):
		why = "others are under a key in the file, of which no apiserver tells"
	case among(func(f audit.Form) bool { return f.Kind.IsKMS() }):
		why = "others are under KMS, and no apiserver tells that it writes them"
	case resource.Name == secrets:
		why = "no apiserver tells that KMS writes them, and of keys in the file none tells"
	default:
		return
	}
	j.add(Unknown, Problem{What: what + ", and whether they are to be is not known", Why: why + ": " + ofEntries})
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
func (j *judge) readable(resource, stored string, c audit.Count) bool {
	form := c.Form
	keyIDs, told, complete := map[string]bool{}, false, len(j.usable) == len(j.seen.Apiservers)
	for _, i := range j.usable {
		complete = complete && i.Complete
		if p, has := i.Providers[form.Name]; has && !p.Silent {
			told = true
			keyIDs[p.KeyID] = true
		}
	}
	lost := map[bool]Verdict{true: NotWell, false: Unknown}[complete]
	about := Problem{Provider: form.Name, Why: "put the provider back, to read with, and have them rewritten, with atrest migrate"}
	switch {
	case !told && complete:
		about.What = fmt.Sprintf("%swith %s, which no apiserver has", stored, form.Name)
		j.add(lost, about)
	case !told:
		about.What = fmt.Sprintf("%swith %s, of which no apiserver tells", stored, form.Name)
		j.add(lost, about)
	case form.KeyIDHash == "" && !j.mayBeV1(form.Name): // v1 stores none
		about.What = fmt.Sprintf("%swith KMS v1 %s, and what the apiservers have of that name is of KMS v2", stored, form.Name)
		j.add(lost, about)
	case !j.tellReads(resource, form):
		return j.wasRead(resource, stored, c, keyIDs)
	default:
		return true
	}
	return false
}

// wasRead judges what apiservers do not tell that they read by whether they did: under a
// key_id that no plugin names now that shows what they have in memory, and no more.
func (j *judge) wasRead(resource, stored string, c audit.Count, named map[string]bool) bool {
	with := "with " + c.Name
	if c.KeyIDHash != "" && !named[c.KeyIDHash] {
		with = fmt.Sprintf("under an earlier key_id of %s, %s", c.Name, hashed.Short(c.KeyIDHash))
	}
	r, about := j.read(resource, c), Problem{Provider: c.Name}
	switch {
	case r.Verdict == Well && with == "with "+c.Name:
		return true
	case r.Verdict == Well:
		about.What, about.Why = stored+with+", and whether the key is still there is not known", "one was read, by what an apiserver may have in memory: atrest check FILE --etcd asks the plugin, with FILE as an apiserver has it, and atrest migrate ends it"
		j.add(Unknown, about)
	case r.Verdict == NotWell:
		about.What, about.Why = stored+with+", and cannot be read", r.Why
		j.add(NotWell, about)
	case j.tellNot(resource, c):
		about.What = fmt.Sprintf("%s%s, which no apiserver has for them", stored, with)
		about.Why = fmt.Sprintf("put %s back into the entry of %s, as a KMS provider is in one entry only, and have them rewritten, with atrest migrate, before they are another's", resource, c.Name)
		j.add(NotWell, about)
	case r.Unserved:
		about.What, about.Why = stored+with+", and no API serves them, by which apiservers could be asked", r.Why
		j.add(Unknown, about)
	default:
		about.What, about.Why = stored+with+", and whether they can be read is not known", r.why()
		j.add(Unknown, about)
	}
	return false
}

// mayBeV1 reports whether a provider of some apiserver may be of KMS v1, which names no
// key_id.
func (j *judge) mayBeV1(provider string) bool {
	return slices.ContainsFunc(slices.Collect(maps.Values(j.usable)), func(i rotation.Instance) bool {
		p, has := i.Providers[provider]
		return has && !p.Silent && p.KeyID == ""
	})
}

// writtenWith are the providers that one of the names of a file is written with, as far
// as apiservers tell.
func (j *judge) writtenWith(names ...string) []string {
	var all []string
	for _, i := range j.usable {
		all = append(all, writers(i, names)...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// writers are those of one apiserver.
func writers(i rotation.Instance, names []string) []string {
	var all []string
	for name, p := range i.Providers {
		if p.Told.Role == rotation.RoleWrites && slices.ContainsFunc(names, func(n string) bool { return slices.Contains(p.Told.WritesFor, n) }) {
			all = append(all, name)
		}
	}
	return all
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
