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

// Kind is what one kind of rotation knows: [Move] or [OnePlugin].
type Kind interface {
	// begin makes the state of a new one of the plan.
	begin(ctx context.Context, p rotation.Plan, observe observer) (rotation.State, error)
	// owns reports whether a state that was found is that of this rotation.
	owns(s rotation.State) bool
	// providers are all names that objects may be stored under, and leaving those
	// that they are now.
	providers() []string
	leaving() []string
	// replaced is what becomes of the file of an apiserver.
	replaced(apiserver string) []edit.Replacement
	// hashes are those of the files at all stages, by apiserver.
	hashes(files map[string][]byte, kept copies) (map[string][]string, error)
	// last is the configuration of an apiserver at the end, and with which of its
	// providers it is written.
	last(apiserver string, found configurations) (*config.Configuration, []string, error)
	// suits tells why what the files say cannot be rotated so, or gone on with so.
	suits(found configurations, s rotation.State) error
	// drive completes the world of a rotation, and drives it.
	drive(ctx context.Context, w *world, s rotation.State, o drive.Options) (rotation.Done, error)
}

type observer func(context.Context) map[string]rotation.Instance

// Move is the rotation from providers or keys to others. [Target.Move] makes one from
// what the files say; one from plugins to as many others can be said by name.
type Move struct {
	// From and To are the names of KMS providers; or the kind and name of a key, as in
	// aescbc:key1, or [rotation.Plain].
	From, To []string
	// Keyless is that no apiserver tells a key_id of those in To. Local is that they are
	// no plugins: a file with a new key is not kept as a copy.
	Keyless, Local bool
	// Fresh is that a state in the folder is of a move of which nothing was done.
	Fresh bool
	// Changes are what becomes of the file of an apiserver.
	Changes func(apiserver string) []edit.Replacement
	// Back is that it goes back; see the function [Back].
	Back *rotation.Back
}

func (k Move) begin(_ context.Context, p rotation.Plan, _ observer) (rotation.State, error) {
	s, err := rotation.NewMove(p, k.From, k.To)
	if err == nil {
		s.Move.Keyless = k.Keyless
	}
	return s, err
}

func (k Move) owns(s rotation.State) bool {
	return s.Move != nil && slices.Equal(s.Move.Old, k.From) && slices.Equal(s.Move.New, k.To)
}

// as has the changes take over what the files have of the new providers already.
func (k Move) as(files map[string][]byte) Move {
	changes := k.Changes
	k.Changes = func(apiserver string) []edit.Replacement {
		all := slices.Clone(changes(apiserver))
		for i := range all {
			all[i].New = all[i].New.As(files[apiserver])
		}
		return all
	}
	return k
}

// newKey reports whether the new files have a key that is nowhere else.
func (k Move) newKey() bool { return k.Local && !slices.Contains(k.To, rotation.Plain) }

func (k Move) providers() []string { return slices.Concat(k.From, k.To) }

func (k Move) leaving() []string { return k.From }

func (k Move) replaced(apiserver string) []edit.Replacement { return k.Changes(apiserver) }

func (k Move) hashes(files map[string][]byte, kept copies) (map[string][]string, error) {
	return planned(files, k.Changes, kept)
}

// suits refuses other endpoints than those that the files have of the new providers.
func (k Move) suits(found configurations, s rotation.State) error {
	begun := s.Move.Begun()
	for apiserver := range found.parsed {
		begun = begun || len(found.writing(apiserver, k.To)) > 0
	}
	for _, apiserver := range slices.Sorted(maps.Keys(found.parsed)) {
		for _, p := range found.parsed[apiserver].Providers() {
			for _, c := range k.Changes(apiserver) {
				has := p.KMS()
				if has.Name != c.New.Name || has.Name == "" || has.Endpoint == c.New.Endpoint {
					continue
				}
				mend := "give the --endpoint that it began with" // as the new provider may have been written with
				if !begun {
					mend = "give the one that it is on; or, as long as nothing is written with it, put before-" + apiserver + ".yaml of the folder --state in its place, and name a new folder"
				}
				return fmt.Errorf("configuration of %s: provider %q is on %s, and --endpoint says %s: %s", apiserver, has.Name, has.Endpoint, c.New.Endpoint, mend)
			}
		}
	}
	return nil
}

func (k Move) drive(ctx context.Context, w *world, s rotation.State, o drive.Options) (rotation.Done, error) {
	w.stages.changes, w.stages.local, w.stages.back = k.Changes, k.newKey(), k.Back != nil
	if err := w.stillSo(ctx, s); err != nil {
		return rotation.Done{}, err
	}
	done, err := drive.Run(ctx, w, s, o)
	if k.Back != nil && k.newKey() { // no copy of it can be kept any more
		done.Keys = nil
	}
	done.Keys = slices.DeleteFunc(done.Keys, func(key string) bool { return k.stays(key, w.found) })
	return done, err
}

// stays reports whether a key is in a file at the end all the same: an entry that is
// written with something else may be read with it.
func (k Move) stays(key string, found configurations) bool {
	for apiserver := range found.parsed {
		if last, _, err := k.last(apiserver, found); err != nil || has(last, key) {
			return true
		}
	}
	return false
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
		return k.Watch || p.ProvenAt.IsZero() && !p.Finished
	}
	return p.From == k.leftHash()
}

func (k OnePlugin) providers() []string { return k.Providers }

func (k OnePlugin) leaving() []string { return k.Providers }

func (k OnePlugin) replaced(string) []edit.Replacement { return nil }

func (k OnePlugin) hashes(files map[string][]byte, _ copies) (map[string][]string, error) {
	all := map[string][]string{}
	for apiserver, file := range files {
		all[apiserver] = []string{hashed.Name(file)}
	}
	return all, nil
}

// suits refuses KMS v1, which names no key_id that could change.
func (k OnePlugin) suits(found configurations, _ rotation.State) error {
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
	if err := w.met(ctx, &s); err != nil {
		return rotation.Done{}, err
	}
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
