package reencrypt

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kube-atrest/atrest/operate/audit"
	"github.com/kube-atrest/atrest/operate/fleet"
	"github.com/kube-atrest/atrest/operate/preflight"
	"github.com/kube-atrest/atrest/operate/proof"
)

// identify has each apiserver show that it stores in the etcd that is looked into,
// and as the configuration says.
func (m *Migration) identify(ctx context.Context) error {
	if err := proof.Named(ctx, m.Fleet, m.Without); err != nil {
		return err
	}
	if _, err := proof.OneCluster(ctx, m.Fleet, m.Fleet.Names()); err != nil {
		return err
	}
	prover := m.prover()
	m.Watcher.Writing(m.Fleet.Names())
	for _, apiserver := range m.Fleet.Names() {
		if err := m.shows(ctx, prover, apiserver); err != nil {
			return err
		}
	}
	return nil
}

func (m *Migration) prover() *proof.Prover {
	return &proof.Prover{Alone: m.alone, Fleet: m.Fleet, Etcd: m.Store.From, API: m.Store.Cluster, APIs: m.APIs, Layout: m.Store.Audit.Layout, Names: m.Store.Audit.Names}
}

// alone asks the plugin that an apiserver writes with to encrypt and decrypt, if it is
// the only one. One of this project asks it itself.
func (m *Migration) alone(ctx context.Context, apiserver string, f audit.Form) error {
	if m.Checked || !f.Kind.IsKMS() || m.seen[apiserver].Process != "" {
		return nil
	}
	return preflight.Alone(ctx, m.Config, apiserver, f.Name, f.KeyIDHash)
}

// shows is an error unless an apiserver shows of each sample how it stores it, and
// of a Secret if there is nothing of the others.
func (m *Migration) shows(ctx context.Context, prover *proof.Prover, apiserver string) error {
	found, samples := false, m.samples()
	for _, with := range slices.Sorted(maps.Keys(samples)) {
		for _, resource := range samples[with] {
			err := m.showsOne(ctx, prover, apiserver, resource)
			if errors.Is(err, proof.ErrNoObject) {
				continue
			}
			if err != nil {
				return err
			}
			if found = true; !fleet.HasCanary(resource) {
				break // one is enough of what is not for this
			}
		}
	}
	if found {
		return nil
	}
	return m.showsOne(ctx, prover, apiserver, fleet.Canaries()[0])
}

func (m *Migration) showsOne(ctx context.Context, prover *proof.Prover, apiserver string, resource schema.GroupResource) error {
	want := audit.WrittenWith(m.Config, resource, m.current)
	shown, err := prover.Show(ctx, apiserver, resource, audit.NeedsRewrite(m.Config, resource, m.current))
	if err == nil && !isAs(shown.Form, want) {
		return fmt.Errorf("apiserver %s stores %s as %s, and %s says %s: wait a minute or two until it has the key_id that its plugin names, or see to it",
			apiserver, shown.Key, shown.Form, m.File, want)
	}
	return err
}

// samples are resources of which an object shows what each provider that is migrated
// to is written with.
func (m *Migration) samples() proof.Samples {
	resources, all := m.wanted()
	if all {
		resources = slices.Concat(resources, fleet.Canaries())
	}
	by := proof.Samples{}
	for _, r := range resources {
		with := audit.WrittenWith(m.Config, r, m.current)
		by.Offer(string(with.Kind)+":"+with.Name, r)
	}
	return by
}

// isAs reports whether an object is stored as it is to be.
func isAs(is, want audit.Form) bool {
	return is.Kind == want.Kind && is.Name == want.Name && (want.KeyIDHash == "" || is.KeyIDHash == want.KeyIDHash)
}
