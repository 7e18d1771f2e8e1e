package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/operate/audit"
	"github.com/kube-atrest/atrest/operate/audit/snapshot"
	"github.com/kube-atrest/atrest/operate/fleet"
	"github.com/kube-atrest/atrest/operate/lost"
)

type lostCommand struct {
	streams
	output  output
	source  sourceFlags
	walk    walkFlags
	config  string
	backups []string
	never   []string
	remove  removeFlags
}

const lostHelp = `List what no key of a configuration opens: what is lost when a key is. Nothing is
changed, unless --remove says so, and no value is printed.

Every object is opened, in memory, with the keys and plugins that --config has for
its resource, and if those do not open it, with those of any other resource, and with
those of its kind that have another name now. What does not open is listed by
resource, namespace and name, in two parts:

  to be restored   by somebody, from a backup or from where it came from
  made again       by itself: Events, the Leases of kubelets and of components of
                   the cluster, what Kubernetes keeps in every namespace

The etcd key alone tells little more of an object that does not open. So with
--from-snapshot, as often as there are backups, its copy there is opened, with the
same configuration: what a controller owns that is still there is then made again
too, perhaps with another value, and the latest backup that could give it back is
named. What is not known to be made again is to be restored. A token of a service
account is too: since Kubernetes 1.24 nothing makes its Secret again.

A plugin that is away, or refuses, makes the answer unknown: of what only it could
open nothing is called lost. Neither is what has a form that nothing here knows.
What is in an etcd where no apiserver looks for it, by --etcd-servers-overrides, is
told under NOTES and not judged.
What is below /openshift.io/ of a resource that --config does not name is counted and
not judged, and nothing there is removed: other apiservers store it, with other keys.
So it is, with --remove, with what an aggregated apiserver serves, by its APIService.
A backup of another cluster is refused, by the UID of the namespace kube-system.

With --remove the apiservers delete Secrets and ConfigMaps that are lost: one that
starts can neither list nor watch a resource while one of its objects cannot be read.
For each namespace its name is to be typed, or to be among those of --confirm. Nothing
is deleted
  - while one object cannot be opened now, here or in a backup that is named
  - while an apiserver does not find a plugin well, takes another file into use, has
    another file in effect than --config, unless --separate-configs says that each has
    one of its own, or is not named by --apiservers
  - if this etcd is not that of the apiservers, by the UID of kube-system, or not all
    of it: what they list elsewhere, by --etcd-servers-overrides, may be owned; where
    all Secrets or ConfigMaps are lost, a canary shows it, in the namespace --canaries
  - if an aggregated apiserver cannot list what it has, which may be owned, and is not
    excused by its Service, as --without-apiservers kube-system/metrics-server
and an object is left that
  - was written since it was listed, or that opens now: just before, it is read again
    from etcd, and each plugin is asked again
  - an apiserver can read, or has in memory, or of which one of them does not say that
    it cannot decrypt it, ready but for what a start waits for
  - is neither a Secret nor a ConfigMap: what belongs to anything else may be deleted
    with it, by the garbage collector or by whoever made it
  - owns something that opens or that an apiserver reads, by the name in its
    ownerReferences, or may own something of its namespace of which nobody can see the
    owner: what no key opens and is left, and what has no metadata that can be read
Before each is deleted it is written to the new file --keep as etcd has it, and with its
key found it is restored from there: docs/atrest.md shows how. What comes to be owned by
a lost object after the list is deleted by the garbage collector, and is not in --keep.

An apiserver that runs may still have in memory what no file opens: do not restart one
before. Each is asked for all that is lost before anything is deleted, and what one has
in memory alone it stores again, under the key that it writes with now: that is saved.
To save what can be saved and delete nothing, confirm no namespace.

It is deleted by DeleteOptions with ignoreStoreReadErrorWithClusterBreakingPotential,
so that no finalizer is waited for, and no admission webhook asked. That takes one
apiserver with the feature gate AllowUnsafeMalformedObjectDeletion, which is there from
Kubernetes 1.32 on, and on by default from 1.37 on. The user needs get, patch, delete and
unsafe-delete-ignore-read-errors on what is lost; get on the nonResourceURLs
/debug/encryption, /metrics, /readyz and /readyz/* and on the namespace kube-system;
list on leases in kube-system and on apiservices; through each apiserver, list and
get on every resource that is served; and, if all Secrets or all ConfigMaps are lost,
get, create, patch and delete on them in the namespace --canaries.

Exit codes:
  0  nothing is lost, or all that was lost was deleted
  1  something is lost: it is listed, and with --remove something of it is left
  2  unknown: something cannot be opened now, so the list may not be whole; or
     wrong flags, or FILE, etcd or a snapshot cannot be read, or nothing is stored
     there of what FILE encrypts (or names, if it encrypts nothing), or of a resource
     that --etcd-servers-overrides and FILE name, or that is for the etcd of --endpoints;
     with --remove nothing or nothing more was deleted, for the reason told`

func newLost(s streams) *cobra.Command {
	l := &lostCommand{streams: s}
	command := &cobra.Command{
		Use:   "lost --config FILE",
		Short: "List what no key of a configuration opens, and what to restore",
		Long:  lostHelp,
		Example: `  atrest lost --config encryption.yaml --cacert ca.crt --cert client.crt --key client.key
  atrest lost --config encryption.yaml --from-snapshot monday.db --from-snapshot sunday.db
  atrest lost --config encryption.yaml --snapshot backup.db -o json
  atrest lost --config encryption.yaml --remove --keep lost.jsonl --apiservers cp-1,cp-2,cp-3 --cacert ca.crt --cert client.crt --key client.key
  atrest lost --config encryption.yaml --remove --keep lost.jsonl --apiservers cp-1,cp-2,cp-3 --confirm shop,blog`,
		Args: arguments(0, ""),
		RunE: func(command *cobra.Command, _ []string) error { return l.run(command.Context()) },
	}
	flags := command.Flags()
	flags.StringVar(&l.config, "config", "", "the encryption configuration with the keys and plugins that are left (required)")
	flags.StringSliceVar(&l.never, "never-renamed", nil, "KMS providers, by commas, that never had another name: they are not asked for what is stored under another one")
	flags.StringArrayVar(&l.backups, "from-snapshot", nil, "a backup that could give back what is lost, as for --snapshot; repeatable")
	l.source.add(flags, "key")
	l.walk.add(flags)
	l.output.addFlag(flags)
	l.remove.add(flags)
	return command
}

func (l *lostCommand) run(ctx context.Context) error {
	if err := l.check(); err != nil {
		return err
	}
	layout, err := l.source.layout()
	if err != nil {
		return err
	}
	c, err := readAny(l.config, l.in)
	if err != nil {
		return err
	}
	l.warnOfNames(layout, c)
	names := audit.NamesIn(c)
	for _, name := range l.never {
		if !slices.Contains(names[config.KMSv2], name) && !slices.Contains(names[config.KMSv1], name) {
			return usagef("flag --never-renamed: --config has no KMS provider %q", name)
		}
	}
	from, err := l.source.open(ctx)
	if err != nil {
		return err
	}
	defer from.Close()
	opener, err := audit.NewOpener(c)
	if err != nil {
		return err
	}
	defer opener.Close()
	on, end := progress(l.err)
	look := lost.NewLook(opener, c, audit.Options{Layout: layout, Rate: l.walk.rate, Progress: on})
	look.NeverRenamed = l.never
	found, report, err := l.look(ctx, look, from)
	end()
	if err == nil {
		err = l.source.held(layout, c, report, "")
	}
	if err == nil {
		err = concerned(c, report)
	}
	if err != nil {
		return err
	}
	answer := lost.Decide(found)
	if !l.remove.remove || answer.Verdict == lost.Nothing {
		return l.conclude(from, report, answer)
	}
	return l.removeAll(ctx, c, from, look, report, found)
}

// removeAll tells what is lost, and has it deleted.
func (l *lostCommand) removeAll(ctx context.Context, c *config.Configuration, from source, look *lost.Look, report *audit.Report, found *lost.Found) error {
	apiservers, err := l.remove.fleet.open(ctx, &l.remove.cluster, fleet.AskingPlugins())
	if err != nil {
		return err
	}
	defer l.clean(ctx, apiservers)
	groups, failed := l.remove.fleet.aggregated(ctx)
	found.Leave(c, groups)
	a := lost.Decide(found)
	if failed == nil && a.Verdict == lost.Nothing {
		return l.conclude(from, report, a)
	}
	if l.output == "table" {
		if err := l.show(from, report, a, nil); err != nil {
			return err
		}
	}
	if failed != nil {
		return fmt.Errorf("nothing was deleted: %w", failed)
	}
	r, err := l.begin(ctx, c, apiservers, from, look, a)
	if err != nil {
		return err
	}
	r.remover.Aggregated, r.remover.Others = groups, found.Others
	failed = r.all(ctx, a.Objects)
	if l.output != "table" {
		if err := l.show(from, report, a, &r.done); err != nil {
			return err
		}
	}
	return r.conclude(failed, len(a.Objects))
}

func (l *lostCommand) check() error {
	switch {
	case l.config == "":
		return usagef("flag --config is missing: name the encryption configuration with the keys and plugins that are left")
	case l.walk.list < 1:
		return usagef("flag --list is %d: list at least 1", l.walk.list)
	}
	if err := l.output.check(); err != nil {
		return err
	}
	return l.checkRemove()
}

// look opens what is stored, and then what the backups have of what is lost.
func (l *lostCommand) look(ctx context.Context, look *lost.Look, from source) (*lost.Found, *audit.Report, error) {
	found, report, err := look.Cluster(ctx, from)
	if err != nil {
		return nil, nil, err
	}
	for _, path := range l.backups {
		if err := l.backup(ctx, look, found, path); err != nil {
			return nil, nil, err
		}
	}
	return found, report, nil
}

func (l *lostCommand) backup(ctx context.Context, look *lost.Look, found *lost.Found, path string) error {
	file, err := snapshot.Open(ctx, path)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	return look.Backup(ctx, found, path, info.ModTime(), file)
}

// show prints what is lost.
func (l *lostCommand) show(from source, report *audit.Report, a lost.Answer, done *removed) error {
	view := struct {
		Source   string `json:"source"`
		Revision int64  `json:"revision"`
		lost.Answer
		*removed
	}{from.String(), report.Revision, a, done}
	err := l.output.write(l.out, view, func(w io.Writer) error {
		printWalked(w, from.String(), report)
		if err := printLost(w, a, l.walk.list); err != nil {
			return err
		}
		printUnjudged(w, a.Unjudged)
		if a.Aggregated > 0 {
			fmt.Fprintf(w, "\nnot judged: %s that an aggregated apiserver stores: give --config the configuration of that one, and name it and all like it with --apiservers\n",
				counted(int(a.Aggregated), "object"))
		}
		return nil
	})
	if err != nil {
		return err
	}
	l.warnOfGuesses(report.Guessed)
	return nil
}

func (l *lostCommand) conclude(from source, report *audit.Report, a lost.Answer) error {
	if err := l.show(from, report, a, nil); err != nil {
		return err
	}
	told := fmt.Sprintf("lost: %s, of which somebody has to restore %d", counted(len(a.Objects), "object"), a.Restore)
	switch a.Verdict {
	case lost.NotKnown:
		return fmt.Errorf("what is lost is not known, as not all can be opened now: see that each plugin works, and ask again (%s)", told)
	case lost.Something:
		return badf("%s", told)
	}
	return nil
}
