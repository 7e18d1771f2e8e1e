package reencrypt

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kube-atrest/atrest/operate/audit"
	"github.com/kube-atrest/atrest/operate/fleet"
	"github.com/kube-atrest/atrest/operate/proof"
)

// identify has each apiserver show that it stores in the etcd that is looked into,
// and as the configuration says.
func (m *Migration) identify(ctx context.Context) error {
	if err := proof.Named(ctx, m.Fleet, m.Without); err != nil {
		return err
	}
	prover := &proof.Prover{Fleet: m.Fleet, Etcd: m.Store.From, Layout: m.Store.Audit.Layout, Names: m.Store.Audit.Names, Version: m.Store.Cluster.Version}
	for _, apiserver := range m.Fleet.Names() {
		if err := m.shows(ctx, prover, apiserver); err != nil {
			return err
		}
	}
	return nil
}

// shows is an error unless an apiserver shows with each kind of object how it
// stores it, and with one at least.
func (m *Migration) shows(ctx context.Context, prover *proof.Prover, apiserver string) error {
	found := 0
	for _, resource := range m.shown() {
		want := audit.WrittenWith(m.Config, resource, m.current)
		shown, err := prover.Show(ctx, apiserver, resource, audit.NeedsRewrite(m.Config, resource, m.current))
		switch {
		case errors.Is(err, proof.ErrNoObject):
			continue
		case err != nil:
			return err
		case !isAs(shown.Form, want):
			return fmt.Errorf("apiserver %s stores %s as %s, and %s says %s: wait a minute or two until it has the key_id that its plugin names, or see to it",
				apiserver, shown.Key, shown.Form, m.File, want)
		}
		found++
	}
	if found == 0 {
		return fmt.Errorf("nothing shows what apiserver %s stores: there is no object of what is migrated, and no Secret or ConfigMap is: name one of these with --resource too", apiserver)
	}
	return nil
}

// shown are the resources of which an object is written: those of which there are
// canaries, and else what is named.
func (m *Migration) shown() []schema.GroupResource {
	resources, all := m.wanted()
	for _, canary := range fleet.Canaries() {
		if all && !slices.Contains(resources, canary) {
			resources = append(resources, canary)
		}
	}
	return resources
}

// isAs reports whether an object is stored as it is to be.
func isAs(is, want audit.Form) bool {
	return is.Kind == want.Kind && is.Name == want.Name && (want.KeyIDHash == "" || is.KeyIDHash == want.KeyIDHash)
}
