package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/operate/audit"
	"github.com/kube-atrest/atrest/operate/fleet"
	"github.com/kube-atrest/atrest/operate/migrate"
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
}

const migrateHelp = `Rewrite the stored objects that are not stored as an encryption configuration
says, and prove that none is left.

1. The apiservers are asked what they have in effect: the configuration has to be
   FILE, and each KMS plugin that is written with has to be healthy and have the
   same key_id everywhere. An apiserver of this project tells it at
   /debug/encryption, any other by its /metrics and /readyz. Name each of them with
   --apiservers: of one that is not named, nothing is known. If they disagree,
   nothing is rewritten. They are asked again before each resource.
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

The user of the kubeconfig needs the verbs list, get and patch for the resources,
and get for the nonResourceURLs /debug/encryption, /metrics and /readyz/*.

Exit codes:
  0  nothing is left to rewrite; with --dry-run, nothing is to be rewritten
  1  something is left, which is listed; or the apiservers do not agree, and
     nothing was rewritten; with --dry-run, something is to be rewritten
  2  not migrated, or not proved: wrong flags, an interruption, or FILE, the
     kubeconfig, etcd or the apiserver cannot be read`

func newMigrate(s streams) *cobra.Command {
	m := &migrateCommand{streams: s}
	command := &cobra.Command{
		Use:   "migrate --config FILE",
		Short: "Rewrite what is not stored as the configuration says, and prove it",
		Long:  migrateHelp,
		Example: `  atrest migrate --config encryption.yaml --dry-run
  atrest migrate --config encryption.yaml --apiservers node-1,node-2,node-3 --state /var/lib/atrest
  atrest migrate --config encryption.yaml --resource secrets --qps 20
  atrest migrate --config encryption.yaml --storage-version-migrations`,
		Args: arguments(0, ""),
		RunE: func(command *cobra.Command, _ []string) error { return m.run(command.Context()) },
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
	flags.BoolVar(&m.dryRun, "dry-run", false, "tell what would be rewritten, and end")
	return command
}

func (m *migrateCommand) check() error {
	switch {
	case m.config == "":
		return usagef("flag --config is missing: name the encryption configuration that the apiservers have")
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
	layout, err := m.source.layout()
	if err != nil {
		return err
	}
	c, err := readAny(m.config, m.in)
	if err != nil {
		return err
	}
	through, err := m.through()
	if err != nil {
		return err
	}
	cluster, err := migrate.NewCluster(through, clock.RealClock{})
	if err != nil {
		return err
	}
	apiservers, err := m.all(through)
	if err != nil {
		return err
	}
	from, err := m.source.open(ctx)
	if err != nil {
		return err
	}
	defer from.Close()
	r := &rewriter{streams: m.streams, from: from, layout: layout, names: audit.NamesIn(c), walk: m.walk, cluster: cluster, how: m.how}
	run := &migration{migrateCommand: m, config: c, apiservers: apiservers, rewriter: r}
	err = run.do(ctx)
	if err != nil && ctx.Err() != nil {
		return errors.New("interrupted: the same command goes on, and leaves out what is done")
	}
	return err
}

// through is the apiserver that objects are rewritten through.
func (m *migrateCommand) through() (*rest.Config, error) {
	if m.cluster.context == "" && len(m.fleet.apiservers) > 0 {
		return m.cluster.config(m.fleet.apiservers[0])
	}
	return m.cluster.config("")
}

// all are the apiservers that have to agree: those that are named, else that one.
func (m *migrateCommand) all(through *rest.Config) (*fleet.Fleet, error) {
	if len(m.fleet.apiservers) > 0 {
		return m.fleet.open(&m.cluster)
	}
	return fleet.New([]fleet.Member{{Name: cmp.Or(m.cluster.context, through.Host), Config: through}}, clock.RealClock{})
}

// migration is one run of the command.
type migration struct {
	*migrateCommand
	config     *config.Configuration
	apiservers *fleet.Fleet
	rewriter   *rewriter
	// keyIDs are what the apiservers agree on, by provider.
	keyIDs map[string]string
	found  migrated
}

// rounds is how often what is left is rewritten.
const rounds = 2

func (m *migration) do(ctx context.Context) error {
	keyIDs, err := m.agreement(ctx)
	if err != nil {
		return err
	}
	m.keyIDs = keyIDs
	before, err := m.count(ctx)
	if err != nil {
		return err
	}
	m.found.plan(m, before)
	if m.dryRun {
		return m.concludePlan()
	}
	if err := m.announce(); err != nil {
		return err
	}
	left, failed := before, map[schema.GroupResource]bool{}
	for round := 1; round <= rounds && len(m.open(left, failed)) > 0; round++ {
		for _, resource := range m.open(left, failed) {
			if failed[resource], err = m.migrate(ctx, resource, round); err != nil {
				return err
			}
		}
		if left, err = m.count(ctx); err != nil {
			return err
		}
	}
	if err := m.unchanged(ctx); err != nil {
		return err
	}
	return m.conclude(left)
}

func (m *migration) current(provider string) string { return m.keyIDs[provider] }

// agreement is what the apiservers agree on now.
func (m *migration) agreement(ctx context.Context) (map[string]string, error) {
	keyIDs, problems := agreed(m.apiservers.Observe(ctx), m.config)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for _, text := range problems {
		m.problem(text)
	}
	if problems != nil {
		return nil, badf("the apiservers do not agree with %s and each other, and nothing more is rewritten: %s", nameOf(m.migrateCommand.config), counted(len(problems), "problem"))
	}
	return keyIDs, nil
}

// unchanged reports whether the apiservers still write with what is migrated to.
func (m *migration) unchanged(ctx context.Context) error {
	keyIDs, err := m.agreement(ctx)
	if err == nil && !maps.Equal(keyIDs, m.keyIDs) {
		return badf("the key_id changed meanwhile, from %s to %s: run it again", listed(m.keyIDs), listed(keyIDs))
	}
	return err
}

// count walks what is to be migrated: the resources that are named, else those
// of the configuration, and everything if it has wildcards.
func (m *migration) count(ctx context.Context) (*audit.Report, error) {
	var resources []schema.GroupResource
	for _, name := range m.resources {
		resources = append(resources, schema.ParseGroupResource(name))
	}
	if resources != nil {
		return m.rewriter.count(ctx, resources)
	}
	for _, rule := range m.config.Rules() {
		if rule.Resource.Resource == "*" || rule.Resource.Group == "*" {
			return m.rewriter.count(ctx, nil)
		}
		resources = append(resources, rule.Resource)
	}
	return m.rewriter.count(ctx, resources)
}

// open are the resources of which something is left to rewrite, without those
// where rewriting failed.
func (m *migration) open(report *audit.Report, failed map[schema.GroupResource]bool) []schema.GroupResource {
	var all []schema.GroupResource
	for _, resource := range report.Resources {
		r := schema.ParseGroupResource(resource.Name)
		needs := audit.NeedsRewrite(m.config, r, m.current)
		for _, stored := range resource.Forms {
			if needs(stored.Form) && !failed[r] {
				all = append(all, r)
				break
			}
		}
	}
	return all
}

// migrate rewrites a resource. What failed for itself is told of, and the others
// go on; err is what ends it all.
func (m *migration) migrate(ctx context.Context, resource schema.GroupResource, round int) (failed bool, err error) {
	if err := m.unchanged(ctx); err != nil {
		return false, err
	}
	done := rewritten{Resource: resource.String(), Round: round}
	began := time.Now()
	if m.delegate {
		err = m.leave(ctx, resource, round)
	} else {
		err = m.rewrite(ctx, resource, &done.Counts)
	}
	done.Took = time.Since(began).Round(time.Millisecond).String()
	var incomplete *migrate.IncompleteError
	var given *migrate.FailedError
	switch {
	case errors.As(err, &incomplete), errors.As(err, &given), errors.Is(err, migrate.ErrUnreadable), errors.Is(err, errNotServed):
		done.Problem = err.Error()
		m.warn("%s", printable(done.Problem))
	case err != nil:
		return false, err
	}
	m.found.Rewritten = append(m.found.Rewritten, done)
	return done.Problem != "", nil
}

// rewrite has the objects of a resource stored again through the apiserver.
func (m *migration) rewrite(ctx context.Context, resource schema.GroupResource, counts *migrate.Counts) error {
	show, end := rewriting(m.err, resource.String())
	defer end()
	return m.rewriter.rewrite(ctx, resource, m.goal(resource), audit.NeedsRewrite(m.config, resource, m.current), func(p migrate.Progress) {
		*counts = p.Counts
		show(p)
	})
}

// goal is what a resource is rewritten for.
func (m *migration) goal(resource schema.GroupResource) string {
	return audit.WrittenWith(m.config, resource, m.current).String()
}

// leave has the cluster's own migrator do it.
func (m *migration) leave(ctx context.Context, resource schema.GroupResource, round int) error {
	delegate, err := m.rewriter.cluster.Delegate(ctx)
	if err != nil {
		return err
	}
	version, err := m.rewriter.version(ctx, resource)
	if err != nil {
		return err
	}
	w := migrate.Wanted{Resource: version, KeyID: m.goal(resource), Round: round, TakeUp: m.takeUp}
	if keyID := audit.WrittenWith(m.config, resource, m.current).KeyIDHash; keyID != "" {
		w.KeyID = keyID
	}
	fmt.Fprintf(m.err, "%s: left to storageversionmigration %s\n", resource, w.Name())
	return delegate.Migrate(ctx, w)
}
