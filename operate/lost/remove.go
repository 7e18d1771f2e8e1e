package lost

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/operate/audit"
	"github.com/kube-atrest/atrest/operate/fleet"
	"github.com/kube-atrest/atrest/operate/migrate"
	"github.com/kube-atrest/atrest/operate/proof"
)

// Apiservers are all of a cluster, as a [github.com/kube-atrest/atrest/operate/fleet.Fleet]
// is.
type Apiservers interface {
	proof.Fleet
	Unreadable(ctx context.Context, r schema.GroupVersionResource, is fleet.Written) error
	Discard(ctx context.Context, r schema.GroupVersionResource, namespace, name string, before func() error) (by string, err error)
}

// Record is what stood in etcd: put there again it is the object that it was.
type Record struct {
	Key string `json:"key"`
	// ModRevision is that of the latest write, and Value what that wrote, still encrypted.
	ModRevision int64  `json:"modRevision"`
	Value       []byte `json:"value"`
}

// Remover has the apiservers delete what is lost. It is for one goroutine.
type Remover struct {
	Apiservers Apiservers
	// Version is in which version a resource is served, as
	// [github.com/kube-atrest/atrest/operate/migrate.Cluster.Version] has it.
	Version func(context.Context, schema.GroupResource) (schema.GroupVersionResource, error)
	// Resources are all that have to be in Etcd, which the APIs of all Apiservers list.
	Resources func(context.Context) ([]schema.GroupResource, error)
	API       proof.API
	APIs      map[string]proof.API
	// Dependents tells who owns what aggregated apiservers serve, as
	// [github.com/kube-atrest/atrest/operate/migrate.Cluster.Dependents] has it.
	Dependents func(ctx context.Context, without []string, each func(by string, r schema.GroupResource, o migrate.Object, owners []metav1.OwnerReference)) error
	Etcd       audit.Store
	// Look found what is lost, with the keys and plugins of Config.
	Look   *Look
	Config *config.Configuration
	// Aggregated are the API groups that other apiservers serve behind these.
	Aggregated []string
	// Others are [Found].Others.
	Others []Object
	// Without are the apiservers that need not be asked, by name. SeparateConfigs has
	// their configurations not compared with Config.
	Without         []string
	SeparateConfigs bool
	// Keep puts a record away before its object is deleted; nothing more is deleted after
	// an error of it.
	Keep func(Record) error
}

// ErrStop is that no more is to be deleted.
var ErrStop = errors.New("nothing more is deleted")

// May is why nothing may be deleted now: something cannot be opened, or nobody
// knows whether it can be; an apiserver is not named, or not of the cluster whose etcd was
// looked into; or one of them does not find each of its plugins well.
func (r *Remover) May(ctx context.Context, a Answer) error {
	if a.Verdict == NotKnown {
		return errors.New("not all can be opened now, and what is merely away is not lost: see that each plugin works, and ask again")
	}
	if err := proof.Named(ctx, r.Apiservers, r.Without); err != nil {
		return err
	}
	uid, err := proof.OneCluster(ctx, r.Apiservers, r.Apiservers.Names())
	if err == nil {
		err = proof.SameCluster("this etcd", r.Look.uid, "the apiservers", uid)
	}
	if err != nil {
		return err
	}
	return r.Well(ctx)
}

// Well is why an apiserver may be unable to read what it can read at another time.
func (r *Remover) Well(ctx context.Context) error {
	told := r.Apiservers.Observe(ctx)
	for _, name := range r.Apiservers.Names() {
		i := told[name]
		switch {
		case i.CheckedAt.IsZero() || i.Problem != "":
			return fmt.Errorf("apiserver %s cannot be seen, or is not well: %s", name, i.Problem)
		case i.Pending != "":
			return fmt.Errorf("apiserver %s has not taken its file into use as it is now: %s", name, i.Pending)
		case i.ConfigHash != r.Config.Hash() && !r.SeparateConfigs:
			return fmt.Errorf("apiserver %s does not tell that it has this configuration in effect: give --config the file that it has, "+
				"or say with --separate-configs that each has one of its own", name)
		}
		for provider, p := range i.Providers {
			if !p.Healthy && !p.Silent {
				return fmt.Errorf("apiserver %s does not find the plugin of %s well: what is merely away is not lost", name, provider)
			}
		}
	}
	return nil
}

// ErrKept is why an object is left of whose kind nothing is ever deleted.
var ErrKept = errors.New("nothing but Secrets and ConfigMaps is deleted, as what belongs to anything else may be deleted with it: restore it or, if nothing does, take it out with etcdctl del")

// Remove deletes a Secret or a ConfigMap, if it still is what it was when it was found lost,
// nothing opens it now, and no apiserver can read it. The error says why it was left; it wraps
// [ErrStop] if what comes next is to be left too. It tells which apiserver deleted it.
func (r *Remover) Remove(ctx context.Context, o Object) (by string, err error) {
	defer func() {
		if err != nil {
			r.Look.owners.left(o, err)
		}
	}()
	switch {
	case !isRemovable(o.Resource):
		return "", ErrKept
	case r.others(o):
		return "", errOthers
	}
	version, err := r.Version(ctx, schema.ParseGroupResource(o.Resource))
	switch {
	case errors.Is(err, migrate.ErrNoResource):
		return "", errors.New("no API serves it, so that none deletes it")
	case err != nil:
		return "", err
	case r.Look.owners.of(o) != "":
		return "", ownerError(r.Look.owners.of(o))
	}
	entry, err := r.again(ctx, o)
	if err != nil {
		return "", err
	}
	if err := r.unreadable(ctx, o); err != nil {
		return "", err
	}
	keep := func() error {
		if err := r.Keep(Record{Key: o.Key, ModRevision: entry.ModRevision, Value: entry.Value}); err != nil {
			return fmt.Errorf("%w, as it cannot be kept: %w", ErrStop, err)
		}
		return nil
	}
	if by, err = r.Apiservers.Discard(ctx, version, o.Namespace, o.Name, keep); err != nil {
		return "", err
	}
	return by, r.gone(ctx, o, by)
}

// Unreadable is why an object is left, which is to be known of all that is lost before an
// apiserver is started anew or anything is deleted: one that runs may read, by what it has in
// memory, what its file does not, and who owns what is left is left, too. It wraps [ErrKept]
// if nobody reads it and nothing like it is ever deleted.
func (r *Remover) Unreadable(ctx context.Context, o Object) error {
	err := r.asked(ctx, o)
	if err == nil && !isRemovable(o.Resource) {
		err = ErrKept
	}
	if err == nil {
		_, err = r.again(ctx, o)
	}
	if err != nil {
		r.Look.owners.left(o, err)
	}
	if errors.Is(err, migrate.ErrNoResource) {
		return ErrKept // nobody reads it now, and whoever is to serve it may later
	}
	return err
}

// asked is why an apiserver may be able to read an object. Of what no API ever serves there
// is nothing to ask.
func (r *Remover) asked(ctx context.Context, o Object) error {
	resource := schema.ParseGroupResource(o.Resource)
	version, err := r.Version(ctx, resource)
	if errors.Is(err, migrate.ErrNoResource) && !audit.HasAPI(resource) {
		return nil
	}
	if err == nil {
		err = r.Apiservers.Unreadable(ctx, version, o.written())
	}
	var reads *fleet.ReadError
	switch is := errors.As(err, &reads); {
	case is && reads.Saved:
		return cmp.Or(r.stored(ctx, o, reads), err)
	case !is && r.others(o):
		return errOthers
	}
	return err
}

// errOthers is why an object is left that apiservers store which are not all asked: what
// leads to them is answered by any one of them.
var errOthers = errors.New("another apiserver stores it, with keys of its own, which is not asked here")

// others reports whether other apiservers than those that are asked store an object.
func (r *Remover) others(o Object) bool {
	return r.Look.walk.Layout.Shares(o.Key) || slices.Contains(r.Aggregated, schema.ParseGroupResource(o.Resource).Group)
}

// Present is an error unless all that the apiservers store is in the etcd that was looked
// into: what is elsewhere may be owned by what is lost. Of that each was seen to read none.
// Who owns what other apiservers store, here and elsewhere, is left from then on.
func (r *Remover) Present(ctx context.Context, lost []Object) error {
	for _, o := range r.Others {
		_ = r.Unreadable(ctx, o) // it is left anyway
	}
	err := r.Dependents(ctx, r.Without, func(by string, of schema.GroupResource, at migrate.Object, owners []metav1.OwnerReference) {
		r.Look.owners.left(Object{Resource: of.String(), Namespace: at.Namespace, Name: at.Name}, &fleet.ReadError{Apiserver: by, Owners: owners})
	})
	if err != nil {
		return err
	}
	resources, err := r.Resources(ctx)
	if err != nil {
		return fmt.Errorf("what the apiservers store cannot be listed: %w", err)
	}
	prover := &proof.Prover{Fleet: r.Apiservers, Etcd: r.Etcd, Layout: r.Look.walk.Layout, API: r.API, APIs: r.APIs}
	for _, o := range lost {
		prover.Unread = append(prover.Unread, schema.ParseGroupResource(o.Resource))
	}
	r.settle(lost)
	return prover.Present(ctx, resources)
}

// settle has all of a namespace left of which something is left that nobody reads: that does not
// tell its owner.
func (r *Remover) settle(lost []Object) {
	for _, o := range lost {
		if r.Look.owners.of(o) != "" {
			r.Look.owners.left(o, ErrKept)
		}
	}
}

func (o Object) written() fleet.Written {
	return fleet.Written{Resource: schema.ParseGroupResource(o.Resource), Namespace: o.Namespace, Name: o.Name, Version: o.modRevision}
}

// unreadable is why an apiserver may be able to read an object, now or at another time: one
// that is not well before or after it was asked may read nothing, and another object no
// more than this one.
func (r *Remover) unreadable(ctx context.Context, o Object) error {
	if err := r.Well(ctx); err != nil {
		return fmt.Errorf("%w: %w", ErrStop, err)
	}
	if err := r.asked(ctx, o); err != nil {
		return err
	}
	if err := r.Well(ctx); err != nil {
		return fmt.Errorf("%w: %w", ErrStop, err)
	}
	return nil
}

// gone is an error unless etcd no longer has an object that an apiserver says it deleted.
func (r *Remover) gone(ctx context.Context, o Object, by string) error {
	entry, err := r.Etcd.Find(ctx, o.Key)
	switch {
	case errors.Is(err, audit.ErrNotFound), err == nil && entry.ModRevision != o.modRevision:
		return nil // or it was made anew
	case err != nil:
		return fmt.Errorf("apiserver %s says that it deleted it, and whether it did is not known: %w", by, err)
	}
	return fmt.Errorf("apiserver %s says that it deleted it, and it is still there: that apiserver has another etcd: %w", by, ErrStop)
}

// again looks at an object once more, and asks each plugin that may open it, whatever it
// answered before.
func (r *Remover) again(ctx context.Context, o Object) (audit.Entry, error) {
	entry, err := r.Etcd.Find(ctx, o.Key)
	switch {
	case errors.Is(err, audit.ErrNotFound):
		return entry, errors.New("it is gone, or not in the etcd in which apiservers look for it")
	case err != nil:
		return entry, err
	case entry.ModRevision != o.modRevision:
		return entry, fmt.Errorf("it was written since, at revision %d", entry.ModRevision)
	}
	switch why, is, err := r.judge(ctx, o, entry); {
	case err != nil:
		return entry, err
	case is == "":
		return entry, errors.New("it opens now")
	case is == isUnknown:
		return entry, fmt.Errorf("whether it opens is not known now: %s", oneLine(why))
	}
	return entry, nil
}

// stored is an error unless what an apiserver has stored again opens: one that writes under a key
// that is gone reads it by its memory alone.
func (r *Remover) stored(ctx context.Context, o Object, by *fleet.ReadError) error {
	entry, err := r.Etcd.Find(ctx, o.Key)
	is := isUnknown
	if err == nil {
		_, is, err = r.judge(ctx, o, entry)
	}
	if err == nil && is == "" {
		return nil
	}
	why := errors.New("nothing here opens that")
	return fmt.Errorf("apiserver %s had it in memory alone and stored it again, and %w: read it out of that one, and do not restart that one before", by.Apiserver, cmp.Or(err, why))
}

// judge asks each key and plugin for an object, whatever it answered before.
func (r *Remover) judge(ctx context.Context, o Object, entry audit.Entry) (why string, is Reason, err error) {
	opener, err := audit.NewOpener(r.Config)
	if err != nil {
		return "", "", err
	}
	defer opener.Close()
	now := &Look{opener: opener, names: r.Look.names, walk: r.Look.walk, NeverRenamed: r.Look.NeverRenamed}
	form, came := audit.Inspect(entry.Value, now.names).Form, outcome{}
	if form.Kind != audit.Undecodable && form.Kind != audit.Unknown {
		came = now.open(ctx, schema.ParseGroupResource(o.Resource), audit.Object{Key: entry.Key, Value: entry.Value})
	}
	why, is = now.judge(form, came)
	return why, is, nil
}
