package rollout

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/internal/hashed"
	"github.com/kube-atrest/atrest/operate/rotation"
	"github.com/kube-atrest/atrest/operate/rotation/edit"
)

// goOn is the move that has begun. ok is not set if nothing was done for it: then it
// begins anew, as the key that it was to bring is nowhere.
func (t Target) goOn(files map[string][]byte, s rotation.State, folder *Folder) (m Move, ok bool, err error) {
	two := s.Move
	m = Move{From: two.Old, To: two.New, Keyless: two.Keyless, Local: !t.Kind.IsKMS()}
	kind, _, local := rotation.Local(m.To[0])
	if local == t.Kind.IsKMS() || local && kind != string(t.Kind) || !local && !slices.Equal(m.To, t.plugins()) {
		return m, true, fmt.Errorf("folder %s %w: it is of a move to %s", folder.Path, ErrAnother, shownNames(m.To))
	}
	var key []byte
	if m.newKey() {
		key, err = keyOf(files, m.To[0])
		switch {
		case err != nil:
			return m, true, err
		case key == nil && !two.Begun():
			return m, false, nil
		case key == nil && two.Finished:
			return m, true, fmt.Errorf("%w: key %s is in no configuration any more, and objects may be stored under it unless a later rotation replaced it: put back the files that have it", ErrUndone, m.To[0])
		case key == nil:
			return m, true, fmt.Errorf("key %s is in no configuration any more, and objects may be stored under it: put back the files that have it", m.To[0])
		}
	}
	if err := t.suits(files, m.To, s); err != nil {
		return m, true, err
	}
	return m, true, m.lead([]Target{t}, key, files, s, folder)
}

// lead sets the changes that led to the files as they are, by the first of the targets that
// has some. On the way back nobody needs to know more than the names of a file that is as
// it was before.
func (m *Move) lead(targets []Target, key []byte, files map[string][]byte, s rotation.State, folder *Folder) error {
	secret := func() []byte { return bytes.Clone(key) }
	changes := map[string][]edit.Replacement{}
	for _, apiserver := range slices.Sorted(maps.Keys(files)) {
		known := s.Plan.Configs[apiserver] // nothing of one that came later
		at := slices.Index(known, hashed.Name(files[apiserver]))
		if like := likeBefore(s.Plan, files[apiserver]); at < 0 && like != nil && m.Back != nil {
			known, at = like, 0
		}
		for _, t := range targets {
			if changes[apiserver] == nil && (known == nil || at >= 0) {
				changes[apiserver] = t.leadingTo(*m, apiserver, files, known, secret, folder.copies())
			}
		}
		if changes[apiserver] == nil && at == 0 && m.Back != nil {
			changes[apiserver] = namesAlone(*m, files[apiserver])
		}
		if changes[apiserver] == nil {
			return fmt.Errorf("configuration of %s: %w", apiserver, m.astray(apiserver, files, s, folder))
		}
	}
	m.Changes = func(apiserver string) []edit.Replacement { return changes[apiserver] }
	return nil
}

// suits is an error if the files have other endpoints of the new plugins than the flags.
func (t Target) suits(files map[string][]byte, to []string, s rotation.State) error {
	if !t.Kind.IsKMS() {
		return nil
	}
	parsed := map[string]*config.Configuration{}
	for apiserver, file := range files {
		parsed[apiserver], _ = configurationOf(file, "") // as it was before
	}
	return Move{To: to, Changes: func(apiserver string) (all []edit.Replacement) {
		for _, p := range t.Plugins(apiserver) {
			all = append(all, edit.Replacement{New: p})
		}
		return all
	}}.suits(configurations{parsed: parsed}, s)
}

// astray tells why the file of an apiserver is no way to the end of a move that has begun.
func (m *Move) astray(apiserver string, files map[string][]byte, s rotation.State, folder *Folder) error {
	known, begun := s.Plan.Configs[apiserver], s.Move.Begun()
	switch {
	case s.Move.Finished:
		return fmt.Errorf("%w: put back the file that it ended with, or name a new folder to rotate again", ErrUndone)
	case slices.Contains(known, hashed.Name(files[apiserver])) && !m.Local && !begun:
		return fmt.Errorf("it is of this move, and these flags do not lead to it: give --endpoint and --plugin-timeout as at the beginning, "+
			"or put before-*.yaml of %s in the place of all, as nothing is written with %s yet, and name a new folder", folder.Path, shownNames(m.To))
	case slices.Contains(known, hashed.Name(files[apiserver])):
		return fmt.Errorf("it is of this move, and neither another file nor a copy in %s leads to it with these flags: give those that it began with, "+
			"--endpoint and --plugin-timeout among them, and the folder with its before-*.yaml", folder.Path)
	}
	return fmt.Errorf("it is none of this move's, as far as the other files and the copies in %s tell: %s",
		folder.Path, m.found(files, s, folder).mend(apiserver, begun))
}

// found are the stages of a move that has begun, and the files as they are.
func (m *Move) found(files map[string][]byte, s rotation.State, folder *Folder) *stages {
	r := &stages{hashes: s.Plan.Configs, copies: folder.copies(), local: m.newKey(), back: m.Back != nil, seen: map[string]onDisk{}}
	for apiserver, file := range files {
		r.seen[apiserver] = onDisk{hash: hashed.Name(file)}
	}
	return r
}

// leadingTo are the changes that lead to the file of an apiserver, from some file or copy
// as it was before, and on to the end that was planned; nil if there is none.
func (t Target) leadingTo(m Move, apiserver string, files map[string][]byte, planned []string, secret func() []byte, kept copies) []edit.Replacement {
	earlier := [][]byte{kept.read(rotation.Before, apiserver), files[apiserver]}
	for _, other := range slices.Sorted(maps.Keys(files)) {
		earlier = append(earlier, files[other])
	}
	for _, file := range slices.Concat(earlier, kept.all(rotation.Before), kept.all(rotation.Added)) {
		changes, err := t.changes(m, apiserver, file, secret)
		if err != nil {
			continue
		}
		hashes, err := courseOf(file, changes)
		if err != nil || planned != nil && planned[len(planned)-1] != hashes[len(hashes)-1] {
			continue
		}
		if slices.Contains(hashes, hashed.Name(files[apiserver])) {
			return changes
		}
	}
	return nil
}

// keyOf is the key of a name that the files have, or nil.
func keyOf(files map[string][]byte, name string) (key []byte, err error) {
	first := ""
	for _, apiserver := range slices.Sorted(maps.Keys(files)) {
		c, err := configurationOf(files[apiserver], "")
		if err != nil {
			return nil, err
		}
		for _, p := range c.Providers() {
			for i, has := range p.Keys() {
				if namesOf(p)[i] != name {
					continue
				}
				if key != nil && !bytes.Equal(key, has.Secret()) {
					return nil, fmt.Errorf("configurations of %s and %s: key %s is not the same in both: see which one was changed", first, apiserver, name)
				}
				key, first = has.Secret(), apiserver
			}
		}
	}
	return key, nil
}
