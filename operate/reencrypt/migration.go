package reencrypt

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/operate/audit"
	"github.com/kube-atrest/atrest/operate/migrate"
	"github.com/kube-atrest/atrest/operate/proof"
	"github.com/kube-atrest/atrest/operate/rotation"
)

// Migration brings what is stored in line with a configuration. It is for one
// goroutine and one run: first [Migration.Plan], then [Migration.Carry].
type Migration struct {
	// Config is what the apiservers have in effect, and File what it is called.
	Config *config.Configuration
	File   string
	// Fleet are all apiservers there are, but for those of the names Without.
	Fleet   proof.Fleet
	Without []string
	// APIs are those apiservers by their names, to see what each lists.
	APIs map[string]proof.API
	// Checked says that the plugins are known to decrypt. Without it, the plugin of an
	// apiserver that is the only one is asked: nobody else reads what it wrote.
	Checked bool
	Store   *Store
	// Resources are what is migrated; if there are none, those of the
	// configuration.
	Resources []schema.GroupResource
	// Delegate leaves the rewriting to the cluster's own migrator, which has the
	// time TakeUp to begin.
	Delegate bool
	TakeUp   time.Duration
	Clock    clock.PassiveClock
	Watcher  Watcher

	keyIDs map[string]string // that the apiservers agreed on, by provider
	seen   map[string]rotation.Instance
}

// Watcher is told how a migration goes, by the goroutine of it unless it says
// otherwise.
type Watcher interface {
	// Writing tells that each apiserver is about to write an object, which shows what it
	// stores and where.
	Writing(apiservers []string)
	// Rewriting gives what to call as the rewriting of a resource goes on, which
	// is as [migrate.Options] says, and at its end.
	Rewriting(resource string) (show func(migrate.Progress), end func())
	// Left tells that the migrator of the cluster was given a resource.
	Left(resource, to string)
	// Waiting tells from time to time for how long the end of that was waited for, and
	// whether the migrator has begun.
	Waiting(resource, to string, waited time.Duration, running bool)
	// Failed tells why a resource was not rewritten, while others go on.
	Failed(problem string)
}

// DisagreementError says that apiservers do not agree with the configuration and
// with each other, so that what is rewritten now may be rewritten in vain.
type DisagreementError struct {
	File     string
	Problems []string
}

// Error counts the problems.
func (e *DisagreementError) Error() string {
	problems := "problems"
	if len(e.Problems) == 1 {
		problems = "problem"
	}
	return fmt.Sprintf("the apiservers do not agree with %s and each other, and nothing more is rewritten: %d %s", e.File, len(e.Problems), problems)
}

// ChangedError says that the apiservers went on to other key_ids meanwhile.
type ChangedError struct{ From, To map[string]string }

// Error says which they are.
func (e *ChangedError) Error() string {
	return fmt.Sprintf("the key_id changed meanwhile, from %s to %s: run it again", listed(e.From), listed(e.To))
}

// listed is what a map of key_ids says, in one line.
func listed(keyIDs map[string]string) string {
	var all []string
	for _, provider := range slices.Sorted(maps.Keys(keyIDs)) {
		all = append(all, provider+" "+keyIDs[provider])
	}
	return strings.Join(all, ", ")
}

// rounds is how often what is left is rewritten.
const rounds = 2

// Plan says what is to be rewritten. The error may be a [*DisagreementError].
func (m *Migration) Plan(ctx context.Context) (*Result, error) {
	keyIDs, err := m.agreement(ctx)
	if err != nil {
		return nil, err
	}
	m.keyIDs = keyIDs
	if err := m.identify(ctx); err != nil {
		return nil, err
	}
	report, err := m.count(ctx)
	if err != nil {
		return nil, err
	}
	r := &Result{File: m.File, ConfigHash: m.Config.Hash(), KeyIDs: keyIDs, ToRewrite: []ToRewrite{}}
	for _, resource := range report.Resources {
		of := schema.ParseGroupResource(resource.Name)
		needs := audit.NeedsRewrite(m.Config, of, m.current)
		for _, stored := range resource.Forms {
			if needs(stored.Form) && !stored.Astray {
				r.ToRewrite = append(r.ToRewrite, ToRewrite{resource.Name, stored.Objects, stored.Form, audit.WrittenWith(m.Config, of, m.current)})
			}
		}
	}
	r.look(m, report)
	return r, nil
}

// Carry does what a plan says, and completes it with what was done and what is
// left. What fails for one resource is in the result, and the others go on. The
// error may be a [*DisagreementError] or a [*ChangedError].
func (m *Migration) Carry(ctx context.Context, r *Result) error {
	failed := map[schema.GroupResource]bool{}
	for round := 1; round <= rounds && len(m.open(r.Report, failed)) > 0; round++ {
		for _, resource := range m.open(r.Report, failed) {
			done, err := m.migrate(ctx, resource, round)
			if err != nil {
				return err
			}
			r.Rewritten = append(r.Rewritten, done)
			failed[resource] = done.Problem != ""
		}
		report, err := m.count(ctx)
		if err != nil {
			return err
		}
		r.look(m, report)
	}
	if err := m.unchanged(ctx); err != nil {
		return err
	}
	return m.identify(ctx) // who was another meanwhile, or writes something else, is seen here
}

func (m *Migration) current(provider string) string { return m.keyIDs[provider] }

// agreement is what the apiservers agree on now.
func (m *Migration) agreement(ctx context.Context) (map[string]string, error) {
	m.seen = m.Fleet.Observe(ctx)
	keyIDs, problems := agreed(m.seen, m.Config)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if problems != nil {
		return nil, &DisagreementError{m.File, problems}
	}
	return keyIDs, nil
}

// unchanged is an error if the apiservers no longer write with what is migrated to.
func (m *Migration) unchanged(ctx context.Context) error {
	keyIDs, err := m.agreement(ctx)
	if err == nil && !maps.Equal(keyIDs, m.keyIDs) {
		return &ChangedError{m.keyIDs, keyIDs}
	}
	return err
}

// count walks what is to be migrated: the resources that are named, else those
// of the configuration, and everything if it has wildcards.
func (m *Migration) count(ctx context.Context) (*audit.Report, error) {
	resources, all := m.wanted()
	walked := resources
	if all {
		walked = nil
	}
	report, err := m.Store.Count(ctx, walked)
	if err != nil {
		return nil, err
	}
	if all {
		if resources, err = m.own(ctx, resources); err != nil {
			return nil, err
		}
	}
	if err := m.prover().Present(ctx, resources); err != nil {
		return nil, err
	}
	return report, m.lookedAt(ctx, report)
}

// lookedAt is an error if of what is migrated there is no object at all, or if one that
// is named is neither stored nor served: that proves nothing, and may be a mistake.
func (m *Migration) lookedAt(ctx context.Context, report *audit.Report) error {
	if report.Objects == 0 {
		return fmt.Errorf("%s has no object of what is to be migrated, so nothing is proved: see that the resources are spelled right", m.Store.From)
	}
	for _, r := range m.Resources {
		if objectsOf(report, r) > 0 {
			continue
		}
		if _, err := m.Store.Cluster.Version(ctx, r); err != nil {
			return fmt.Errorf("nothing is stored of %w", err)
		}
	}
	return nil
}

func objectsOf(report *audit.Report, r schema.GroupResource) int64 {
	for _, resource := range report.Resources {
		if resource.Name == r.String() {
			return resource.Objects
		}
	}
	return 0
}

// own are resources, and all that the cluster serves and stores itself.
func (m *Migration) own(ctx context.Context, resources []schema.GroupResource) ([]schema.GroupResource, error) {
	served, err := m.Store.Cluster.Own(ctx)
	if err != nil {
		return nil, fmt.Errorf("the configuration has a wildcard, and what it is for cannot be listed: %w", err)
	}
	for _, r := range served {
		if !slices.Contains(resources, r) {
			resources = append(resources, r)
		}
	}
	return resources, nil
}

// wanted are the resources that are named, here or in the configuration, and
// whether it is for all others too.
func (m *Migration) wanted() (resources []schema.GroupResource, all bool) {
	if m.Resources != nil {
		return m.Resources, false
	}
	for _, rule := range m.Config.Rules() {
		if rule.Resource.Resource == "*" || rule.Resource.Group == "*" {
			all = true
			continue
		}
		resources = append(resources, rule.Resource)
	}
	return resources, all
}

// open are the resources of which something is left to rewrite, without those
// where rewriting failed.
func (m *Migration) open(report *audit.Report, failed map[schema.GroupResource]bool) []schema.GroupResource {
	var all []schema.GroupResource
	for _, resource := range report.Resources {
		r := schema.ParseGroupResource(resource.Name)
		needs := audit.NeedsRewrite(m.Config, r, m.current)
		if !failed[r] && slices.ContainsFunc(resource.Forms, func(c audit.Count) bool { return needs(c.Form) && !c.Astray }) {
			all = append(all, r)
		}
	}
	return all
}

// migrate rewrites a resource. What failed for itself is told of, and the others
// go on; err is what ends it all.
func (m *Migration) migrate(ctx context.Context, resource schema.GroupResource, round int) (Rewritten, error) {
	done := Rewritten{Resource: resource.String(), Round: round}
	if err := m.unchanged(ctx); err != nil {
		return done, err
	}
	began := m.Clock.Now()
	var err error
	if m.Delegate {
		err = m.leave(ctx, resource, round)
	} else {
		err = m.rewrite(ctx, resource, &done.Counts)
	}
	done.Took = m.Clock.Since(began).Round(time.Millisecond).String()
	var incomplete *migrate.IncompleteError
	var given *migrate.FailedError
	switch {
	case errors.As(err, &incomplete), errors.As(err, &given), errors.Is(err, migrate.ErrUnreadable), errors.Is(err, migrate.ErrNoResource):
		done.Problem = err.Error()
		m.Watcher.Failed(done.Problem)
		return done, nil
	}
	return done, err
}

// rewrite has the objects of a resource stored again through the apiserver.
func (m *Migration) rewrite(ctx context.Context, resource schema.GroupResource, counts *migrate.Counts) error {
	show, end := m.Watcher.Rewriting(resource.String())
	defer end()
	return m.Store.Rewrite(ctx, resource, m.goal(resource), audit.NeedsRewrite(m.Config, resource, m.current), func(p migrate.Progress) {
		*counts = p.Counts
		show(p)
	})
}

// goal is what a resource is rewritten for.
func (m *Migration) goal(resource schema.GroupResource) string {
	return audit.WrittenWith(m.Config, resource, m.current).String()
}

// leave has the cluster's own migrator do it.
func (m *Migration) leave(ctx context.Context, resource schema.GroupResource, round int) error {
	delegate, err := m.Store.Cluster.Delegate(ctx)
	if err != nil {
		return err
	}
	version, err := m.Store.version(ctx, resource)
	if err != nil {
		return err
	}
	w := migrate.Wanted{Resource: version, KeyID: m.goal(resource), Round: round, TakeUp: m.TakeUp}
	if keyID := audit.WrittenWith(m.Config, resource, m.current).KeyIDHash; keyID != "" {
		w.KeyID = keyID
	}
	w.Progress = func(waited time.Duration, running bool) {
		m.Watcher.Waiting(resource.String(), w.Name(), waited, running)
	}
	m.Watcher.Left(resource.String(), w.Name())
	return delegate.Migrate(ctx, w)
}
