package rollout

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/envelope"
	"github.com/kube-atrest/atrest/operate/rotation"
	"github.com/kube-atrest/atrest/operate/rotation/edit"
)

// ErrBack says that a rotation goes back, or went, and that it was not asked for that.
var ErrBack = errors.New("is of a rotation that goes back since atrest rotate abort: atrest rotate abort goes on with that, and when it is finished a new folder is for another rotation")

// errIfBack is an error if the state of a folder is of a rotation that goes back.
func (f *Folder) errIfBack(s rotation.State) error {
	if s.Move != nil && s.Move.Back != nil {
		return fmt.Errorf("folder %s %w", f.Path, ErrBack)
	}
	return nil
}

// Back is the way back of the move that a folder has. What its flags were is told by the
// files and their copies. Nothing is written.
func Back(ctx context.Context, files Files, apiservers []string, folder *Folder) (Move, error) {
	s, begun, err := folder.load()
	switch {
	case err != nil:
		return Move{}, err
	case !begun:
		return Move{}, fmt.Errorf("folder %s has no rotation that could go back: name the folder of --state that it began with", folder.Path)
	}
	if _, err := s.Abort(nil, false); errors.Is(err, rotation.ErrNoWayBack) {
		return Move{}, err
	}
	two := s.Move
	found, err := filesOf(ctx, files, apiservers, s.Plan, folder)
	if err != nil {
		return Move{}, err
	}
	kind, _, local := rotation.Local(two.New[0])
	m := Move{From: two.Old, To: two.New, Keyless: two.Keyless, Local: local, Back: two.Back}
	if m.Back == nil {
		m.Back = &rotation.Back{}
	}
	targets := []Target{{Kind: config.Kind(kind)}}
	if !local {
		targets = pluginsIn(found, m, folder.copies())
	}
	var key []byte
	if m.newKey() {
		if key, err = keyOf(found, m.To[0]); err != nil {
			return m, err
		}
	}
	if err := m.lead(targets, key, found, s, folder); err != nil {
		return m, err
	}
	if m.Back.With == nil {
		m.Back = m.wroteBefore(found)
	}
	return m, nil
}

// namesAlone are the changes of a file as it was before, without what is new but its name.
func namesAlone(m Move, file []byte) []edit.Replacement {
	t := Target{Kind: config.KMSv2, Plugins: func(string) (all []edit.Provider) {
		for _, name := range m.To {
			all = append(all, edit.Provider{Name: name})
		}
		return all
	}}
	if m.Local {
		t = Target{Kind: config.AESCBC}
	}
	changes, _ := t.changes(m, "", file, func() []byte { return nil })
	return changes
}

// wroteBefore are those that wrote before a move, as its way back has them.
func (m *Move) wroteBefore(files map[string][]byte) *rotation.Back {
	b := &rotation.Back{}
	for _, apiserver := range slices.Sorted(maps.Keys(files)) {
		for _, c := range m.Changes(apiserver) {
			if !slices.Contains(b.With, c.Old) {
				b.With = append(b.With, c.Old)
			}
		}
		c, err := configurationOf(files[apiserver], "")
		if err != nil {
			continue // which filesOf tells of
		}
		for _, p := range c.Providers() {
			b.Keyless = b.Keyless || p.Kind() != config.KMSv2 && slices.Contains(b.With, namesOf(p)[0])
		}
	}
	// Several may have a key each, and no one key_id is agreed on then.
	b.Keyless = b.Keyless || len(b.With) > 1 || rotation.IsLocal(b.With[0])
	return b
}

// pluginsIn are the targets that a move to plugins may have had, as the files and copies
// have them. What was not said of the timeout is not told from what is usual.
func pluginsIn(files map[string][]byte, m Move, kept copies) []Target {
	f := pluginFinder{names: m.To, of: map[string][]edit.Provider{}}
	for _, apiserver := range slices.Sorted(maps.Keys(files)) {
		for _, file := range [][]byte{files[apiserver], kept.read(rotation.Swapped, apiserver), kept.read(rotation.Added, apiserver)} {
			f.look(apiserver, file)
		}
	}
	var all []Target
	for _, usual := range []time.Duration{envelope.DefaultTimeout, 0} {
		all = append(all, Target{Kind: f.kind, Plugins: func(apiserver string) []edit.Provider {
			plugins := slices.Clone(f.find(apiserver))
			for i, p := range plugins {
				if p.Timeout == usual {
					plugins[i].Timeout = 0
				}
			}
			return plugins
		}})
	}
	return all
}

// pluginFinder finds plugins in files, by apiserver, and under no name those of any.
type pluginFinder struct {
	names []string
	kind  config.Kind
	of    map[string][]edit.Provider
}

func (f *pluginFinder) find(apiserver string) []edit.Provider {
	if known := f.of[apiserver]; known != nil {
		return known
	}
	return f.of[""]
}

// look takes the plugins of a file, in its order, if it has all of them.
func (f *pluginFinder) look(apiserver string, file []byte) {
	c, err := configurationOf(file, "")
	if err != nil || f.of[apiserver] != nil {
		return
	}
	var all []edit.Provider
	for _, p := range c.Providers() {
		if kms := p.KMS(); kms.Name != "" && slices.Contains(f.names, kms.Name) {
			f.kind = p.Kind()
			all = append(all, edit.Provider{Name: kms.Name, Endpoint: kms.Endpoint, Timeout: kms.Timeout, V1: p.Kind() == config.KMSv1})
		}
	}
	if len(all) == len(f.names) {
		f.of[apiserver], f.of[""] = all, all
	}
}
