package rollout

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/internal/hashed"
	"github.com/kube-atrest/atrest/operate/rotation"
	"github.com/kube-atrest/atrest/operate/rotation/drive"
	"github.com/kube-atrest/atrest/operate/rotation/edit"
)

// Kind is what one kind of rotation knows: [TwoPlugins] or [OnePlugin].
type Kind interface {
	// begin makes the state of a new one of the plan.
	begin(ctx context.Context, p rotation.Plan, observe observer) (rotation.State, error)
	// owns reports whether a state that was found is that of this rotation.
	owns(s rotation.State) bool
	// providers are all names that objects may be stored under, and leaving those
	// that they are now.
	providers() []string
	leaving() []string
	// hashes are those of the files at all stages, by apiserver.
	hashes(files map[string][]byte, kept copies) (map[string][]string, error)
	// last is the configuration of an apiserver at the end, and with which of its
	// providers it is written.
	last(apiserver string, found configurations) (*config.Configuration, []string, error)
	// suits tells why what the files say cannot be rotated so.
	suits(found configurations) error
	// drive completes the world of a rotation, and drives it.
	drive(ctx context.Context, w *world, s rotation.State, o drive.Options) (rotation.Done, error)
}

type observer func(context.Context) map[string]rotation.Instance

// TwoPlugins is the rotation from plugins to others, of as many providers.
type TwoPlugins struct {
	From, To []string
	// Changes are what becomes of the file of an apiserver.
	Changes func(apiserver string) []edit.Replacement
}

func (k TwoPlugins) begin(_ context.Context, p rotation.Plan, _ observer) (rotation.State, error) {
	return rotation.NewTwoPlugins(p, k.From, k.To)
}

func (k TwoPlugins) owns(s rotation.State) bool {
	return s.TwoPlugins != nil && slices.Equal(s.TwoPlugins.Old, k.From) && slices.Equal(s.TwoPlugins.New, k.To)
}

func (k TwoPlugins) providers() []string { return slices.Concat(k.From, k.To) }

func (k TwoPlugins) leaving() []string { return k.From }

func (k TwoPlugins) hashes(files map[string][]byte, kept copies) (map[string][]string, error) {
	return planned(files, k.Changes, kept)
}

func (k TwoPlugins) suits(configurations) error { return nil }

func (k TwoPlugins) drive(ctx context.Context, w *world, s rotation.State, o drive.Options) (rotation.Done, error) {
	w.stages.changes = k.Changes
	for i, old := range k.From { // the new one is, or will be, for what the old one was for
		w.samples.Pair(old, k.To[i])
	}
	if err := w.stillSo(ctx, s); err != nil {
		return rotation.Done{}, err
	}
	return drive.Run(ctx, w, s, o)
}

// OnePlugin is the rotation of a plugin whose key_id changes while it runs.
type OnePlugin struct {
	Providers []string
	// From is the key_id to be left, or its hash, or "current" for the one
	// that all apiservers have now, or empty.
	From string
	// Watch has it rotate whenever the key_id changes, and not end.
	Watch bool
}

// current is the key_id that all apiservers have now.
const current = "current"

func (k OnePlugin) begin(ctx context.Context, p rotation.Plan, observe observer) (rotation.State, error) {
	from := k.leftHash()
	if k.From == current {
		var err error
		if from, err = rotation.CurrentKeyID(observe(ctx), k.Providers); err != nil {
			return rotation.State{}, err
		}
	}
	return rotation.NewOnePlugin(p, k.Providers, from)
}

// leftHash is the hash of From, which names a key_id or its hash.
func (k OnePlugin) leftHash() string {
	if strings.HasPrefix(k.From, "sha256:") {
		return k.From
	}
	return hashed.ID(k.From)
}

// owns is not so for a rotation from another key_id, which would be taken for the
// one that is wanted when it is long finished.
func (k OnePlugin) owns(s rotation.State) bool {
	p := s.OnePlugin
	if p == nil || !slices.Equal(p.Providers, k.Providers) {
		return false
	}
	switch k.From {
	case "":
		return true
	case current:
		return k.Watch || p.ProvenAt.IsZero()
	}
	return p.From == k.leftHash()
}

func (k OnePlugin) providers() []string { return k.Providers }

func (k OnePlugin) leaving() []string { return k.Providers }

func (k OnePlugin) hashes(files map[string][]byte, _ copies) (map[string][]string, error) {
	all := map[string][]string{}
	for apiserver, file := range files {
		all[apiserver] = []string{hashed.Name(file)}
	}
	return all, nil
}

// suits refuses KMS v1, which names no key_id that could change.
func (k OnePlugin) suits(found configurations) error {
	for _, apiserver := range slices.Sorted(maps.Keys(found.parsed)) {
		for _, p := range found.parsed[apiserver].Providers() {
			if p.Kind() == config.KMSv1 && slices.Contains(k.Providers, p.KMS().Name) {
				return fmt.Errorf("configuration of %s: provider %q is KMS v1, which names no key_id: leave it for another one, of KMS v2, with atrest rotate two-plugins", apiserver, p.KMS().Name)
			}
		}
	}
	return nil
}

func (k OnePlugin) drive(ctx context.Context, w *world, s rotation.State, o drive.Options) (rotation.Done, error) {
	if !k.Watch {
		if err := w.stillSo(ctx, s); err != nil {
			return rotation.Done{}, err
		}
		return drive.Run(ctx, w, s, o)
	}
	tell := o.Tell
	o.Tell = func(t drive.Turn) {
		if tell != nil {
			tell(t)
		}
		if done, ok := t.Decision.Done(); ok {
			w.watcher.Finished(done)
		}
	}
	return rotation.Done{}, drive.Watch(ctx, w, s, o)
}
