package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/utils/clock"

	"github.com/kube-atrest/atrest/operate/audit"
	"github.com/kube-atrest/atrest/operate/fleet"
	"github.com/kube-atrest/atrest/operate/migrate"
	"github.com/kube-atrest/atrest/operate/overview"
	"github.com/kube-atrest/atrest/operate/proof"
)

type statusCommand struct {
	streams
	output   output
	source   sourceFlags
	walk     walkFlags
	cluster  clusterFlags
	fleet    fleetFlags
	separate bool
	watch    bool
	interval time.Duration

	flags *pflag.FlagSet
}

const statusHelp = `Tell how the apiservers are: whether all of them have one configuration in effect
and the same keys, and are well. Nothing is changed.

  CONFIG    the hash of the configuration in effect, and AGE since when it is
  ROLE      whether the KMS provider is written with (writes), or only read with
  KEY_ID    the hash of the key_id that its plugin names
  HEALTH    how the apiserver finds the plugin
  LEFT      how long writes would go on if the plugin were away from now on
  WROTE     since when nothing was written with it
  DEKS      how many data keys are in memory

What an apiserver does not tell is "-". One of this project tells all of it at
/debug/encryption, and asks its plugins before. Any other kube-apiserver tells by
its metrics and /readyz, which have neither ROLE nor LEFT, and AGE only after a
reload. Local keys, as of aescbc, have no plugin and no row: CONFIG stands for them.

What disagrees, lags or is missing is listed at the end. An apiserver that the
cluster knows of and that is not among --apiservers makes the answer unknown,
unless --without-apiservers excuses it.

With --etcd or --endpoints what etcd holds is counted too, as by atrest audit: what
no apiserver can read, and what is plain though it is to be encrypted, is not well.
No apiserver tells of keys in its file, of what it only reads, nor what a wildcard
leaves to another entry, and a kube-apiserver not even what it encrypts. So this is
unknown, and atrest check FILE --etcd tells it: whether what is under such a key is
well; whether Secrets are to be plain, or what is plain beside encrypted objects, if
no KMS provider is told to write them. Whether what is under KMS can be read is tried:
each apiserver reads one object of each resource and key, which shows that it reads it
now, and not that it could after a restart. What one cannot read is not well.
What one reads under a key_id that no plugin names now is unknown until it is migrated:
it may be in memory, and atrest check FILE --etcd asks the plugin. What one may not,
without the verb get, is unknown, or not well if all tell that the provider is for
other resources. Unknown is also what no API serves, and what no apiserver looks for.
Other plain text is taken to be meant. That it is the etcd of these apiservers is not
shown here otherwise, as by atrest migrate and retire; but one without any Secret is
unknown if they are to be encrypted.

With --watch it looks again every --interval until Ctrl-C, and ends with the exit
code of the last look. With -o json each look is a line then.

The user needs get on the nonResourceURLs /debug/encryption, /metrics and /readyz/*,
get on the namespace kube-system, by whose UID clusters are told apart, and list on
leases in kube-system and on endpointslices in default; with post on the
nonResourceURL /debug/encryption/ask the plugins are asked at once, and with get on
what is encrypted that is read, as told above: no content of it comes to atrest.

Exit codes:
  0  all apiservers agree and are well; with --separate-configs: as far as they
     tell, which is not of keys in their files
  1  not well: something disagrees, or is not well
  2  unknown: an apiserver cannot be seen or does not tell, or not all are named;
     or wrong flags`

func newStatus(s streams) *cobra.Command {
	c := &statusCommand{streams: s}
	command := &cobra.Command{
		Use:   "status",
		Short: "Tell whether all apiservers agree and are well",
		Long:  statusHelp,
		Example: `  atrest status --apiservers cp-1,cp-2,cp-3
  atrest status --apiservers cp-1,cp-2,cp-3 --watch
  atrest status --apiservers cp-1,cp-2,cp-3 -o json
  atrest status --apiservers cp-1,cp-2,cp-3 --endpoints https://127.0.0.1:2379 --cacert ca.crt --cert client.crt --key client.key`,
		Args: arguments(0, ""),
		RunE: func(command *cobra.Command, _ []string) error { return c.run(command.Context()) },
	}
	flags := command.Flags()
	c.flags = flags
	c.cluster.add(flags)
	c.fleet.addAsked(flags)
	c.source.addSwitch(flags)
	c.source.addEtcd(flags, "key")
	c.walk.add(flags)
	c.output.addFlag(flags)
	flags.Lookup("output").Usage = "table, wide (a table with whole names and hashes), json or yaml"
	_ = command.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"table", string(wide), "json", "yaml"}, cobra.ShellCompDirectiveNoFileComp))
	flags.BoolVar(&c.separate, "separate-configs", false, "each apiserver has a configuration of its own, as for a socket of its own: do not compare them")
	flags.BoolVarP(&c.watch, "watch", "w", false, "look again and again, until Ctrl-C")
	flags.DurationVar(&c.interval, "interval", 5*time.Second, "time between two looks of --watch")
	return command
}

func (c *statusCommand) check() error {
	switch {
	case c.interval <= 0:
		return usagef("flag --interval is %s: it has to be over 0", c.interval)
	case c.flags.Changed("interval") && !c.watch:
		return usagef("flag --interval needs --watch, which looks again and again")
	case c.walk.list < 1:
		return usagef("flag --list is %d: list at least 1", c.walk.list)
	case c.output == wide:
		return nil
	}
	if c.output.check() != nil {
		return usagef("flag --output is %q: table, wide, json or yaml", string(c.output))
	}
	return nil
}

func (c *statusCommand) run(ctx context.Context) error {
	if err := c.check(); err != nil {
		return err
	}
	layout, err := c.source.layout()
	if err != nil {
		return err
	}
	apiservers, err := c.fleet.open(ctx, &c.cluster, fleet.AskingPlugins())
	if err != nil {
		return err
	}
	var count func(context.Context) *overview.Etcd
	var prover *proof.Prover
	if c.source.wanted() {
		from, err := c.source.open(ctx)
		if err != nil {
			return err
		}
		defer from.Close()
		o := audit.Options{Layout: layout, Rate: c.walk.rate, MaxListed: c.walk.list}
		count = func(ctx context.Context) *overview.Etcd { return c.count(ctx, from, o) }
		to, err := c.fleet.through(&c.cluster)
		if err != nil {
			return err
		}
		cluster, err := migrate.NewCluster(to.Config, clock.RealClock{})
		if err != nil {
			return err
		}
		prover = &proof.Prover{Fleet: apiservers, Etcd: from, Layout: layout, API: cluster}
	}
	look := func(ctx context.Context) overview.Overview {
		seen := overview.Look(ctx, apiservers, c.fleet.without, clock.RealClock{}, count)
		seen.SeparateConfigs = c.separate
		seen.Read(ctx, prover)
		return overview.Of(seen)
	}
	if c.watch {
		return c.follow(ctx, look, clock.RealClock{})
	}
	seen := look(ctx)
	if ctx.Err() != nil {
		return errInterrupted
	}
	if err := c.show(seen); err != nil {
		return err
	}
	return answerOf(seen.Verdict)
}

// count is what etcd holds, or why that is not known.
func (c *statusCommand) count(ctx context.Context, from source, o audit.Options) *overview.Etcd {
	e := &overview.Etcd{Place: from.String()}
	report, err := c.streams.walk(ctx, from, o)
	if err != nil {
		e.Problem = err.Error()
		return e
	}
	e.Report = report
	return e
}

var (
	errInterrupted = errors.New("interrupted before the apiservers had answered")
	// errUnknown has no text, as the output has said it all.
	errUnknown = errors.New("")
)

// answerOf is how the command ends.
func answerOf(v overview.Verdict) error {
	switch v {
	case overview.Well:
		return nil
	case overview.NotWell:
		return badAnswer{}
	}
	return errUnknown
}

func (c *statusCommand) show(o overview.Overview) error {
	return c.output.write(c.out, o, func(to io.Writer) error {
		return printStatus(to, o, c.output == wide, painting(c.out))
	})
}

// follow looks again and again, and ends with the answer of the last look.
func (c *statusCommand) follow(ctx context.Context, look func(context.Context) overview.Overview, clk clock.Clock) error {
	answer := errInterrupted
	for first := true; ; first = false {
		seen := look(ctx)
		if ctx.Err() != nil { // what was seen may be the end of the context alone
			return answer
		}
		if err := c.showAgain(seen, first); err != nil {
			return err
		}
		answer = answerOf(seen.Verdict)
		timer := clk.NewTimer(c.interval)
		select {
		case <-ctx.Done():
			timer.Stop()
			return answer
		case <-timer.C():
		}
	}
}

// showAgain shows one look of many: over the one before on a terminal, and else below
// it.
func (c *statusCommand) showAgain(o overview.Overview, first bool) error {
	switch {
	case c.output == "json":
		return json.NewEncoder(c.out).Encode(o)
	case c.output == "yaml":
		if _, err := io.WriteString(c.out, "---\n"); err != nil {
			return err
		}
		return c.show(o)
	}
	return printAgain(c.out, o.At, first, func(to io.Writer) error {
		return printStatus(to, o, c.output == wide, painting(c.out))
	})
}

// printAgain prints a block with its time.
func printAgain(to io.Writer, at time.Time, first bool, block func(io.Writer) error) error {
	return buffered(to, func(w io.Writer) error {
		switch {
		case isTerminal(to):
			fmt.Fprint(w, clearScreen)
		case !first:
			fmt.Fprintln(w)
		}
		fmt.Fprintln(w, at.UTC().Format(time.RFC3339))
		return block(w)
	})
}
