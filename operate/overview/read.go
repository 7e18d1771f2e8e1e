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

// Read has all apiservers read an object of each resource and form that is stored under
// KMS: that a plugin names a key_id does not show that it unwraps anything. Where one does
// not answer no more is asked.
func (s *Seen) Read(ctx context.Context, p *proof.Prover) {
	if s.Etcd == nil {
		return
	}
	j := judge{seen: *s, usable: map[string]rotation.Instance{}}
	j.all()
	var silent error
	for _, u := range j.untold {
		if silent != nil {
			u.Why = "not asked, as another was not answered for: " + silent.Error()
		} else if err := u.read(ctx, p); !isAnswer(err) {
			silent = err
		}
		s.Etcd.Reads = append(s.Etcd.Reads, u.Read)
	}
}

// isAnswer reports whether an error of reading is that of an apiserver, or none, or about
// the object alone.
func isAnswer(err error) bool {
	var answer apierrors.APIStatus
	return err == nil || errors.As(err, &answer) || errors.Is(err, fleet.ErrAnotherVersion) || errors.Is(err, migrate.ErrNoResource)
}

// untold is what is to be read, by the first object of keys that stays as it was counted.
type untold struct {
	Read
	keys []string
}

// mostTries are how many objects are tried.
const mostTries = 3

func (u *untold) read(ctx context.Context, p *proof.Prover) (err error) {
	for _, u.Key = range u.keys[:min(len(u.keys), mostTries)] {
		if err = p.Reads(ctx, u.Key, u.Form); !errors.Is(err, fleet.ErrAnotherVersion) && !apierrors.IsNotFound(err) {
			break
		}
	}
	u.Unserved = errors.Is(err, migrate.ErrNoResource)
	if err == nil {
		u.Verdict = Well
		return nil
	}
	if u.Why = err.Error(); fleet.IsUnreadable(err) {
		u.Verdict = NotWell
	}
	return err
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

// tellReads reports whether apiservers tell that they read what no API serves, which only a
// wildcard encrypts and nobody can be asked for: the provider is in its entry, and some
// plugin names the key_id now.
func (j *judge) tellReads(resource string, form audit.Form) bool {
	if audit.HasAPI(schema.ParseGroupResource(resource)) {
		return false
	}
	named := false
	for _, i := range j.usable {
		if i.Complete && !slices.Contains(writers(i, wildcards(resource)), form.Name) {
			return false
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
