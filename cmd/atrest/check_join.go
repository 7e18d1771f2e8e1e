package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/operate/audit"
	"github.com/kube-atrest/atrest/operate/fleet"
	"github.com/kube-atrest/atrest/operate/migrate"
	"github.com/kube-atrest/atrest/operate/overview"
	"github.com/kube-atrest/atrest/operate/preflight"
	"github.com/kube-atrest/atrest/operate/proof"
	"github.com/kube-atrest/atrest/operate/rotation"
)

// joinFlags say which apiservers one with the file is to join.
type joinFlags struct {
	wanted, separate bool
	cluster          clusterFlags
	fleet            fleetFlags
}

func (j *joinFlags) add(flags *pflag.FlagSet) {
	flags.BoolVar(&j.wanted, "join", false, "tell whether an apiserver with FILE may join those of --apiservers")
	flags.BoolVar(&j.separate, "separate-configs", false, "with --join: each apiserver has a configuration of its own, as for a socket of its own: do not compare them")
	j.cluster.add(flags)
	j.fleet.addAsked(flags)
}

func (c *checkCommand) checkJoin() error {
	switch {
	case !c.join.wanted && len(c.join.fleet.apiservers) > 0:
		return usagef("flag --apiservers needs --join, which compares FILE with theirs")
	case !c.join.wanted:
		return nil
	case c.offline:
		return usagef("flags --join and --offline: whether this node reaches the plugins is what --join is about")
	case c.source.snapshot != "":
		return usagef("flags --join and --snapshot: what was written since is not in a file: say --etcd or --endpoints")
	case !c.source.wanted():
		return usagef("flag --join needs --etcd or --endpoints, to see whether FILE has every key that something is stored with")
	}
	return nil
}

// joins compares what an apiserver with the file would tell with what the others tell, and
// sees that the objects that were looked at are all that they have.
func (c *checkCommand) joins(ctx context.Context, file *config.Configuration, layout audit.Layout, f *checked) error {
	j := &c.join
	all, err := j.fleet.open(ctx, &j.cluster, fleet.AskingPlugins())
	if err != nil {
		return err
	}
	before := len(f.Problems) + len(f.Unknown)
	seen := overview.Look(ctx, all, j.fleet.without, clock.RealClock{}, nil)
	seen.SeparateConfigs = j.separate
	f.Join = all.Names()
	for _, p := range overview.Join(seen, wouldTell(file, f.Plugins)) {
		if p.Verdict == overview.NotWell {
			f.Problems = append(f.Problems, p.String())
		} else {
			f.Unknown = append(f.Unknown, p.String())
		}
	}
	f.compareCluster(ctx, all)
	if len(f.Problems)+len(f.Unknown) == before { // else one may not be asked, or of another cluster
		if err := c.present(ctx, file, layout, all); err != nil {
			f.Unknown = append(f.Unknown, "whether FILE reads all that the others store: "+err.Error())
		}
	}
	f.untold(file, j.separate)
	f.separate = j.separate
	return nil
}

// present is an error if something that the file is about is not in the etcd that was
// looked into.
func (c *checkCommand) present(ctx context.Context, file *config.Configuration, layout audit.Layout, all *fleet.Fleet) error {
	to, err := c.join.fleet.through(&c.join.cluster)
	if err != nil {
		return err
	}
	cluster, err := migrate.NewCluster(to.Config, clock.RealClock{})
	if err != nil {
		return err
	}
	apis, err := c.join.fleet.each()
	if err != nil {
		return err
	}
	from, err := c.source.open(ctx)
	if err != nil {
		return err
	}
	defer from.Close()
	var named, served []schema.GroupResource
	for _, rule := range file.Rules() {
		if rule.Resource.Resource != "*" {
			named = append(named, rule.Resource)
		} else if served, err = cluster.Own(ctx); err != nil {
			return err
		}
	}
	prover := &proof.Prover{Fleet: all, Etcd: from, APIs: apis, Layout: layout}
	return prover.Present(ctx, slices.Concat(named, served))
}

// compareCluster sees that the objects that were looked at are those of the apiservers.
func (f *checked) compareCluster(ctx context.Context, all *fleet.Fleet) {
	theirs, err := proof.OneCluster(ctx, all, all.Names())
	if err != nil { // if they differ, that is a problem that is told already
		f.Unknown = append(f.Unknown, err.Error())
		return
	}
	err = proof.SameCluster("this etcd", f.uid, "the apiservers", theirs)
	switch {
	case errors.Is(err, proof.ErrNoUID):
		f.Unknown = append(f.Unknown, err.Error())
	case err != nil:
		f.Problems = append(f.Problems, err.Error())
	}
}

// clusterIn is the UID of the cluster whose objects a store holds, empty if it cannot be
// read.
func clusterIn(ctx context.Context, from audit.Store, opener *audit.Opener, layout audit.Layout) string {
	entry, err := from.Find(ctx, layout.OfCluster())
	if err != nil {
		return ""
	}
	plaintext, err := opener.Plaintext(ctx, schema.GroupResource{Resource: "namespaces"}, audit.Object{Key: entry.Key, Value: entry.Value})
	if err != nil {
		return ""
	}
	meta, _ := audit.Metadata(plaintext)
	return string(meta.UID)
}

// wouldTell is what an apiserver with a file tells of itself, once it runs.
func wouldTell(file *config.Configuration, plugins []preflight.Result) rotation.Instance {
	i := rotation.Instance{ConfigHash: file.Hash(), Providers: map[string]rotation.Provider{}}
	for _, p := range file.Providers() {
		name := p.KMS().Name
		if name == "" {
			continue
		}
		told := rotation.Provider{Told: rotation.Told{Role: rotation.RoleReads}}
		if n := slices.IndexFunc(plugins, func(r preflight.Result) bool { return slices.Contains(r.Names, name) }); n >= 0 {
			told.KeyID = plugins[n].KeyIDHash
		}
		if p.Writes() {
			told.Told.Role = rotation.RoleWrites
		}
		for _, rule := range file.Rules() {
			if rule.Providers[0] == p {
				told.Told.WritesFor = append(told.Told.WritesFor, rule.Name())
			}
		}
		i.Providers[name] = told
	}
	return i
}

// untold adds what no apiserver tells of itself and that decides whether the others read
// what one with the file writes.
func (f *checked) untold(file *config.Configuration, separate bool) {
	for _, rule := range file.Rules() {
		switch first := rule.Providers[0]; {
		case first.Kind() == config.KMSv1:
			f.Unknown = append(f.Unknown, fmt.Sprintf("whether the others read what is written with KMS v1 %q of %s: no plugin of KMS v1 tells which key it has",
				first.KMS().Name, rule.Name()))
		case first.Kind() == config.KMSv2 && !f.hasOpenedAs(first.KMS().Name):
			f.Unknown = append(f.Unknown, fmt.Sprintf("whether the others read what is written with %q of %s: nothing that this node has opened is stored under its key_id, "+
				"and plugins of different keys may name the same: write one through another apiserver, and ask again", first.KMS().Name, rule.Name()))
		case separate && first.KMS().Name == "":
			f.Unknown = append(f.Unknown, fmt.Sprintf("whether the others store %s with %s too: no apiserver tells of what is in its file alone; without --separate-configs the files are compared",
				rule.Name(), meansOf(first)[0]))
		}
	}
}

func (f *checked) printJoin(w io.Writer) {
	if f.Join == nil || !f.Usable {
		return
	}
	fmt.Fprintf(w, "may join: %s\n", strings.Join(f.Join, ", "))
	if f.separate {
		fmt.Fprintln(w, "  as far as they tell: whether their files write with a key of their own that FILE lacks is not seen before something is stored with it")
	}
}
