package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"github.com/kube-atrest/atrest/operate/audit"
	"github.com/kube-atrest/atrest/operate/audit/snapshot"
	"github.com/kube-atrest/atrest/operate/fleet"
	"github.com/kube-atrest/atrest/operate/migrate"
	"github.com/kube-atrest/atrest/operate/proof"
	"github.com/kube-atrest/atrest/operate/retire"
)

type retireCommand struct {
	streams
	output    output
	source    sourceFlags
	walk      walkFlags
	cluster   clusterFlags
	fleet     fleetFlags
	snapshots []string
	provider  bool
	keyID     bool
}

const retireHelp = `Tell whether a KMS provider may go, so that its plugin may be stopped, or a
key_id, so that the version of the KEK behind it may be disabled. Nothing is
changed, not even when the answer is yes, but for canaries, of which it tells before:
a Secret and a ConfigMap are written through each apiserver in the namespace
--canaries, looked for in etcd, and deleted again, so that it is known that this etcd
is theirs.

It may not go for as long as one of these is so:
  - an object in etcd is stored under it, below whatever prefix
  - an object in a backup is, named by --snapshot as often as there are backups
  - an apiserver writes with it, or its plugin names that key_id, or it has that
    provider in its configuration
  - an apiserver does not answer, because nobody knows then, or tells by its metrics
    alone and is not ready, or is about to take another file into use; a plugin of
    one named no key_id yet; one exists that is not named; one stores somewhere else, or
    was started anew meanwhile
  - an object that the API lists is not in that etcd
  - an object does not tell which key it needs: it begins with k8s:enc: and cannot
    be read, or for a key_id it is stored with KMS v1, which stores none

A key_id is named as it is, or by its hash as in kube-apiserver's metrics,
sha256:... What is both a provider and a key_id needs --provider or --key-id, and
so does what nothing knows now. What is known as the other of the two is refused.

All apiservers are asked before etcd is walked, and again after, at
/debug/encryption or, where that is not found, by /metrics and /readyz. Which there
are is asked at both times too. A kube-apiserver that is not of this project tells
of a provider for three minutes after it is gone from its configuration, and nothing
at all of KMS v1. What is on the disk of one that does not follow its file nobody sees:
a warning names it, as the file is in effect at its next start.

The whole keyspace of every etcd is walked, as another apiserver may keep objects
below another --prefix, or in an etcd of their own, which
--etcd-servers-overrides names as to kube-apiserver.

The user needs get on the nonResourceURLs /debug/encryption, /metrics and /readyz/*;
get, create, patch and delete on Secrets and ConfigMaps in the namespace --canaries;
list on leases in kube-system, on endpointslices in default and on apiservices; get on
the namespace kube-system; and, through each apiserver, list and get on every resource
that is served, of which one object each is looked for.

Exit codes:
  0  yes: nothing that was looked at needs it. Other backups count too
  1  no: every reason is listed
  2  no answer: wrong flags, nothing knows the name, or knows it as the other kind,
     the kubeconfig, etcd or a snapshot cannot be read, a snapshot is of another
     cluster by the UID of its namespace kube-system (where that cannot be read, a
     warning says so), or nothing at all is stored below --prefix`

func newRetire(s streams) *cobra.Command {
	r := &retireCommand{streams: s}
	command := &cobra.Command{
		Use:   "retire KEY_ID|PROVIDER",
		Short: "Tell whether a key_id or a KMS provider may go",
		Long:  retireHelp,
		Example: `  atrest retire vault-1 --apiservers cp-1,cp-2,cp-3 --endpoints https://127.0.0.1:2379 --cacert ca.crt --cert client.crt --key client.key
  atrest retire vault-1 --apiservers cp-1,cp-2,cp-3 --snapshot monday.db --snapshot sunday.db
  atrest retire sha256:e11a463725ecd4552f8f6d5a71aa9ec16f286dbfb48de1894ca1744ccbb4839f --apiservers cp-1,cp-2,cp-3`,
		Args: arguments(1, "what is to go: a key_id, its hash, or a KMS provider"),
		RunE: func(command *cobra.Command, args []string) error { return r.run(command.Context(), args[0]) },
	}
	flags := command.Flags()
	r.cluster.add(flags)
	r.fleet.add(flags)
	r.source.addEtcd(flags, "key")
	r.walk.add(flags)
	r.output.addFlag(flags)
	flags.StringArrayVar(&r.snapshots, "snapshot", nil, "a backup of etcd that is kept: a file of etcdctl snapshot save, also packed by gzip, zip or zstd, or member/snap/db of a stopped member; repeatable")
	flags.BoolVar(&r.provider, "provider", false, "it is the name of a KMS provider")
	flags.BoolVar(&r.keyID, "key-id", false, "it is a key_id, or the hash of one")
	return command
}

func (r *retireCommand) run(ctx context.Context, name string) error {
	if err := r.check(name); err != nil {
		return err
	}
	layout, err := r.source.layout()
	if err != nil {
		return err
	}
	apiservers, err := r.fleet.open(ctx, &r.cluster, fleet.AskingPlugins())
	if err != nil {
		return err
	}
	found, err := r.gather(ctx, apiservers, audit.Options{Layout: layout, Everywhere: true, Rate: r.walk.rate, MaxListed: r.walk.list})
	if err != nil {
		return err
	}
	what, err := found.Identify(name, r.as())
	if errors.Is(err, retire.ErrAmbiguous) {
		return usagef("%w", err)
	}
	if err != nil {
		return err
	}
	return r.conclude(what, found.Answer(what, r.walk.list))
}

// as is what the flags say that the name is of.
func (r *retireCommand) as() retire.As {
	switch {
	case r.provider:
		return retire.AProvider
	case r.keyID:
		return retire.AKeyID
	}
	return retire.Anything
}

func (r *retireCommand) check(name string) error {
	switch {
	case name == "":
		return usagef("the name is empty: name a key_id, its hash, or a KMS provider")
	case r.provider && r.keyID:
		return usagef("flags --provider and --key-id: it is one of them")
	case r.walk.list < 1:
		return usagef("flag --list is %d: list at least 1", r.walk.list)
	}
	return r.output.check()
}

// gather looks everywhere, at all apiservers before and after.
func (r *retireCommand) gather(ctx context.Context, apiservers *fleet.Fleet, o audit.Options) (retire.Evidence, error) {
	from, err := r.source.open(ctx)
	if err != nil {
		return retire.Evidence{}, err
	}
	defer from.Close()
	cluster, err := r.through()
	if err != nil {
		return retire.Evidence{}, err
	}
	r.fleet.warnOfNobody(ctx, r.streams, apiservers, cluster)
	apis, err := r.fleet.each()
	if err != nil {
		return retire.Evidence{}, err
	}
	fmt.Fprintf(r.err, "%s each of %s writes a Secret and a ConfigMap into the namespace %s, to see that this etcd is theirs; they are deleted again\n",
		now(), printable(strings.Join(apiservers.Names(), ", ")), printable(r.fleet.canaries))
	prover := &proof.Prover{Fleet: apiservers, Etcd: from, API: cluster, APIs: apis, Layout: o.Layout}
	found, err := retire.Gather(ctx, prover, cluster.Own, r.fleet.without, func(ctx context.Context, deks []string) (etcd retire.Stock, snapshots []retire.Stock, err error) {
		o := o
		o.DEKs = deks
		r.clean(ctx, apiservers) // what was written to be shown is not to be counted
		if etcd, err = r.count(ctx, from, o); err != nil {
			return etcd, nil, err
		}
		for _, path := range r.snapshots {
			backup, err := r.countSnapshot(ctx, path, o)
			if err != nil {
				return etcd, nil, err
			}
			snapshots = append(snapshots, backup)
		}
		return etcd, snapshots, nil
	})
	if err != nil {
		return found, err
	}
	found.Beside = proof.Beside(ctx, cluster, func(string) bool { return true }, slices.Concat(r.fleet.apiservers, r.fleet.without))
	return found, nil
}

// through is the apiserver that tells what there is.
func (r *retireCommand) through() (*migrate.Cluster, error) {
	to, err := r.fleet.through(&r.cluster)
	if err != nil {
		return nil, err
	}
	return migrate.NewCluster(to.Config, clock.RealClock{})
}

func (r *retireCommand) countSnapshot(ctx context.Context, path string, o audit.Options) (retire.Stock, error) {
	file, err := snapshot.Open(ctx, path)
	if err != nil {
		return retire.Stock{}, err
	}
	defer file.Close()
	return r.count(ctx, file, o)
}

func (r *retireCommand) count(ctx context.Context, from source, o audit.Options) (retire.Stock, error) {
	report, err := r.streams.walk(ctx, from, o)
	if err != nil {
		return retire.Stock{}, err
	}
	return retire.NewStock(from.String(), report)
}

func (r *retireCommand) conclude(what retire.Subject, answer retire.Answer) error {
	if err := r.output.write(r.out, answer, func(w io.Writer) error { return printAnswer(w, answer, what) }); err != nil {
		return err
	}
	for _, text := range answer.Warnings {
		r.warn("%s", printable(text))
	}
	if !answer.MayGo {
		return badf("%s may not go: %s", what, counted(len(answer.Reasons), "reason"))
	}
	return nil
}

func printAnswer(w io.Writer, a retire.Answer, what retire.Subject) error {
	fmt.Fprintln(w, printable(a.Etcd.String()))
	for _, part := range a.Etcd.Parts {
		fmt.Fprintf(w, "  %s, revision %d: %s\n", printable(part.Place), part.Revision, counted(int(part.Objects), "key"))
	}
	for _, backup := range a.Snapshots {
		fmt.Fprintln(w, printable(backup.String()))
	}
	fmt.Fprintf(w, "apiservers: %s\n\n", printable(strings.Join(a.Apiservers, ", ")))
	if a.MayGo {
		fmt.Fprintf(w, "yes, %s may go\n", printable(what.String()))
		for _, text := range a.Advice {
			fmt.Fprintf(w, "  %s\n", printable(text))
		}
		return nil
	}
	fmt.Fprintf(w, "no, %s may not go\n", printable(what.String()))
	for _, because := range a.Reasons {
		fmt.Fprintf(w, "  %s: %s\n", printable(because.Where), printable(because.Message))
		for _, d := range because.Resources {
			fmt.Fprintf(w, "    %s: %d\n", printable(d.Resource), d.Objects)
			for _, key := range d.Keys {
				fmt.Fprintf(w, "      %s\n", printable(key))
			}
			if more := d.Objects - int64(len(d.Keys)); more > 0 {
				fmt.Fprintf(w, "      and %d more\n", more)
			}
		}
	}
	return nil
}
