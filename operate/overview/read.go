package overview

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kube-atrest/atrest/operate/audit"
	"github.com/kube-atrest/atrest/operate/fleet"
	"github.com/kube-atrest/atrest/operate/migrate"
	"github.com/kube-atrest/atrest/operate/proof"
	"github.com/kube-atrest/atrest/operate/rotation"
)

// mostRead is how many objects are read in a look, which is enough for a wildcard.
const mostRead = 100

// Read has all apiservers read an object of each resource and form that is stored under
// KMS and of which they do not tell that they read it.
func (s *Seen) Read(ctx context.Context, p *proof.Prover) {
	if s.Etcd == nil {
		return
	}
	j := judge{seen: *s, usable: map[string]rotation.Instance{}}
	j.all()
	for _, u := range j.untold[:min(len(j.untold), mostRead)] {
		s.Etcd.Reads = append(s.Etcd.Reads, u.read(ctx, p))
	}
}

// untold is what is to be read, by the first object of keys that stays as it was counted.
type untold struct {
	Read
	keys []string
}

// mostTries are how many objects are tried.
const mostTries = 3

func (u untold) read(ctx context.Context, p *proof.Prover) Read {
	var err error
	for _, u.Key = range u.keys[:min(len(u.keys), mostTries)] {
		if err = p.Reads(ctx, u.Key, u.Form); !errors.Is(err, fleet.ErrAnotherVersion) && !apierrors.IsNotFound(err) {
			break
		}
	}
	u.Unserved = errors.Is(err, migrate.ErrNoResource)
	switch {
	case err == nil:
		u.Verdict = Well
		return u.Read
	case fleet.IsUnreadable(err):
		u.Verdict = NotWell
	}
	u.Why = err.Error()
	return u.Read
}

// read is what came of having something read that the apiservers do not tell of.
func (j *judge) read(resource string, c audit.Count) Read {
	for _, r := range j.seen.Etcd.Reads {
		if r.Resource == resource && r.Form == c.Form {
			return r
		}
	}
	r := Read{Resource: resource, Form: c.Form, Verdict: Unknown}
	if len(c.Keys) > 0 {
		r.Key = c.Keys[0]
		j.untold = append(j.untold, untold{r, c.Keys})
	}
	return r
}

// tellReads reports whether all apiservers tell that they read what is stored of a resource
// under KMS: the provider is in the entry that names it, and some plugin names the key_id
// now. What a wildcard is for may be another entry's, of keys in the file, but what no API
// serves, which only a wildcard encrypts and nobody can be asked for.
func (j *judge) tellReads(resource string, form audit.Form) bool {
	named, names := false, []string{resource}
	served := audit.HasAPI(schema.ParseGroupResource(resource))
	if !served {
		names = wildcards(resource)
	}
	for _, i := range j.usable {
		if i.Complete || served {
			if !i.Complete || !slices.Contains(writers(i, names), form.Name) {
				return false
			}
		}
		named = named || i.Providers[form.Name].KeyID == form.KeyIDHash // both are empty of KMS v1
	}
	return named
}

// tellNot reports whether all apiservers tell that they do not read it: what is written
// with the provider is elsewhere, and one of KMS v2 is in one entry only.
func (j *judge) tellNot(resource string, c audit.Count) bool {
	if c.KeyIDHash == "" || c.Beside || len(j.usable) < len(j.seen.Apiservers) {
		return false
	}
	return !slices.ContainsFunc(slices.Collect(maps.Values(j.usable)), func(i rotation.Instance) bool {
		return !i.Complete || i.Providers[c.Name].Told.Role != rotation.RoleWrites || slices.Contains(entry(i, resource), c.Name)
	})
}

// entry are the providers that an apiserver writes a resource with, if no entry without
// KMS is for it: of the names that are for it, the most exact one counts.
func entry(i rotation.Instance, resource string) []string {
	for _, name := range append([]string{resource}, wildcards(resource)...) {
		if with := writers(i, []string{name}); len(with) > 0 {
			return with
		}
	}
	return nil
}

// why is more of what is not known.
func (r Read) why() string {
	return cmp.Or(r.Why, "no apiserver tells it") + ": " + ofEntries
}
