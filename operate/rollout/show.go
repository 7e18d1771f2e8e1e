package rollout

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kube-atrest/atrest/operate/audit"
	"github.com/kube-atrest/atrest/operate/fleet"
	"github.com/kube-atrest/atrest/operate/proof"
	"github.com/kube-atrest/atrest/operate/rotation"
)

// Canary shows what an apiserver writes with.
func (w *world) Canary(ctx context.Context, c rotation.Canary) (rotation.Shown, error) {
	if err := w.isOf(ctx, c.Instance); err != nil {
		return rotation.Shown{}, err
	}
	shown := rotation.Shown{KeyIDs: map[string]string{}}
	for _, provider := range c.Providers {
		if err := w.show(ctx, &shown, c.Instance, provider); err != nil {
			return rotation.Shown{}, err
		}
	}
	for _, resource := range w.resources { // each count looks again
		if w.located[resource] {
			continue
		}
		if err := w.prover.Present(ctx, []schema.GroupResource{resource}); err != nil {
			return rotation.Shown{}, err
		}
		w.located[resource] = true
	}
	return shown, nil
}

// show adds what is written with one provider.
func (w *world) show(ctx context.Context, shown *rotation.Shown, apiserver, provider string) error {
	resources := w.samples[provider]
	if len(resources) == 0 {
		if rotation.IsLocal(provider) { // a key behind the one that writes
			shown.Nothing = append(shown.Nothing, provider)
			return nil
		}
		return fmt.Errorf("no resource is written with provider %q", provider)
	}
	empty := 0
	keyID := w.seen[apiserver].Providers[provider].KeyID
	for _, resource := range resources {
		found, err := w.prover.Show(ctx, apiserver, resource, func(f audit.Form) bool { return nameOf(f) != provider || f.KeyIDHash != keyID })
		if refused(err) && w.leaves(provider) {
			if err = w.stored(ctx, shown, resource, provider, keyID, err); err == nil {
				continue
			}
		}
		switch had, twice := shown.KeyIDs[provider]; {
		case errors.Is(err, proof.ErrNoObject):
			if empty++; empty == len(resources) {
				shown.Nothing = append(shown.Nothing, provider)
			}
			continue
		case err != nil:
			return err
		case nameOf(found.Form) != provider:
			return fmt.Errorf("apiserver %s stores %s with %s, not with provider %q: see whether it has the configuration in effect that it tells of", apiserver, found.Key, found.Form, provider)
		case twice && had != found.Form.KeyIDHash:
			return fmt.Errorf("apiserver %s stores %s under key_id %s, and others under %s: it is tried again", apiserver, found.Key, found.Form.KeyIDHash, had)
		}
		shown.KeyIDs[provider] = found.Form.KeyIDHash
		if !found.Wrote {
			shown.Already = append(shown.Already, provider)
		}
		shown.Resources = append(shown.Resources, resource.String())
		if !slices.Contains(shown.Etcds, found.Cluster) {
			shown.Etcds = append(shown.Etcds, found.Cluster)
		}
		if !fleet.HasCanary(resource) {
			return nil // one is enough of what is not for this
		}
	}
	return nil
}

// stored adds what there is of a provider that is left and does not encrypt: objects that
// all read. It is [proof.ErrNoObject] if there is nothing with it, and the error of the
// write if that is not shown either.
func (w *world) stored(ctx context.Context, shown *rotation.Shown, r schema.GroupResource, provider, keyID string, failed error) error {
	with := func(f audit.Form) bool { return nameOf(f) == provider && f.KeyIDHash == keyID }
	found, err := w.prover.Stored(ctx, r, with)
	switch {
	case errors.Is(err, proof.ErrNoObject):
		return err
	case err != nil:
		return failed
	}
	shown.Resources = append(shown.Resources, r.String())
	if !slices.Contains(shown.Etcds, found.Cluster) {
		shown.Etcds = append(shown.Etcds, found.Cluster)
	}
	if !with(found.Form) {
		return proof.ErrNoObject
	}
	shown.KeyIDs[provider] = keyID
	return nil
}

// leaves reports whether the rotation is a move away from a provider, on the way back from
// what it was to. That may be as it encrypts no longer, so that nothing can be written with
// it any more.
func (w *world) leaves(provider string) bool {
	m, ok := w.rotation.Kind.(Move)
	left := m.From
	if m.Back != nil {
		left = m.To
	}
	return ok && slices.Contains(left, provider)
}

// refused reports whether an apiserver answered as it does when it cannot encrypt.
func refused(err error) bool {
	var answer apierrors.APIStatus
	return errors.As(err, &answer) && answer.Status().Code == 500
}

// asked are the apiservers that have to show now what they write with: all of them, but
// where the next file is written without, as some cannot read what others wrote.
func (p *Prepared) asked(seen map[string]rotation.Instance, now time.Time) (all []string) {
	_, next := rotation.Next(rotation.Resume(p.State, now), rotation.Observation{Instances: seen}, now)
	if _, moves := p.rotation.Kind.(Move); !moves || len(next.Actions) == 0 {
		return p.rotation.Apiservers
	}
	for _, a := range next.Actions {
		if c, ok := a.(rotation.Canary); ok {
			all = append(all, c.Instance)
		}
	}
	return all
}
