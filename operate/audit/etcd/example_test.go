package etcd_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/kube-atrest/atrest/operate/audit"
	"github.com/kube-atrest/atrest/operate/audit/etcd"
)

// What etcd holds is counted as of one revision. A walk that lasts longer than etcd
// keeps that is begun anew, here with fewer objects.
func ExampleDial() {
	store, err := etcd.Dial(etcd.Options{Endpoints: []string{etcd.DefaultEndpoint}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	ctx := context.Background()
	report, err := audit.Run(ctx, store, audit.Options{})
	if errors.Is(err, etcd.ErrCompacted) {
		report, err = audit.Run(ctx, store, audit.Options{Within: []string{"secrets/"}})
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(report.Objects, "objects as of revision", report.Revision)
}
