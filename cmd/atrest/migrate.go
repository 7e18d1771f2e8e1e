package main

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/operate/audit"
	"github.com/kube-atrest/atrest/operate/fleet"
	"github.com/kube-atrest/atrest/operate/migrate"
	"github.com/kube-atrest/atrest/operate/proof"
	"github.com/kube-atrest/atrest/operate/reencrypt"
)

type migrateCommand struct {
	streams
	output    output
	source    sourceFlags
	walk      walkFlags
	how       rewriteFlags
	cluster   clusterFlags
	fleet     fleetFlags
	config    string
	resources []string
	delegate  bool
	takeUp    time.Duration
	dryRun    bool
	checked   bool
	unlooked  bool // into etcd
	goal      string
}

const migrateHelp = `Rewrite the stored objects that are not stored as an encryption configuration
says, and prove that none is left.

1. The apiservers are asked what they have in effect: the configuration has to be
   FILE, and each KMS plugin that is written with has to be healthy and have the
   same key_id everywhere. An apiserver of this project tells it at
   /debug/encryption, any other by its /metrics and /readyz. Name each of them with
   --apiservers: one that the cluster knows of and that is not named is an error,
   unless it is excused with --without-apiservers. If they disagree, nothing is
   rewritten. They are asked again before each resource.
   Then each stores a Secret or ConfigMap in the namespace --canaries, which is
   looked for in etcd and read through every other one, so that it is known that
   this is their etcd and what they write with; and once more at the end. Of a
   resource that alone is written with a provider an object is stored anew instead.
2. etcd is walked for what is to be rewritten: plaintext of what is written
   encrypted, and what is under another key or key_id. --dry-run ends here.
3. Each such object is updated through the apiserver with nothing but its own
   resourceVersion, which has it stored again. Only metadata comes here. A
   conflict is somebody else's update, after which the object is read and
   patched again. --qps bounds the patches.
4. etcd is walked again. What is left because others wrote meanwhile is
   rewritten once more.

With --storage-version-migrations the cluster's own migrator does step 3, by
StorageVersionMigration objects, where the cluster has one.

Ctrl-C may end it at any time, and so may a crash: the same command goes on, as
step 2 leaves out what is done. With --state it does not list again what it
listed, either.

Where etcd cannot be reached, as of a cluster that somebody else runs, every object
of each --resource is updated so with --without-etcd: through the apiserver of
--context, without FILE and --apiservers, and once more until all are left as they
are, as the key may have changed meanwhile. Nothing is proved then, neither
that all apiservers write with the new key nor that what they say is so. With
--state, --goal is a name for what it is for: a run that was interrupted goes on
if it was for the same, in the same cluster by the UID of its namespace
kube-system. The user needs list, get and patch for the resources, and with
--state get for that namespace.

The user of the kubeconfig needs the verbs list, get and patch for the resources,
list and get through each apiserver, get for the nonResourceURLs /debug/encryption,
/metrics and /readyz/*, list for leases in kube-system and for endpointslices in
default, get for the namespace kube-system, and get, create, patch and delete for
secrets and configmaps in the namespace --canaries.

With -o json what goes on is told as objects, one in a line; the last one is what
it came to.

Exit codes:
  0  nothing is left to rewrite; with --dry-run, nothing is to be rewritten; with
     --without-etcd, some were rewritten, and then all that were listed were left
     as the apiserver would write them now, or are gone
  1  something is left, which is listed; or the apiservers do not agree, and
     nothing was rewritten; with --dry-run, something is to be rewritten; with
     --without-etcd, an object was not rewritten, or of a resource there is none,
     or none was stored anew, or some still were at the fourth pass
  2  not migrated, or not proved: wrong flags, an interruption, or FILE, the
     kubeconfig, etcd or the apiserver cannot be read`

func newMigrate(s streams) *cobra.Command {
	m := &migrateCommand{streams: s}
	command := &cobra.Command{
		Use:   "migrate (--config FILE | --without-etcd --resource RESOURCE)",
		Short: "Rewrite what is not stored as the configuration says, and prove it",
		Long:  migrateHelp,
		Example: `  atrest migrate --config encryption.yaml --dry-run
  atrest migrate --config encryption.yaml --apiservers node-1,node-2,node-3 --state /var/lib/atrest
  atrest migrate --config encryption.yaml --resource secrets --qps 20
  atrest migrate --config encryption.yaml --storage-version-migrations
  atrest migrate --without-etcd --resource secrets --state /var/lib/atrest --goal key-2026`,
		Args: arguments(0, ""),
		RunE: func(command *cobra.Command, _ []string) error {
			if m.unlooked {
				return m.sweep(command.Context(), command.Flags())
			}
			return m.run(command.Context())
		},
	}
	flags := command.Flags()
	m.source.addEtcd(flags, "key")
	m.cluster.add(flags)
	m.fleet.add(flags)
	m.walk.add(flags)
	m.how.add(flags)
	m.output.addFlag(flags)
	flags.StringVar(&m.config, "config", "", "the encryption configuration that the apiservers have (required)")
	flags.StringSliceVar(&m.resources, "resource", nil, "rewrite this resource alone, such as secrets or deployments.apps; repeatable, or by commas")
	flags.BoolVar(&m.delegate, "storage-version-migrations", false, "leave the rewriting to the cluster's own migrator")
	flags.DurationVar(&m.takeUp, "take-up", 2*time.Minute, "how long that migrator may take to begin")
	flags.BoolVar(&m.checked, "plugin-checked", false, checkedUsage)
	flags.BoolVar(&m.unlooked, "without-etcd", false, "rewrite every object of each --resource where etcd is out of reach; it proves nothing")
	flags.StringVar(&m.goal, "goal", "", "with --without-etcd and --state: what it is for, by which one run goes on with another")
	flags.BoolVar(&m.dryRun, "dry-run", false, "tell what would be rewritten, and end")
	return command
}

func (m *migrateCommand) check() error {
	switch {
	case m.config == "":
		return usagef("flag --config is missing: name the encryption configuration that the apiservers have; where nobody can see it and etcd: --without-etcd")
	case m.goal != "":
		return usagef("flag --goal goes with --without-etcd: else the key that is written with is the goal")
	case m.walk.list < 1:
		return usagef("flag --list is %d: list at least 1", m.walk.list)
	case m.takeUp <= 0:
		return usagef("flag --take-up is %s: it has to be over 0", m.takeUp)
	}
	return errors.Join(m.how.check(), m.output.check())
}

func (m *migrateCommand) run(ctx context.Context) error {
	if err := m.check(); err != nil {
		return err
	}
	layout, c, err := m.read()
	if err != nil {
		return err
	}
	apiservers, apis, cluster, err := m.all(ctx)
	if err != nil {
		return err
	}
	from, err := m.source.open(ctx)
	if err != nil {
		return err
	}
	defer from.Close()
	run := &reencrypt.Migration{Config: c, File: nameOf(m.config), Fleet: apiservers, APIs: apis, Without: m.fleet.without, Checked: m.checked, Resources: m.parsedResources(),
		Delegate: m.delegate, TakeUp: m.takeUp, Clock: clock.RealClock{}, Watcher: m.watcher(),
		Store: &reencrypt.Store{
			From: from, Walk: m.streams.walk, Cluster: cluster, How: m.how.options(), Checkpoints: migrate.Folder(m.how.state),
			Audit: audit.Options{Layout: layout, Names: audit.NamesIn(c), Rate: m.walk.rate, MaxListed: m.walk.list},
		}}
	m.fleet.warnOfNobody(ctx, m.streams, apiservers, cluster)
	defer m.clean(ctx, apiservers)
	err = m.do(ctx, run)
	if err != nil && ctx.Err() != nil {
		return errors.New("interrupted: the same command goes on, and leaves out what is done")
	}
	return m.explained(err)
}

// read gives the configuration, and refuses resources that nothing is stored of.
func (m *migrateCommand) read() (audit.Layout, *config.Configuration, error) {
	layout, err := m.source.layout()
	if err != nil {
		return layout, nil, err
	}
	c, err := readAny(m.config, m.in)
	if err != nil {
		return layout, nil, err
	}
	for _, resource := range m.parsedResources() {
		if err := named(layout, c, resource); err != nil {
			return layout, nil, err
		}
	}
	m.warnOfNames(layout, c)
	return layout, c, nil
}

// do prints the plan, and what comes of it.
func (m *migrateCommand) do(ctx context.Context, run *reencrypt.Migration) error {
	found, err := run.Plan(ctx)
	if err != nil {
		return err
	}
	m.warnOfGuesses(guesses(run.Config, found.Report))
	if found.DryRun = m.dryRun; m.dryRun {
		return m.concludePlan(found)
	}
	if err := m.tellPlan(found); err != nil {
		return err
	}
	if err := run.Carry(ctx, found); err != nil {
		return err
	}
	return m.conclude(found)
}

// explained is the bad answer that an error is, if it is one.
func (m *migrateCommand) explained(err error) error {
	var disagree *reencrypt.DisagreementError
	var changed *reencrypt.ChangedError
	switch {
	case errors.As(err, &disagree):
		for _, text := range disagree.Problems {
			m.problem(text)
		}
		return badf("%v", err)
	case errors.As(err, &changed):
		return badf("%v", err)
	}
	return err
}

func (m *migrateCommand) parsedResources() []schema.GroupResource {
	var all []schema.GroupResource
	for _, name := range m.resources {
		if r := schema.ParseGroupResource(name); !slices.Contains(all, r) {
			all = append(all, r)
		}
	}
	return all
}

// all are the apiservers that have to agree: those that are named, else the one that
// objects are rewritten through.
func (m *migrateCommand) all(ctx context.Context) (*fleet.Fleet, map[string]proof.API, *migrate.Cluster, error) {
	if len(m.fleet.apiservers) > 0 {
		if err := m.fleet.find(ctx, &m.cluster); err != nil {
			return nil, nil, nil, err
		}
	} else {
		config, err := m.cluster.config("")
		if err != nil {
			return nil, nil, nil, err
		}
		m.fleet.members = []fleet.Member{{Name: cmp.Or(m.cluster.context, config.Host), Config: config}}
	}
	all, err := m.fleet.of(m.fleet.members, fleet.AskingPlugins(), fleet.SeparateServers(m.fleet.separate...))
	if err != nil {
		return nil, nil, nil, err
	}
	apis, err := m.fleet.each()
	if err != nil {
		return nil, nil, nil, err
	}
	through, err := m.fleet.through(&m.cluster)
	if err != nil {
		return nil, nil, nil, err
	}
	cluster, err := migrate.NewCluster(through.Config, clock.RealClock{})
	return all, apis, cluster, err
}
