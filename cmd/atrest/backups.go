package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kube-atrest/atrest/internal/hashed"
	"github.com/kube-atrest/atrest/operate/audit"
	"github.com/kube-atrest/atrest/operate/audit/snapshot"
	"github.com/kube-atrest/atrest/operate/lost"
)

type backupsCommand struct {
	streams
	output    output
	source    sourceFlags
	snapshots []string
}

const backupsHelp = `Tell which backups of etcd need which keys, and the other way round: a key has to
be kept for as long as a backup is that needs it. No key is needed for that, and
nothing is opened.

A key is named by the provider that stored with it, by its name or that of the KMS
provider, and for KMS v2 by the hash of its key_id, as in kube-apiserver's metrics.
KMS v1 stores no key_id, so any version of that provider's key may be needed. The
whole keyspace of each backup is counted.

The time is that of the file, which copying may change; the revision is etcd's, which
a restore of etcd sets back. Where the two disagree which backup is the latest is not
known, and nothing may go by it.

Exit codes:
  0  told, of all of them
  2  not of all: wrong flags, a snapshot cannot be read or has nothing stored below
     --prefix, objects in it do not tell which key they need, or the times and the
     revisions do not tell which backup is the latest`

func newBackups(s streams) *cobra.Command {
	b := &backupsCommand{streams: s}
	command := &cobra.Command{
		Use:   "report --snapshot FILE...",
		Short: "Tell which backups need which keys",
		Long:  backupsHelp,
		Example: `  atrest report --snapshot monday.db --snapshot sunday.db
  atrest report --snapshot monday.db.gz --snapshot sunday.db.gz -o json`,
		Args: arguments(0, ""),
		RunE: func(command *cobra.Command, _ []string) error { return b.run(command.Context()) },
	}
	flags := command.Flags()
	flags.StringArrayVar(&b.snapshots, "snapshot", nil, "a backup of etcd that is kept: a file of etcdctl snapshot save, also packed by gzip, zip or zstd, or member/snap/db of a stopped member; repeatable (required)")
	b.source.addLayout(flags)
	b.output.addFlag(flags)
	return command
}

func (b *backupsCommand) run(ctx context.Context) error {
	if err := b.output.check(); err != nil {
		return err
	}
	if len(b.snapshots) == 0 {
		return usagef("flag --snapshot is missing: name every backup that is kept, each by a flag of its own")
	}
	layout, err := b.source.layout()
	if err != nil {
		return err
	}
	var all []lost.Backup
	for _, path := range b.snapshots {
		backup := b.count(ctx, path, layout)
		if ctx.Err() != nil {
			return errors.New("interrupted")
		}
		all = append(all, backup)
	}
	needs := lost.NeedsOf(all)
	if err := b.output.write(b.out, needs, func(w io.Writer) error { return printNeeds(w, needs) }); err != nil {
		return err
	}
	if len(needs.Problems) > 0 {
		return fmt.Errorf("not all is known: %s", strings.Join(needs.Problems, "; "))
	}
	return nil
}

// count counts one backup. What cannot be read is said of it, and the others go on.
func (b *backupsCommand) count(ctx context.Context, path string, layout audit.Layout) lost.Backup {
	backup := lost.Backup{Name: path}
	info, err := os.Stat(path)
	if err == nil {
		backup.Time = info.ModTime().UTC().Truncate(time.Second)
		backup.Report, err = b.walked(ctx, path, layout)
	}
	if err != nil {
		backup.Problem = err.Error()
	}
	return backup
}

func (b *backupsCommand) walked(ctx context.Context, path string, layout audit.Layout) (*audit.Report, error) {
	file, err := snapshot.Open(ctx, path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return b.streams.walk(ctx, file, audit.Options{Layout: layout, Everywhere: true})
}

func printNeeds(w io.Writer, n lost.Needs) error {
	rows := [][]string{{"BACKUP", "FILE OF", "REVISION", "STORED AS", "NAME", "KEY_ID", "OBJECTS"}}
	for _, b := range n.Backups {
		first := []string{b.Backup, fileTime(b.Time), number(b.Revision, b.Revision > 0)}
		for _, need := range b.Keys {
			rows = append(rows, append(first, string(need.Kind), orDash(need.Name), orDash(hashed.Short(need.KeyIDHash)), fmt.Sprint(need.Objects)))
			first = []string{"", "", ""}
		}
		switch {
		case b.Plaintext > 0:
			rows = append(rows, append(first, string(audit.Plaintext), "-", "-", fmt.Sprint(b.Plaintext)))
		case len(b.Keys) == 0:
			rows = append(rows, append(first, "-", "-", "-", "-"))
		}
	}
	if err := printTable(w, fitted(rows, 0, 4)); err != nil {
		return err
	}
	if len(n.Keys) > 0 {
		fmt.Fprintln(w)
		rows = [][]string{{"KEY OF", "NAME", "KEY_ID", "OBJECTS", "NEEDED BY", "THE LATEST OF THEM", "FILE OF"}}
		for _, k := range n.Keys {
			latest := k.Backups[0]
			if k.Latest.IsZero() {
				latest = "not known"
			}
			rows = append(rows, []string{string(k.Kind), orDash(k.Name), orDash(hashed.Short(k.KeyIDHash)), fmt.Sprint(k.Objects),
				counted(len(k.Backups), "backup"), latest, fileTime(k.Latest)})
		}
		if err := printTable(w, fitted(rows, 1, 5)); err != nil {
			return err
		}
	}
	printReasons(w, "PROBLEMS", n.Problems, asItIs)
	return nil
}

func fileTime(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.Format(time.RFC3339)
}
