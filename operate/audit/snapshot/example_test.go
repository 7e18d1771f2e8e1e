package snapshot_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/kube-atrest/atrest/operate/audit"
	"github.com/kube-atrest/atrest/operate/audit/snapshot"
)

// A backup is counted. One that is no longer what etcdctl saved tells so, and one
// that is still being written is not counted in part.
func ExampleOpen() {
	ctx := context.Background()
	backup, err := snapshot.Open(ctx, "/var/backups/etcd.db")
	if errors.Is(err, snapshot.ErrDamaged) || errors.Is(err, snapshot.ErrChecksum) {
		fmt.Println("restore nothing from it:", err)
		return
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	defer backup.Close()
	report, err := audit.Run(ctx, backup, audit.Options{})
	if errors.Is(err, snapshot.ErrChanged) {
		fmt.Println("once more when it is whole:", err)
		return
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(report.Objects, "objects as of revision", report.Revision)
}

// One object of a backup, whose value is as it is stored.
func ExampleFile_Find() {
	ctx := context.Background()
	backup, err := snapshot.Open(ctx, "/var/backups/etcd.db")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer backup.Close()
	found, err := backup.Find(ctx, "/registry/secrets/default/password")
	if errors.Is(err, audit.ErrNotFound) {
		fmt.Println("it came after the backup")
		return
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(audit.Inspect(found.Value, nil).Form)
}
