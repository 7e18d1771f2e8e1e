package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/kube-atrest/atrest/internal/measure"
)

// run measures, prints the table to out and writes the results. Progress goes to
// progressTo.
func run(ctx context.Context, o *options, out, progressTo io.Writer) (err error) {
	measure.WarnIfBusy(progressTo)
	l, err := newLab(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	fsync, err := timeSync(l.file("sync"))
	if err != nil {
		return fmt.Errorf("try the disk: %w", err)
	}
	head := measure.Machine("k8s.io/kubernetes", "k8s.io/apiserver", "go.etcd.io/etcd/server/v3") +
		fmt.Sprintf("a write of 2 KiB with fsync: %s\n", fsync.Round(time.Microsecond))
	users, operators := measure.NewBook(), measure.NewBook()
	// Cases that came to their end are worth keeping, whatever happened to the next one.
	failed := measureAll(ctx, o, l, users, operators, progressTo)
	files := map[string][]byte{}
	for name, book := range map[string]*measure.Book{"end-to-end": users, "operate": operators} {
		table := book.Table(measure.NsPerOp, measure.CPUNsPerOp, listedNs, etcdBytes)
		if table.Head = head; table.Empty() {
			continue
		}
		var told, kept bytes.Buffer
		if report := (report{o.scale, table, o.args}); book == users {
			report.write(&told)
		} else {
			report.operate(&told)
		}
		if err := table.Write(&kept); err != nil {
			return errors.Join(failed, err)
		}
		files[name+".md"], files[name+".tsv"] = told.Bytes(), kept.Bytes()
		if _, err := out.Write(told.Bytes()); err != nil {
			return errors.Join(failed, err)
		}
	}
	return errors.Join(failed, measure.Save(o.out, files, out))
}

// measureAll writes into the books what the cases give that come to their end. The first
// that does not ends it.
func measureAll(ctx context.Context, o *options, l *lab, users, operators *measure.Book, progressTo io.Writer) error {
	for i, c := range o.cases {
		b := &bench{lab: l, scale: o.scale, sides: o.sides, Book: measure.NewBook()}
		err := measure.Case(progressTo, i, len(o.cases), c.name+": "+c.about, func() error { return c.run(ctx, b) })
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		if c.operators {
			operators.Take(b.Book)
		} else {
			users.Take(b.Book)
		}
	}
	return nil
}

// timeSync is how long a small write and its fsync take: the floor of every write.
func timeSync(path string) (time.Duration, error) {
	f, err := os.Create(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	var took []float64
	for range 100 {
		began := time.Now()
		if _, err = f.Write(make([]byte, 2*kib)); err == nil {
			err = f.Sync()
		}
		if err != nil {
			return 0, err
		}
		took = append(took, float64(time.Since(began)))
	}
	return time.Duration(measure.Quantile(took, 0.5)), nil
}
