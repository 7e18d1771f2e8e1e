package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kube-atrest/atrest/operate/node"
)

const nodeHelp = `Run the KMS plugins of this control plane node: one process for each keyID, on the
socket kms-KEYID.sock, with its credentials and its CA as files, as the bundle in
--bundles says, and put the configuration file of the apiserver in place.

A bundle comes into effect when all that is new in it has passed the trial of "atrest
bundle try", and opens what the plugin wrapped whose place it takes. Until then, and where
a plugin does not come or takes another key, the former one stays in effect. What was
refused is not run again until it is another by its hash. With --tried, which has what
"atrest bundle try -o json" told, no bundle but that is taken, and no other key_ids.
The file is put in place after the plugins that it names answer, and belongs to this
command from then on: what somebody else writes into it is replaced, keys too. The last
good bundle is kept in --state, and enough to come up with: without --bundles, apiserver
or cluster.

A plugin ends only once no bundle in effect has its keyID and each --apiserver of this
node told, since the file changed and for --grace, that it has the new one in effect.
What cannot be asked, or is another node's, may still need it. Without --apiserver no
plugin that was in effect is ever ended for that.

  atrest node           Run until SIGTERM. Plugins stay, but with --drain they end.
  atrest node status    How are the node and its plugins?

With --manifests plugins are static pods, which the kubelet of this node runs, of the
image that the bundle names. Run this on the host then too.

The folders hold credentials, and belong to who runs this alone. --run has to be in
memory, as /run is, or the credentials are on a disk; atrest node status tells which.
What somebody has from a stolen one is told in docs/threats.md.

Exit codes:
  0  ended as it was told to; status: all is as it is wanted
  1  status: something waits, or is not well
  2  it could not begin; status: no node tells, or not all is known; or wrong flags`

func newNode(s streams) *cobra.Command {
	c := &nodeCommand{streams: s}
	command := &cobra.Command{
		Use:   "node --bundles FOLDER --config FILE",
		Short: "Run the KMS plugins of this node, as a bundle says",
		Long:  nodeHelp,
		Example: `  atrest node --bundles /etc/atrest/bundle --config /etc/kubernetes/encryption.yaml \
    --apiserver https://127.0.0.1:6443 --kubeconfig /etc/kubernetes/admin.conf
  atrest node status`,
		Args: arguments(0, ""),
		RunE: func(command *cobra.Command, _ []string) error { return c.run(command.Context()) },
	}
	c.addFlags(command.Flags())
	command.AddCommand(newNodeStatus(s), newNodeLaunch())
	return command
}

// newNodeLaunch is what a plugin's process is before it is the plugin.
func newNodeLaunch() *cobra.Command {
	return &cobra.Command{
		Use:                "launch",
		Hidden:             true,
		DisableFlagParsing: true,
		RunE:               func(_ *cobra.Command, args []string) error { return launch(args) },
	}
}

// defaultRun is the folder in memory.
const defaultRun = "/run/atrest"

type nodeStatusCommand struct {
	streams
	output  output
	folder  string
	metrics bool
}

func newNodeStatus(s streams) *cobra.Command {
	c := &nodeStatusCommand{streams: s}
	command := &cobra.Command{
		Use:   "status",
		Short: "Tell how a node and its plugins are",
		Long: `Tell how the node that runs with the same --run is: which bundle is wanted, accepted
and in effect, what it waits for, and how each plugin is. In effect is the one whose
configuration file is in place; an apiserver that tells of another, or was not asked
since, is waited for, and one that does not tell is named, and is no reason for 1: it may
be down, and wait for the plugins. With --metrics it is told in the text format of
Prometheus. Nothing is changed. What is not known is "-".

Exit codes:
  0  all is as it is wanted
  1  something waits, or is not well
  2  no node tells of itself, or how a plugin is is not known yet; or wrong flags`,
		Example: `  atrest node status
  atrest node status -o json
  atrest node status --metrics`,
		Args: arguments(0, ""),
		RunE: func(command *cobra.Command, _ []string) error { return c.run(command.Context()) },
	}
	command.Flags().StringVar(&c.folder, "run", defaultRun, "folder that the node has in memory")
	command.Flags().BoolVar(&c.metrics, "metrics", false, "tell the metrics, and no table")
	c.output.addFlag(command.Flags())
	return command
}

func (c *nodeStatusCommand) run(ctx context.Context) error {
	if err := c.output.check(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if c.metrics {
		text, err := node.ReadMetrics(ctx, node.Socket(c.folder))
		if err != nil {
			return err
		}
		_, err = io.WriteString(c.out, text)
		return err
	}
	r, err := node.ReadReport(ctx, node.Socket(c.folder))
	if err != nil {
		return err
	}
	if err := c.output.write(c.out, r, func(to io.Writer) error { return printNode(to, r) }); err != nil {
		return err
	}
	return nodeAnswer(r, time.Now())
}

// lately is how old a report may be at most: a node looks every second.
const lately = time.Minute

// nodeAnswer is the exit code of a report, by the clock of the same machine.
func nodeAnswer(r *node.Report, now time.Time) error {
	switch {
	case r.At.IsZero():
		return errors.New("how the node is is not known: it has just started")
	case now.Sub(r.At).Abs() > lately:
		return fmt.Errorf("how the node is is not known: it has not looked since %s: does it wait for a disk, or for who reads its log?", moment(r.At))
	}
	unknown := ""
	for _, p := range r.Plugins {
		switch {
		case p.At.IsZero():
			unknown = p.KeyID
		case !p.Well:
			return badf("the plugin of keyID %s is not well", p.KeyID)
		}
	}
	switch {
	case len(r.Waits) > 0 || len(r.Problems) > 0:
		return badf("not all is as it is wanted")
	case unknown != "":
		return fmt.Errorf("how the plugin of keyID %s is is not known yet", unknown)
	case r.InEffect == nil:
		return errors.New("no bundle that is known is in effect")
	}
	return nil
}

func printNode(to io.Writer, r *node.Report) error {
	rows := [][]string{{"BUNDLE", "REVISION", "HASH"}}
	for _, of := range []struct {
		name string
		rev  *node.Revision
	}{{"wanted", r.Wanted}, {"accepted", r.Accepted}, {"in effect", r.InEffect}} {
		row := []string{of.name, "-", "-"}
		if of.rev != nil {
			row = []string{of.name, fmt.Sprint(of.rev.Revision), of.rev.Hash}
		}
		rows = append(rows, row)
	}
	if err := printTable(to, rows); err != nil {
		return err
	}
	rows = [][]string{{"KEYID", "INSTANCE", "STATE", "IN USE", "WELL", "LAST WELL", "RESTARTS", "KEY_ID"}}
	for _, p := range r.Plugins {
		rows = append(rows, []string{p.KeyID, p.Instance, p.State, yesNo(p.Linked), wellOf(p), moment(p.LastWell), fmt.Sprint(p.Restarts), orDash(p.KeyIDHash)})
	}
	fmt.Fprintln(to)
	if err := printTable(to, rows); err != nil {
		return err
	}
	for _, a := range r.Apiservers {
		if a.Problem != "" {
			fmt.Fprintf(to, "\napiserver %s has not told which file it has in effect: %s\n", a.Name, printable(a.Problem))
		}
	}
	for _, p := range r.Plugins {
		if !p.Well && p.Message != "" {
			fmt.Fprintf(to, "\nkeyID %s, %s at %s: %s\n", p.KeyID, p.Class, moment(p.LastFailure), printable(p.Message))
		}
	}
	if !r.InMemory {
		fmt.Fprintln(to, "\nThe credentials are not known to be in memory alone: name a folder in memory by --run.")
	}
	return printLists(to, r)
}

func printLists(to io.Writer, r *node.Report) error {
	for _, list := range []struct {
		title string
		lines []string
	}{{"WAITS", r.Waits}, {"PROBLEMS", r.Problems}} {
		if len(list.lines) > 0 {
			var lines []string
			for _, line := range list.lines {
				lines = append(lines, printable(line))
			}
			if _, err := fmt.Fprintf(to, "\n%s\n  %s\n", list.title, strings.Join(lines, "\n  ")); err != nil {
				return err
			}
		}
	}
	return nil
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func wellOf(p node.PluginReport) string {
	if p.At.IsZero() {
		return "-"
	}
	return yesNo(p.Well)
}

func moment(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}
