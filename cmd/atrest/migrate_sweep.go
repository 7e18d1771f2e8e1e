package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/kube-atrest/atrest/operate/fleet"
	"github.com/kube-atrest/atrest/operate/migrate"
	"github.com/kube-atrest/atrest/operate/reencrypt"
)

// ofASweep are the flags that say something where etcd is out of reach.
var ofASweep = map[string]bool{"without-etcd": true, "resource": true, "goal": true, "state": true, "qps": true, "workers": true,
	"page-size": true, "patience": true, "output": true, "kubeconfig": true, "context": true}

// checkSweep refuses what cannot be done without etcd, and what takes no etcd away.
func (m *migrateCommand) checkSweep(flags *pflag.FlagSet) error {
	var stray []string
	flags.Visit(func(f *pflag.Flag) {
		if !ofASweep[f.Name] {
			stray = append(stray, "--"+f.Name)
		}
	})
	switch {
	case flags.Changed("storage-version-migrations"):
		return usagef("flags --without-etcd and --storage-version-migrations: that a migrator of the cluster succeeded is believed by nobody who cannot look into etcd: leave one out")
	case stray != nil:
		return usagef("flag --without-etcd: without etcd nothing is held against a configuration or counted, so %s would say nothing: leave it out", strings.Join(stray, ", "))
	case len(m.resources) == 0:
		return usagef("flag --resource is missing: without etcd nobody knows what there is to rewrite: name it, such as --resource secrets")
	case m.how.state != "" && m.goal == "":
		return usagef("flag --goal is missing: with --state a run goes on where one for the same goal was interrupted: call the goal something, such as the name of the new key")
	}
	return errors.Join(m.how.check(), m.output.check())
}

// sweep rewrites everything that is named, without etcd.
func (m *migrateCommand) sweep(ctx context.Context, flags *pflag.FlagSet) error {
	if err := m.checkSweep(flags); err != nil {
		return err
	}
	layout, err := m.source.layout()
	if err != nil {
		return err
	}
	resources := m.parsedResources()
	for _, resource := range resources {
		if err := named(layout, nil, resource); err != nil {
			return err
		}
	}
	through, err := m.cluster.config("")
	if err != nil {
		return err
	}
	cluster, err := migrate.NewCluster(through, clock.RealClock{})
	if err != nil {
		return err
	}
	goal, err := m.goalOf(ctx, through)
	if err != nil {
		return err
	}
	sweep := &reencrypt.Sweep{Resources: resources, Cluster: cluster, How: m.how.options(), Checkpoints: migrate.Folder(m.how.state),
		Goal: goal, Clock: clock.RealClock{}, Watcher: m.watcher()}
	swept, err := sweep.Run(ctx)
	switch {
	case err != nil && ctx.Err() != nil && m.how.state == "":
		return errors.New("interrupted: the same command begins again; with --state it would go on")
	case err != nil && ctx.Err() != nil:
		return errors.New("interrupted: the same command goes on where it was")
	case err != nil:
		return err
	}
	return m.concludeSweep(swept)
}

// goalOf is the goal as a folder keeps it: what was stored anew in one cluster says
// nothing of another.
func (m *migrateCommand) goalOf(ctx context.Context, through *rest.Config) (string, error) {
	if m.how.state == "" {
		return m.goal, nil
	}
	name := cmp.Or(m.cluster.context, through.Host)
	one, err := m.fleet.of([]fleet.Member{{Name: name, Config: through}})
	if err != nil {
		return "", err
	}
	uid, err := one.Cluster(ctx, name)
	switch {
	case err != nil:
		return "", fmt.Errorf("flag --state: a run goes on in the same cluster alone: %w", err)
	case uid == "":
		return "", fmt.Errorf("flag --state: a run goes on in the same cluster alone, and apiserver %s has no namespace kube-system, by which it is known: leave --state out", name)
	}
	return m.goal + " in " + uid, nil
}

// concludeSweep tells what was asked of the apiserver, and that no more is known.
func (m *migrateCommand) concludeSweep(swept *reencrypt.Swept) error {
	err := m.output.end(m.out, "finished", swept, func(w io.Writer) error {
		if err := printRewritten(w, swept.Rewritten); err != nil {
			return err
		}
		_, err := fmt.Fprintln(w, unproved(swept))
		return err
	})
	if err != nil {
		return err
	}
	for _, text := range swept.Problems {
		m.problem(text)
	}
	if len(swept.Problems) > 0 {
		return badf("not every object is known to have been rewritten: %s", counted(len(swept.Problems), "problem"))
	}
	return nil
}

// unproved says how little is known.
func unproved(swept *reencrypt.Swept) string {
	var names []string
	for _, r := range swept.Rewritten {
		names = append(names, r.Resource)
	}
	which := "every object"
	if len(swept.Problems) > 0 {
		which = "not every object"
	}
	return fmt.Sprintf("nothing was proved: the apiserver was had to store again what it lists of %s, %s of it;\n"+
		"nobody looked into etcd, so nobody knows what is stored under which key", strings.Join(slices.Compact(names), ", "), which)
}
