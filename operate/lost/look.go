package lost

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"reflect"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/envelope"
	"github.com/kube-atrest/atrest/operate/audit"
	"github.com/kube-atrest/atrest/operate/proof"
)

// Look opens what is stored, with the keys and plugins of a configuration. It is for one
// goroutine.
type Look struct {
	opener *audit.Opener
	names  audit.Names
	walk   audit.Options
	uid    string // of the cluster
	owners owners // of what opens, and of what apiservers read

	// NeverRenamed are the keys and providers that have always had the name that they have now:
	// they are not asked for what is stored under another one.
	NeverRenamed []string
}

// NewLook opens with an opener, which was made of c. walk says how objects are walked.
func NewLook(opener *audit.Opener, c *config.Configuration, walk audit.Options) *Look {
	l := &Look{opener: opener, names: audit.NamesIn(c), walk: walk, owners: owners{}}
	l.walk.Names = l.names
	return l
}

// outcome is what came of one object.
type outcome struct {
	plaintext []byte
	with      schema.GroupResource
	as        string // the name that it has now, of what opens it
	taken     bool   // another has its name of then
	err       error
	away      error // of keys and plugins by themselves, if one of them may open it at another time
}

// run walks, opens what is wanted, and tells of each of these its etcd key, resource and
// form.
func (l *Look) run(ctx context.Context, from audit.Source, wanted func(key string) bool, each func(o Object, came outcome)) (*audit.Report, error) {
	var last outcome
	var now audit.Object
	walk := l.walk
	walk.Open = func(ctx context.Context, r schema.GroupResource, object audit.Object) error {
		last = outcome{}
		if wanted(object.Key) && object.Astray == "" {
			last = l.open(ctx, r, object)
		}
		return last.err
	}
	walk.Each = func(r schema.GroupResource, key string, form audit.Form) {
		if wanted(key) {
			each(Object{Key: key, Resource: r.String(), Form: form, modRevision: now.ModRevision, astray: now.Astray}, last)
		}
		last = outcome{}
	}
	report, err := audit.Run(ctx, noting{from, func(o audit.Object) { now = o }}, walk)
	if err == nil {
		err = report.NotEmpty()
	}
	return report, err
}

// noting is a source that tells of each object before it is looked at.
type noting struct {
	audit.Source
	note func(audit.Object)
}

// Read is that of the source.
func (n noting) Read(ctx context.Context, prefix string) (*audit.Contents, error) {
	contents, err := n.Source.Read(ctx, prefix)
	if err != nil {
		return nil, err
	}
	all := contents.Objects
	contents.Objects = func(yield func(audit.Object, error) bool) {
		for object, err := range all {
			if n.note(object); !yield(object, err) {
				return
			}
		}
	}
	return contents, nil
}

// open opens an object by all means that the configuration has: what is under a name may be under a
// key or a plugin that has another one now.
func (l *Look) open(ctx context.Context, r schema.GroupResource, object audit.Object) (o outcome) {
	o.plaintext, o.with, o.err = l.opener.Anyhow(ctx, r, object)
	form := audit.Inspect(object.Value, l.names).Form
	switch {
	case o.err == nil, errors.Is(o.err, audit.ErrNotTried):
		return o
	case form.Kind == audit.Plaintext: // without identity among the providers
		o.plaintext = object.Value
		return o
	}
	var err error
	o.taken = l.has(form)
	if o.plaintext, o.as, err = l.opener.ByItself(ctx, r, object, l.NeverRenamed...); errors.Is(err, envelope.ErrUnavailable) {
		o.err, o.away = errors.Join(err, o.err), err
	}
	return o
}

// Cluster opens every object of a cluster. It remembers what is lost, and of all else a
// hash of the etcd key, and of each owner one object that it owns.
func (l *Look) Cluster(ctx context.Context, from audit.Source) (*Found, *audit.Report, error) {
	f := &Found{Layout: l.walk.Layout, Copies: map[string]Copy{}}
	seed, there := maphash.MakeSeed(), map[uint64]struct{}{}
	f.There = func(key string) bool { _, is := there[maphash.String(seed, key)]; return is }
	everything := func(string) bool { return true }
	report, err := l.run(ctx, from, everything, func(o Object, came outcome) {
		why, state := l.judge(o.Form, came)
		switch {
		case o.astray != "":
			f.addMisplaced(o, came)
		case state == isUnknown:
			f.addUnknown(o, "", why, came.err)
		case state == notJudged:
			f.Unjudged++
			f.Others = append(f.Others, objectAt(f.Layout, o.Key))
		case state != "":
			is := objectAt(f.Layout, o.Key)
			is.Form, is.Reason, is.modRevision = o.Form, state, o.modRevision
			f.Lost = append(f.Lost, is)
		default:
			there[maphash.String(seed, o.Key)] = struct{}{}
			f.addMisplaced(o, came)
			l.owners.opens(objectAt(f.Layout, o.Key), came.plaintext)
			if o.Key == l.walk.Layout.OfCluster() {
				l.uid = factsOf(came.plaintext).UID
			}
		}
	})
	return f, report, err
}

// isUnknown is the reason of what may open at another time.
const isUnknown Reason = "unknown"

// notJudged is the reason of what another apiserver's configuration may open.
const notJudged Reason = "not judged"

// judge says why an object is lost, if it is.
func (l *Look) judge(form audit.Form, came outcome) (why string, is Reason) {
	switch {
	case form.Kind == audit.Unknown:
		return "nothing here knows this form: another version of Kubernetes may", isUnknown
	case form.Kind == audit.Undecodable:
		return "", Damaged
	case form.Kind == audit.Plaintext:
		return "", ""
	case errors.Is(came.err, audit.ErrNotTried):
		return "", notJudged
	case came.err == nil, came.as != "":
		return "", ""
	case errors.Is(came.err, envelope.ErrUnavailable):
		return whoIsAway(cmp.Or(came.away, came.err)), isUnknown
	case errors.Is(came.err, envelope.ErrUnknownKEK), errors.Is(came.err, envelope.ErrForeignDEK):
		return "", UnknownKey
	case errors.Is(came.err, envelope.ErrCorrupt):
		return "", Damaged
	case !l.has(form):
		return "", NoKey
	}
	return came.err.Error(), isUnknown
}

// has reports whether the configuration has a provider of a form, for whatever resource.
func (l *Look) has(form audit.Form) bool {
	for _, name := range l.names[form.Kind] {
		if name == form.Name {
			return true
		}
	}
	return false
}

// Backup opens what a backup has of the objects of f that are lost, and adds it to f. made
// is the time of its file.
func (l *Look) Backup(ctx context.Context, f *Found, name string, made time.Time, from audit.Source) error {
	lost, uid, copies := map[string]bool{}, "", map[string]Copy{}
	for _, o := range f.Lost {
		lost[o.Key] = true
	}
	wanted := func(key string) bool { return lost[key] || key == l.walk.Layout.OfCluster() }
	report, err := l.run(ctx, from, wanted, func(o Object, came outcome) {
		why, state := l.judge(o.Form, came)
		switch {
		case o.Key == l.walk.Layout.OfCluster() && state == "":
			uid = factsOf(came.plaintext).UID
		case state == isUnknown && lost[o.Key]:
			f.addUnknown(o, name, why, audit.ErrNotAsked)
		}
		if state == "" && came.as == "" && lost[o.Key] {
			copies[o.Key] = Copy{Backup: name, Facts: factsOf(came.plaintext)}
		}
	})
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	switch err := proof.SameCluster(name, uid, "what was looked at", l.uid); {
	case errors.Is(err, proof.ErrNoUID):
		f.Notes = append(f.Notes, err.Error()+": see to it before you restore from it")
	case err != nil:
		return err
	}
	f.Backups++
	for key, c := range copies {
		f.Copies[key] = f.later(f.Copies[key], c.Facts, dated{name, report.Revision, made})
	}
	return nil
}

// later is the copy of the latest backup, with one more that has it. Where it is not known
// which that is, what they do not agree upon is not known either.
func (f *Found) later(c Copy, facts Facts, d dated) Copy {
	c.among = append(c.among, d)
	why := disagreeing(c.among)
	if why != "" && !slices.Contains(f.Notes, why) {
		f.Notes = append(f.Notes, why)
	}
	slices.SortStableFunc(c.among, dated.compare)
	switch {
	case why != "":
		var names []string
		for _, d := range c.among {
			names = append(names, d.name)
		}
		c.Backup, c.Revision = strings.Join(names, " or "), 0
		if !reflect.DeepEqual(c.Facts, facts) {
			c.Facts = Facts{}
		}
	case c.among[0] == d:
		c.Backup, c.Revision, c.Facts = d.name, d.revision, facts
	}
	return c
}

func (f *Found) addUnknown(o Object, where, why string, err error) {
	i := slices.IndexFunc(f.Unknown, func(u Unknown) bool { return u.Resource == o.Resource && u.Form == o.Form && u.Where == where })
	if i < 0 {
		i = len(f.Unknown)
		f.Unknown = append(f.Unknown, Unknown{Resource: o.Resource, Form: o.Form, Where: where, Why: oneLine(why)})
	}
	u := &f.Unknown[i]
	if u.Objects++; !errors.Is(err, audit.ErrNotAsked) && len(u.Keys) < maxUnknownKeys {
		u.Keys = append(u.Keys, o.Key)
	}
}

// maxAnswer bounds what is repeated of the answer of one of several plugins, in bytes.
const maxAnswer = 400

// whoIsAway is what the plugins answered that may open an object at another time, each for itself.
func whoIsAway(err error) string {
	var all []string
	for _, one := range each(err) {
		if text := one.Error(); errors.Is(one, envelope.ErrUnavailable) && !slices.Contains(all, text) {
			all = append(all, text)
		}
	}
	for i, text := range all {
		if len(all) > 1 && len(text) > maxAnswer {
			all[i] = text[:maxAnswer] + "..."
		}
	}
	return strings.Join(all, "; ")
}

// each are the errors that were joined.
func each(err error) (all []error) {
	joined, is := err.(interface{ Unwrap() []error })
	if !is || !strings.Contains(err.Error(), "\n") { // which has them in lines
		return []error{err}
	}
	for _, one := range joined.Unwrap() {
		all = append(all, each(one)...)
	}
	return all
}

// maxWhy bounds an error that is repeated, in bytes.
const maxWhy = 2048

func oneLine(text string) string {
	if len(text) > maxWhy {
		text = text[:maxWhy] + "..."
	}
	return strings.ToValidUTF8(strings.ReplaceAll(text, "\n", "; "), "?")
}

// addMisplaced counts an object that opens, if its own providers do not open it, or one
// that is astray.
func (f *Found) addMisplaced(o Object, came outcome) {
	is := Misplaced{Resource: o.Resource, Form: o.Form, As: came.as, Taken: came.as != "" && came.taken, Astray: o.astray}
	switch {
	case o.astray != "":
	case came.err == nil && came.with.String() == o.Resource:
		return
	case came.err == nil && o.Kind != audit.Plaintext:
		is.With = came.with.String()
	}
	for i, m := range f.Misplaced {
		if is.Objects = m.Objects; m == is {
			f.Misplaced[i].Objects++
			return
		}
	}
	is.Objects = 1
	f.Misplaced = append(f.Misplaced, is)
}
