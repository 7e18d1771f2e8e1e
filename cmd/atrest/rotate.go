package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/utils/clock"

	"github.com/kube-atrest/atrest/operate/audit"
	"github.com/kube-atrest/atrest/operate/fleet"
	"github.com/kube-atrest/atrest/operate/migrate"
	"github.com/kube-atrest/atrest/operate/reencrypt"
	"github.com/kube-atrest/atrest/operate/rollout"
	"github.com/kube-atrest/atrest/operate/rotation"
	"github.com/kube-atrest/atrest/operate/rotation/drive"
)

const rotateHelp = `Rotate the key that everything is encrypted under, or move to another, and
prove it.

  atrest rotate --to KIND     From whatever writes now to aescbc, aesgcm or secretbox
                              with a new key, to a plugin with kms:NAME, or to
                              identity, which encrypts nothing.
  atrest rotate two-plugins   From one KMS plugin to another: the new version of
                              the key is behind a plugin of its own.
  atrest rotate one-plugin    To the new key_id of a plugin that changed it.
  atrest rotate abort         Back, from any step before the old one is removed.

A new key for --to is made here and written into the configuration files, and
nowhere else. Where an entry of the configuration is written as plain text and
another is encrypted, the former stays as it is.

Each is a plan, which --plan prints and ends. Between two of its steps is a gate:
what each apiserver says of itself, or what an audit of etcd counts, and never a
time that has passed. What is waited for is told with names.

Nothing is lost if this ends at any point, by Ctrl-C or kill -9 or with the
machine: the same command goes on. It keeps its state in the folder --state, and
beside it the configuration files as they were.

The apiservers are contexts of a kubeconfig, or addresses, one for each apiserver
there is and past any load balancer; or all, by the Service kubernetes. One that the
cluster knows of, by its Lease or as an endpoint of the Service kubernetes, and that is
not named is in the way of everything, unless --without-apiservers excuses it. Objects
are rewritten through --context, which may be a load balancer, and is the first of
--apiservers if it is not given.

Before anything is changed, also with --plan, when the write key has changed, and
before the old provider goes, each apiserver writes a canary, a Secret or ConfigMap
in the namespace --canaries; it is looked for in etcd and read through every other
apiserver. So it is known that etcd is theirs, what each writes with, and that each
can read it. The canaries are deleted at the end.

The user needs get on the nonResourceURLs /debug/encryption, /metrics and /readyz/*;
list, get and patch on what is encrypted, list and get through each apiserver; get,
create, patch and delete on Secrets and ConfigMaps in the namespace --canaries; list
on leases in kube-system, on endpointslices in default and on apiservices; and get
on the namespace kube-system.
With post on the nonResourceURL /debug/encryption/ask a new key_id is known within
seconds; without it, within a minute or so.` + turnsHelp + `

With -o json what goes on is told as objects, one in a line; the last one is what
it came to.

Exit codes:
  0  finished; with --plan, it can begin or go on
  1  not finished: --timeout is over, it was interrupted, or it was finished once
     and the configuration in effect is another now
  2  it could not begin or go on: wrong flags, or something cannot be read`

// rotate is what all kinds of rotation are told and do.
type rotate struct {
	streams
	output  output
	cluster clusterFlags
	fleet   fleetFlags
	source  sourceFlags
	walk    walkFlags
	how     rewriteFlags
	turns   turnFlags

	config, hook    string
	plan, checked   bool
	hold, maxAge    time.Duration
	retry, interval time.Duration
	timeout         time.Duration
	hookTimeout     time.Duration
	replaced        []string

	flags *pflag.FlagSet
}

func newRotate(s streams) *cobra.Command {
	r := &move{rotate: rotate{streams: s}}
	command := &cobra.Command{
		Use:     "rotate",
		Short:   "Rotate the key that everything is encrypted under, or move to another, and prove it",
		Long:    rotateHelp,
		Example: moveExample,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("no rotation %q: there are two-plugins, one-plugin and abort", args[0])
			}
			return nil
		},
		RunE: func(command *cobra.Command, _ []string) error {
			if len(r.to) == 0 {
				return usagef("which rotation: say --to, or one of two-plugins and one-plugin")
			}
			target, err := r.target()
			if err != nil {
				return err
			}
			return r.run(command.Context(), target.Move)
		},
	}
	r.addFlags(command.Flags())
	command.AddCommand(newTwoPlugins(s), newOnePlugin(s), newAbort(s))
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
	flags.StringVar(&r.config, "config", "", "encryption configuration of the apiservers: a path here, or ssh://[USER@]HOST[:PORT]/PATH; "+rollout.Placeholder+" in it stands for the name of each, or the host of an address")
	flags.StringVar(&r.hook, "config-hook", "", "program that reaches the configurations instead: PROGRAM read NAME prints one, PROGRAM write NAME takes one from standard input")
	flags.BoolVar(&r.plan, "plan", false, "print the steps, how far they are and what is waited for, show that it can begin or go on, and do nothing else")
	flags.DurationVar(&r.hold, "hold", time.Duration(rotation.DefaultHold), "for how long all apiservers have to agree before anything is rewritten")
	flags.DurationVar(&r.maxAge, "max-age", time.Duration(rotation.DefaultMaxAge), "how old the answer of an apiserver may be")
	flags.DurationVar(&r.retry, "retry-after", time.Duration(rotation.DefaultRetryAfter), "how long after a failed or incomplete rewriting the next one begins")
	flags.DurationVar(&r.interval, "interval", 5*time.Second, "time between two looks at the apiservers")
	flags.DurationVar(&r.timeout, "timeout", 0, "give up after this time; 0 is never")
	flags.DurationVar(&r.hookTimeout, "hook-timeout", rollout.DefaultHookTimeout, "how long one call of the program of --config-hook, or of ssh, may take")
	flags.BoolVar(&r.checked, "plugin-checked", false, checkedUsage)
	flags.StringSliceVar(&r.replaced, "replace-apiserver", nil, "OLD=NEW: NEW of --apiservers came instead of OLD since the rotation began; OLD= is gone, =NEW was added; repeatable, or by commas")
}

func (r *rotate) check() error {
	switch {
	case r.how.state == "":
		return usagef("flag --state is not there: name a folder, so that the rotation can go on after a crash")
	case r.config == "" && r.hook == "", r.config != "" && r.hook != "":
		return usagef("name the encryption configuration: by one of --config and --config-hook")
	case r.config == "-":
		return usagef("flag --config is -: a rotation reads and writes the files of the apiservers: name them")
	case r.hookTimeout <= 0:
		return usagef("flag --hook-timeout is %s: it has to be over 0", r.hookTimeout)
	case r.hookTimeout >= r.maxAge && (r.hook != "" || strings.HasPrefix(r.config, "ssh:")):
		return usagef("flag --hook-timeout is %s, and --max-age %s: while one call lasts so long every answer of an apiserver becomes too old", r.hookTimeout, r.maxAge)
	case r.interval >= r.maxAge:
		return usagef("flag --interval is %s, and --max-age %s: what is looked at so seldom is always too old", r.interval, r.maxAge)
	case r.hold < 0, r.maxAge <= 0, r.retry <= 0, r.interval <= 0, r.timeout < 0:
		return usagef("flags --hold, --max-age, --retry-after, --interval and --timeout: the first and the last may be 0, none may be negative")
	}
	_, err := r.files()
	return errors.Join(err, r.how.check(), r.turns.check(), r.output.check())
}

// fill puts what the flags say into a plan. Of one that is under way they change
// the times that are given.
func (r *rotate) fill(p *rotation.Plan, begun bool) {
	for name, to := range map[string]func(){
		"hold":        func() { p.Hold = rotation.Duration(r.hold) },
		"max-age":     func() { p.MaxAge = rotation.Duration(r.maxAge) },
		"retry-after": func() { p.RetryAfter = rotation.Duration(r.retry) },
		"first":       func() { p.First = r.turns.first },
	} {
		if !begun || r.flags.Changed(name) {
			to()
		}
	}
}

// run prints the plan, or carries it out.
func (r *rotate) run(ctx context.Context, kind kindOf) error {
	if err := r.check(); err != nil {
		return err
	}
	if r.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, r.timeout, fmt.Errorf("%s are over", r.timeout))
		defer cancel()
	}
	apiservers, err := r.fleet.open(ctx, &r.cluster, fleet.AskingPlugins())
	if err != nil {
		return err
	}
	if err := r.turns.among(r.fleet.apiservers); err != nil {
		return err
	}
	folder := &rollout.Folder{Path: r.how.state}
	if !r.plan {
		if err := folder.Hold(); err != nil {
			return err
		}
		defer folder.Release()
	}
	from, err := r.source.open(ctx)
	if err != nil {
		return err
	}
	defer from.Close()
	all, store, err := r.rotation(from, folder)
	if err != nil {
		return err
	}
	all.Fleet = apiservers
	if all.Kind, err = kind(ctx, all.Files, all.Apiservers, folder); err != nil {
		return notPrepared(ctx, err)
	}
	r.fleet.warnOfNobody(ctx, r.streams, apiservers, all.Cluster)
	defer func() {
		if !r.plan || folder.Idle() { // who carries it out needs them
			r.clean(ctx, apiservers)
		}
	}()
	prepared, err := all.Prepare(ctx)
	switch {
	case err != nil:
		return notPrepared(ctx, err)
	case r.plan:
		return r.printPlan(ctx, prepared, store)
	}
	if err := prepared.Stranded(ctx, store); err != nil {
		return notPrepared(ctx, err)
	}
	return r.carryOut(ctx, prepared, store)
}

// notPrepared is why a rotation cannot begin or go on.
func notPrepared(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return notFinished(ctx)
	case errors.Is(err, rollout.ErrAnother), errors.Is(err, rollout.ErrBack), errors.Is(err, rollout.ErrOtherApiservers), errors.Is(err, rollout.ErrAlready):
		return usagef("%w", err)
	case errors.Is(err, rollout.ErrUndone):
		return badf("%v", err)
	}
	return err
}

// kindIs is a kind that is known without a look at the files.
func kindIs(k rollout.Kind) kindOf {
	return func(context.Context, rollout.Files, []string, *rollout.Folder) (rollout.Kind, error) { return k, nil }
}

// kindOf finds out which kind of rotation it is.
type kindOf func(context.Context, rollout.Files, []string, *rollout.Folder) (rollout.Kind, error)

// replacements are those of --replace-apiserver.
func (r *rotate) replacements() ([]rollout.Replaced, error) {
	var all []rollout.Replaced
	for _, text := range r.replaced {
		old, came, ok := strings.Cut(text, "=")
		if !ok || old == came {
			return nil, usagef("flag --replace-apiserver is %q: write OLD=NEW", text)
		}
		all = append(all, rollout.Replaced{Old: old, New: came})
	}
	return all, nil
}

// rotation is one of the files and the cluster, and of what is stored there.
func (r *rotate) rotation(from source, folder *rollout.Folder) (*rollout.Rotation, *reencrypt.Store, error) {
	replaced, err := r.replacements()
	if err != nil {
		return nil, nil, err
	}
	layout, err := r.source.layout()
	if err != nil {
		return nil, nil, err
	}
	to, err := r.fleet.through(&r.cluster)
	if err != nil {
		return nil, nil, err
	}
	through, err := r.fleet.of([]fleet.Member{to})
	if err != nil {
		return nil, nil, err
	}
	cluster, err := migrate.NewCluster(to.Config, clock.RealClock{})
	if err != nil {
		return nil, nil, err
	}
	apis, err := r.fleet.each()
	if err != nil {
		return nil, nil, err
	}
	files, err := r.files()
	if err != nil {
		return nil, nil, err
	}
	return &rollout.Rotation{Apiservers: r.fleet.apiservers, Files: files, Cluster: cluster, Through: through, APIs: apis, Folder: folder,
			Times: r.fill, Checked: r.checked, Without: r.fleet.without, Replaced: replaced, Restart: r.turns.hook(r.streams)}, &reencrypt.Store{
			From: from, Walk: audit.Run, // a bar would be drawn over what is told
			Audit:   audit.Options{Layout: layout, Rate: r.walk.rate, MaxListed: r.walk.list},
			Cluster: cluster, How: r.how.options(), Checkpoints: folder.Checkpoints(),
		}, nil
}

func (r *rotate) carryOut(ctx context.Context, prepared *rollout.Prepared, store *reencrypt.Store) error {
	teller := newTeller(r.streams, r.output)
	done, err := prepared.Drive(ctx, store, teller, drive.Options{Clock: clock.RealClock{}, Interval: r.interval, ActionTimeout: max(3*r.hookTimeout, actionTimeout), Before: teller.before, Tell: teller.turn})
	switch {
	case ctx.Err() != nil:
		return notFinished(ctx)
	case errors.Is(err, rollout.ErrUndone):
		return badf("%v", err)
	case err != nil:
		return err
	}
	view := struct {
		rotation.Done
		Warnings []string `json:"warnings,omitempty"`
	}{done, append(prepared.Beside(ctx), prepared.Unserved(ctx)...)}
	err = r.output.end(r.out, "finished", view, func(to io.Writer) error {
		_, err := fmt.Fprintln(to, doneText(done))
		return err
	})
	for _, text := range view.Warnings {
		r.warn("%s", printable(text))
	}
	return err
}

const (
	// actionTimeout bounds a write of a file or a canary; of a file by a program,
	// which reads it, writes it and reads it again, three calls of that do.
	actionTimeout = 30 * time.Second
	// cleanTimeout bounds the removal of the canaries, also after Ctrl-C.
	cleanTimeout = 30 * time.Second
)

// clean removes what was written to see what the apiservers write with, also when
// ctx has ended.
func (s streams) clean(ctx context.Context, apiservers *fleet.Fleet) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanTimeout)
	defer cancel()
	if err := apiservers.Clean(ctx); err != nil {
		s.warn("what was written to see what the apiservers write with is left: %v", err)
	}
}

const checkedUsage = "the plugin was asked to decrypt, by atrest check on the machine of the apiserver; with one apiserver alone it is asked from here otherwise"

func notFinished(ctx context.Context) error {
	return badf("not finished: %v: the same command goes on from here", context.Cause(ctx))
}
