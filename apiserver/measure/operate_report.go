package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/kube-atrest/atrest/apiserver/internal/harness"
	"github.com/kube-atrest/atrest/internal/measure"
)

const intoOperate = `# What an operator waits for

Made by %s; do not edit. Server, etcd with its fsync, plugin and
client share one machine. Secrets hold 1 KiB. A figure is the median; a ratio is that of two figures of one round, and
in brackets is what eight tenths of the rounds lie between.
`

const intoMigrate = `
## Stored again, beside created

%d Secrets each time, in turn, on one kube-apiserver with this library and KMS v2. Created: by a client that does
nothing else, bodies made beforehand, protobuf. Stored again: what ` + "`atrest migrate`" + ` does between its two looks into
etcd, listing included, of Secrets that lie there in plaintext. For each of them the apiserver reads etcd once more than
for one that is created, to see whether it is stale. One with this library stores it again and does no more; Kubernetes' own,
in the last row, takes it for an update of which nothing comes.

| requests under way | created a second | stored again a second | ratio | processor time of the apiserver, created, µs | stored again, µs |
|---|---|---|---|---|---|
`

const intoAudit = `
## Counted in etcd

%s, as a process of its own, %d DEKs. Memory is the most that was resident (VmHWM).

| Secrets | objects a second | memory, MiB | with --decrypt, objects a second | memory, MiB |
|---|---|---|---|---|
`

// auditedDEKs is how many DEKs the audited Secrets are under.
const auditedDEKs = 200

// migrated writes a row of the table.
func (r report) migrated(w io.Writer, program, what string, atOnce int) {
	name := migrateName(program, atOnce)
	created, again := name.Of(creates), name.Of(migrates)
	if r.found.Of(created, measure.NsPerOp).N == 0 {
		return
	}
	s := r.found.Ratio(created, migrates, measure.NsPerOp)
	cpu := func(n measure.Name) string { return digits(r.found.Of(n, measure.CPUNsPerOp).Median / 1e3) }
	measure.Row(w, what, perSecond(r.found.Of(created, measure.NsPerOp)), perSecond(r.found.Of(again, measure.NsPerOp)),
		fmt.Sprintf("%.2f [%.2f, %.2f]", s.Median, s.Low, s.High), cpu(created), cpu(again))
}

// operate writes what was found of an operator's work.
func (r report) operate(w io.Writer) {
	const mib = 1 << 20
	rate := func(n measure.Name) string { return perSecond(r.found.Of(n, measure.NsPerOp)) }
	fmt.Fprintf(w, intoOperate, "`"+strings.Join(append([]string{"go run ./apiserver/measure"}, r.args...), " ")+"`")
	if all := r.found.Numbers("Migrate", "workers"); len(all) > 0 {
		fmt.Fprintf(w, intoMigrate, r.moved)
		for _, atOnce := range all {
			r.migrated(w, harness.KubeAPIServer, strconv.Itoa(atOnce), atOnce)
		}
		r.migrated(w, harness.StockServer, fmt.Sprintf("%d, Kubernetes' own apiserver", stockWorkers), stockWorkers)
		fmt.Fprintf(w, "\n![Secrets a second](migrate.svg)\n")
	}
	if all := r.found.Numbers("Audit", "objects"); len(all) > 0 {
		fmt.Fprintf(w, intoAudit, "`atrest audit --rate 0`", auditedDEKs)
		for _, n := range all {
			cells := []string{strconv.Itoa(n)}
			for _, side := range []string{counts, decrypted} {
				cells = append(cells, rate(auditName(n).Of(side)), digits(r.found.Of(auditName(n).Of(side), peakBytes).Median/mib))
			}
			measure.Row(w, cells...)
		}
		fmt.Fprintf(w, "\n![Memory and time of an audit](audit.svg)\n")
	}
	fmt.Fprintf(w, "\n## The machine\n\n```\n%s```\n", r.found.Head)
}

func perSecond(s measure.Spread) string {
	if s.N == 0 {
		return "–"
	}
	return digits(float64(time.Second) / s.Median)
}
