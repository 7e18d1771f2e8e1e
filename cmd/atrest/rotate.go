package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"

	"github.com/kube-atrest/atrest/operate/fleet"
	"github.com/kube-atrest/atrest/operate/migrate"
	"github.com/kube-atrest/atrest/operate/rotation"
	"github.com/kube-atrest/atrest/operate/rotation/drive"
)

const rotateHelp = `Rotate the key that everything is encrypted under, and prove it.

  atrest rotate two-plugins   From one KMS plugin to another: the new version of
                              the key is behind a plugin of its own.
  atrest rotate one-plugin    To the new key_id of a plugin that changed it.

Each is a plan, which --plan prints and ends. Between two of its steps is a gate:
what each apiserver says of itself, or what an audit of etcd counts, and never a
time that has passed. What is waited for is told with names.

Nothing is lost if this ends at any point, by Ctrl-C or kill -9 or with the
machine: the same command goes on. It keeps its state in the folder --state, and
beside it the configuration files as they were.

The apiservers are contexts of a kubeconfig, one for each apiserver there is and
with its own address, as any of them that is left out may write under the old
key unseen. Objects are rewritten through --context, which may be a load balancer.
The user needs get on the nonResourceURLs /debug/encryption, /metrics and
/readyz/*; list, get and patch on what is encrypted; and, to see what an idle
apiserver writes with, create, patch and delete on Secrets or ConfigMaps in the
namespace of --canaries. With post on the nonResourceURL /debug/encryption/ask a
new key_id is known within seconds; without it, within a minute or so.

Exit codes:
  0  finished, or the plan was printed
  1  not finished: --timeout is over, or it was interrupted
  2  it could not begin or go on: wrong flags, or something cannot be read`

// rotate is what both kinds of rotation are told and do.
type rotate struct {
	streams
	output  output
	cluster clusterFlags
	fleet   fleetFlags
	source  sourceFlags
	walk    walkFlags
	how     rewriteFlags

	config, hook    string
	plan            bool
	hold, maxAge    time.Duration
	retry, interval time.Duration
	timeout         time.Duration
	canaries        string

	flags *pflag.FlagSet
}

func newRotate(s streams) *cobra.Command {
	command := &cobra.Command{
		Use:   "rotate",
		Short: "Rotate the key that everything is encrypted under, and prove it",
		Long:  rotateHelp,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("no rotation %q: there are two-plugins and one-plugin", args[0])
			}
			return nil
		},
		RunE: func(*cobra.Command, []string) error {
			return usagef("which rotation: there are two-plugins and one-plugin")
		},
	}
	command.AddCommand(newTwoPlugins(s), newOnePlugin(s))
	return command
}

func (r *rotate) add(flags *pflag.FlagSet) {
	r.flags = flags
	r.cluster.add(flags)
	r.fleet.add(flags)
	r.source.addEtcd(flags, "key")
	r.walk.add(flags)
	r.how.add(flags)
	flags.Lookup("state").Usage = "folder that the rotation keeps its state in; the same one goes on with it"
	r.output.addFlag(flags)
	flags.StringVar(&r.config, "config", "", "encryption configuration of the apiservers; "+placeholder+" in it stands for the name of each")
	flags.StringVar(&r.hook, "config-hook", "", "program that reaches the configurations instead: PROGRAM read NAME prints one, PROGRAM write NAME takes one from standard input")
	flags.BoolVar(&r.plan, "plan", false, "print the steps, and how far they are, and do nothing")
	flags.DurationVar(&r.hold, "hold", time.Duration(rotation.DefaultHold), "for how long all apiservers have to agree before anything is rewritten")
	flags.DurationVar(&r.maxAge, "max-age", time.Duration(rotation.DefaultMaxAge), "how old the answer of an apiserver may be")
	flags.DurationVar(&r.retry, "retry-after", time.Duration(rotation.DefaultRetryAfter), "how long after a failed or incomplete rewriting the next one begins")
	flags.DurationVar(&r.interval, "interval", 5*time.Second, "time between two looks at the apiservers")
	flags.DurationVar(&r.timeout, "timeout", 0, "give up after this time; 0 is never")
	flags.StringVar(&r.canaries, "canaries", "kube-system", "namespace for the objects that are written to see what an apiserver writes with")
}

func (r *rotate) check() error {
	switch {
	case r.how.state == "":
		return usagef("flag --state is not there: name a folder, so that the rotation can go on after a crash")
	case r.config == "" && r.hook == "", r.config != "" && r.hook != "":
		return usagef("name the encryption configuration: by one of --config and --config-hook")
	case r.hold < 0, r.maxAge <= 0, r.retry <= 0, r.interval <= 0, r.timeout < 0:
		return usagef("flags --hold, --max-age, --retry-after, --interval and --timeout: the first and the last may be 0, none may be negative")
	}
	return errors.Join(r.how.check(), r.output.check())
}

// files are the configuration files as the flags say.
func (r *rotate) files() configFiles {
	if r.hook != "" {
		return hookedFiles{program: r.hook, err: r.err}
	}
	return localFiles{path: r.config}
}

// fill puts what the flags say into a plan. Of one that is under way they change
// the times that are given.
func (r *rotate) fill(p *rotation.Plan, begun bool) {
	for name, to := range map[string]func(){
		"hold":        func() { p.Hold = rotation.Duration(r.hold) },
		"max-age":     func() { p.MaxAge = rotation.Duration(r.maxAge) },
		"retry-after": func() { p.RetryAfter = rotation.Duration(r.retry) },
	} {
		if !begun || r.flags.Changed(name) {
			to()
		}
	}
}

// kind is what one kind of rotation knows.
type kind interface {
	// begin makes the state of a new one of the plan.
	begin(ctx context.Context, p rotation.Plan, f *fleet.Fleet) (rotation.State, error)
	// owns reports whether a state that was found is that of this rotation.
	owns(s rotation.State) bool
	// providers are all names that objects may be stored under, and leaving those
	// that they are now.
	providers() []string
	leaving() []string
	// stages are the hashes of a file at all stages.
	stages(apiserver string, file []byte) ([]string, error)
	// drive completes the world of a rotation, and drives it.
	drive(ctx context.Context, w *rotationWorld, s rotation.State, o drive.Options) (rotation.Done, error)
}

// run prints the plan, or carries it out.
func (r *rotate) run(ctx context.Context, k kind) error {
	if err := r.check(); err != nil {
		return err
	}
	if r.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, r.timeout, fmt.Errorf("%s are over", r.timeout))
		defer cancel()
	}
	apiservers, err := r.fleet.open(&r.cluster, fleet.CanariesIn(r.canaries), fleet.AskingPlugins())
	if err != nil {
		return err
	}
	folder := stateFolder{path: r.how.state}
	if !r.plan {
		if err := folder.hold(); err != nil {
			return err
		}
		defer folder.release()
	}
	w, s, err := r.prepare(ctx, k, apiservers, folder)
	if err != nil && ctx.Err() != nil {
		return notFinished(ctx)
	}
	if err != nil {
		return err
	}
	if r.plan {
		return r.printPlan(s)
	}
	return r.carryOut(ctx, k, w, s, folder)
}

// prepare makes the world of the rotation, and its state: that of the folder, or
// a new one.
func (r *rotate) prepare(ctx context.Context, k kind, apiservers *fleet.Fleet, folder stateFolder) (*rotationWorld, rotation.State, error) {
	s, begun, err := folder.load()
	if err != nil {
		return nil, s, err
	}
	if begun && !(k.owns(s) && slices.Equal(slices.Sorted(maps.Keys(s.Plan.Configs)), slices.Sorted(slices.Values(r.fleet.apiservers)))) {
		return nil, s, usagef("folder %s has the state of another rotation, or of one that was finished, or of other apiservers: give the flags that it began with (without --from current if it was finished), or name a new folder", folder.path)
	}
	w, err := r.newWorld(apiservers)
	if err != nil {
		return nil, s, err
	}
	found, err := r.survey(ctx, k.providers(), w.cluster)
	if err != nil {
		return nil, s, err
	}
	w.canaries, w.providers = found.canaries, k.providers()
	if !begun {
		if s, err = begin(ctx, k, found, apiservers); err != nil {
			return nil, s, err
		}
	}
	r.fill(&s.Plan, begun)
	w.rollout = rollout{files: r.files(), hashes: s.Plan.Configs, copies: folder.path}
	return w, s, s.Validate()
}

// begin makes the state of a new rotation.
func begin(ctx context.Context, k kind, found configurations, apiservers *fleet.Fleet) (s rotation.State, err error) {
	if err := found.check(k.leaving(), k.providers()); err != nil {
		return s, err
	}
	p := rotation.Plan{Configs: map[string][]string{}, Resources: found.resources}
	for apiserver, file := range found.files {
		if p.Configs[apiserver], err = k.stages(apiserver, file); err != nil {
			return s, fmt.Errorf("configuration of %s: %w", apiserver, err)
		}
	}
	return k.begin(ctx, p, apiservers)
}

func (r *rotate) newWorld(apiservers *fleet.Fleet) (*rotationWorld, error) {
	layout, err := r.source.layout()
	if err != nil {
		return nil, err
	}
	to, err := r.cluster.config("")
	if err != nil {
		return nil, err
	}
	cluster, err := migrate.NewCluster(to, clock.RealClock{})
	if err != nil {
		return nil, err
	}
	how := r.how
	how.state = checkpointsIn(r.how.state)
	quiet := streams{in: r.in, out: r.out, err: io.Discard} // the bar of a walk would be drawn over what is told
	return &rotationWorld{fleet: apiservers, cluster: cluster, teller: newTeller(r.err),
		rewriter: rewriter{streams: quiet, layout: layout, walk: r.walk, cluster: cluster, how: how}}, nil
}

func (r *rotate) carryOut(ctx context.Context, k kind, w *rotationWorld, s rotation.State, folder stateFolder) error {
	from, err := r.source.open(ctx)
	if err != nil {
		return err
	}
	defer from.Close()
	w.rewriter.from = from
	done, err := k.drive(ctx, w, s, drive.Options{Clock: clock.RealClock{}, Interval: r.interval, Save: folder.save, Tell: w.teller.turn})
	if ctx.Err() != nil {
		return notFinished(ctx)
	}
	if err != nil {
		return err
	}
	if err := w.fleet.Clean(ctx); err != nil {
		r.warn("what was written to see what the apiservers write with is left: %v", err)
	}
	return r.output.write(r.out, done, func(to io.Writer) error {
		_, err := fmt.Fprintln(to, doneText(done))
		return err
	})
}

func notFinished(ctx context.Context) error {
	return badf("not finished: %v: the same command goes on from here", context.Cause(ctx))
}

// servedBy lists the resources that a cluster serves.
func servedBy(ctx context.Context, c *migrate.Cluster) ([]schema.GroupResource, error) {
	versions, err := c.Resources(ctx)
	var all []schema.GroupResource
	for _, v := range versions {
		all = append(all, v.GroupResource())
	}
	return all, err
}
