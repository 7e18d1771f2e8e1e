package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kube-atrest/atrest/kmsplugin/conformance"
)

type conformCommand struct {
	streams
	plugin  pluginFlags
	only    []string
	options conformance.Options
	list    bool
	output  string
}

const conformHelp = `Hold a KMS v2 plugin that runs to what an apiserver needs of it.

The plugin is asked at its socket alone, and may be written in any language. Many
checks need no more. The others need commands, which sh -c runs, one at a time:

  --rotate     has the KMS make a new version of the key. The plugin may be slower
               to notice it, up to --interval.
  --break      takes the KMS, the credentials or the key away, and --mend gives them
               back. --mend is run after each --break, also when this is interrupted:
               wait for it then, or interrupt again and mend by hand.
               With --break-is kms, credentials or key errors have to tell of that;
               without it any code that says of what kind a trouble is will do.
  --recreate   deletes the key and makes another one of the same name. It is run twice.
  --restart    ends the plugin, if it runs, and starts it. One that was killed for a
               check is started also when this is interrupted.
  --second     starts another plugin on the same endpoint, which has to leave the
               first one its socket; it is ended after --timeout. It has to print the
               path of the socket when it gives way or waits, and not as a setting
               alone: give it ports of its own, so that it does not end for those.

Also, --pid is the plugin's process, which is then sent SIGTERM and SIGKILL, and comes
back by --restart; --log is the file that the plugin logs to.

A check without what it needs is "not tried", one that could not be carried out is
"unknown", and neither is ever passed. Every check that failed tells what was seen, what
an apiserver suffers of it, and the rule or the incident that it comes from.

Never run it against a plugin that an apiserver uses: with these commands keys are
rotated and lost, and calls fail.

Exit codes:
  0  all checks that were tried are passed
  1  one failed
  2  none failed, but one is unknown or none was tried; or wrong flags, or nothing
     listens at the endpoint`

func newConform(s streams) *cobra.Command {
	c := &conformCommand{streams: s}
	command := &cobra.Command{
		Use:   "conform --endpoint unix:///PATH",
		Short: "Hold a KMS v2 plugin to what an apiserver needs of it",
		Long:  conformHelp,
		Example: `  atrest conform --endpoint unix:///run/kms/plugin.sock
  atrest conform --endpoint unix:///run/kms/plugin.sock --rotate 'vault write -f transit/keys/k8s/rotate'
  atrest conform --endpoint unix:///run/kms/plugin.sock --check trouble-class \
    --break 'vault token revoke "$TOKEN"' --break-is credentials --mend './new-token'
  atrest conform --endpoint unix:///run/kms/plugin.sock -o junit > conform.xml   # in CI
  atrest conform --list`,
		Args: arguments(0, ""),
		RunE: func(command *cobra.Command, _ []string) error { return c.run(command.Context()) },
	}
	flags := command.Flags()
	c.plugin.add(flags)
	c.addFlags(flags)
	_ = command.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"table", "json", "junit"}, cobra.ShellCompDirectiveNoFileComp))
	_ = command.RegisterFlagCompletionFunc("break-is", cobra.FixedCompletions(losses, cobra.ShellCompDirectiveNoFileComp))
	_ = command.RegisterFlagCompletionFunc("check", cobra.FixedCompletions(checkIDs(), cobra.ShellCompDirectiveNoFileComp))
	return command
}

func (c *conformCommand) addFlags(flags *pflag.FlagSet) {
	flags.StringArrayVar(&c.only, "check", nil, "the ID of a check to run, and again for more; default all")
	flags.BoolVar(&c.list, "list", false, "list the checks, and run none")
	flags.DurationVar(&c.options.Interval, "interval", time.Minute, "within which Status has to tell of a change or of trouble, and a restarted plugin is back")
	flags.DurationVar(&c.options.Timeout, "timeout", 3*time.Second, "within which a call has to be answered, as in the EncryptionConfiguration")
	flags.StringVarP(&c.output, "output", "o", "table", "table, json or junit")
}

func checkIDs() []string {
	var ids []string
	for _, check := range conformance.Checks() {
		ids = append(ids, check.ID)
	}
	return ids
}

func (c *conformCommand) run(ctx context.Context) error {
	write, ok := map[string]func(io.Writer, *conformance.Report) error{
		"table": printConformance, "json": printConformanceJSON, "junit": printJUnit,
	}[c.output]
	switch {
	case !ok:
		return usagef("flag --output is %q: table, json or junit", c.output)
	case c.list && c.output == "junit":
		return usagef("flag --list has no --output junit: table or json")
	case c.list && (c.plugin.endpoint != "" || len(c.only) > 0):
		return usagef("flag --list lists all checks, and asks no plugin: leave --endpoint and --check out")
	case c.list:
		return c.printList()
	case c.options.Interval <= 0 || c.options.Timeout <= 0:
		return usagef("flags --interval and --timeout are more than nothing")
	}
	if err := c.checkOnly(); err != nil {
		return err
	}
	target, err := c.plugin.target()
	if err != nil {
		return err
	}
	c.options.Only = c.only
	if isTerminal(c.err) { // some take minutes
		c.options.Each = func(r conformance.Result) { fmt.Fprintf(c.err, "%s: %s\n", r.ID, r.Outcome) }
	}
	report, err := conformance.Run(ctx, target, c.options)
	if err != nil {
		return err
	}
	for i, result := range report.Results {
		if len(result.Missing) > 0 {
			report.Results[i].Why = "it needs " + flagsFor(result.Missing)
		}
	}
	if err := write(c.out, report); err != nil {
		return err
	}
	return conclusion(report)
}

func (c *conformCommand) checkOnly() error {
	known := map[string]bool{}
	for _, id := range checkIDs() {
		known[id] = true
	}
	for _, id := range c.only {
		if !known[id] {
			return usagef("flag --check is %q, which is none of the checks: atrest conform --list has them", id)
		}
	}
	return nil
}

// conclusion is the answer of a run.
func conclusion(r *conformance.Report) error {
	failed, unknown := r.Count(conformance.Failed), r.Count(conformance.Unknown)
	switch {
	case failed > 0 && unknown > 0:
		return badf("the plugin does not conform: %s failed, and %d %s unknown", counted(failed, "check"), unknown, isOrAre(int64(unknown)))
	case failed > 0:
		return badf("the plugin does not conform: %s failed", counted(failed, "check"))
	case unknown > 0:
		return fmt.Errorf("whether the plugin conforms is not known: %s could not be carried out", counted(unknown, "check"))
	case r.Count(conformance.Passed) == 0:
		return fmt.Errorf("whether the plugin conforms is not known: no check was tried")
	}
	return nil
}

// flagsOfNeeds are the flags by which needs are met.
func flagsOfNeeds(needs []conformance.Need) (flags []string) {
	for _, need := range needs {
		flag := "--" + string(need)
		if need == conformance.NeedKill || need == conformance.NeedTerminate {
			flag = "--pid"
		}
		flags = append(flags, flag)
	}
	return flags
}

// flagsFor are the same in words.
func flagsFor(needs []conformance.Need) string { return strings.Join(flagsOfNeeds(needs), " and ") }
