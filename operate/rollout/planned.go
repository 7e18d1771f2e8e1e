package rollout

import (
	"fmt"
	"maps"
	"path"
	"slices"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/internal/hashed"
	"github.com/kube-atrest/atrest/operate/rotation"
	"github.com/kube-atrest/atrest/operate/rotation/edit"
)

// planned are the hashes of the files of all stages, by apiserver. A file may be
// of a later stage already, of a rotation whose state is lost or one that went on
// without this apiserver. What one of the last stage was before is known from a
// copy, or from the file of another apiserver, if the very same file comes of it.
func planned(files map[string][]byte, changes func(apiserver string) []edit.Replacement, kept copies) (map[string][]string, error) {
	all := map[string][]string{}
	var before [][]byte // of those that tell
	var last []string   // those whose file is of the last stage
	for _, apiserver := range slices.Sorted(maps.Keys(files)) {
		first, _, err := beginningOf(files[apiserver], changes(apiserver))
		if err == nil {
			all[apiserver], err = courseOf(files[apiserver], changes(apiserver))
			before = append(before, first)
		} else if isLast(files[apiserver], changes(apiserver)) {
			last, err = append(last, apiserver), nil
		}
		if err != nil {
			return nil, fmt.Errorf("configuration of %s: %w", apiserver, err)
		}
	}
	for _, apiserver := range last {
		known := append(slices.Clone(before), kept.all(rotation.Before)...)
		if all[apiserver] = lastHashes(files[apiserver], known, changes(apiserver)); all[apiserver] == nil {
			return nil, fmt.Errorf("configuration of %s: %w", apiserver, unknownBefore(changes(apiserver)))
		}
	}
	return all, nil
}

// beforeOf is the file before a rotation, of one that has begun or not.
func beforeOf(file []byte, changes []edit.Replacement) ([]byte, error) {
	before, _, err := beginningOf(file, changes)
	return before, err
}

// beginningOf is the file before a rotation, and the stage that the file is of. It is of a
// later stage if it says the same, whoever wrote it: a rotation goes back by one the other
// way, which finds its new provider there.
func beginningOf(file []byte, changes []edit.Replacement) (before []byte, at rotation.Stage, err error) {
	for _, stage := range []rotation.Stage{rotation.Swapped, rotation.Added} {
		before, err := edit.Retreat(file, stage, changes...)
		if err != nil {
			continue
		}
		again, err := edit.Advance(before, rotation.Before, stage, changes...)
		if err == nil && edit.Same(again, file) {
			return before, stage, nil
		}
	}
	_, err = edit.Advance(file, rotation.Before, rotation.Removed, changes...)
	return file, rotation.Before, err
}

// courseOf are the hashes of the files of all stages, of which a file is one.
func courseOf(file []byte, changes []edit.Replacement) ([]string, error) {
	before, at, err := beginningOf(file, changes)
	if err != nil {
		return nil, err
	}
	hashes, err := plannedHashes(before, changes)
	if err != nil {
		return nil, err
	}
	for i := slices.Index(rotation.Stages[:], at); i < len(hashes); i++ { // as it is written now
		later, err := edit.Advance(file, at, rotation.Stages[i], changes...)
		if err != nil {
			return nil, err
		}
		hashes[i] = hashed.Name(later)
	}
	if at == rotation.Added && edit.Same(before, file) { // what is to be added was read with before
		hashes[0] = hashed.Name(file)
	}
	return hashes, nil
}

// isLast reports whether a file has all new providers and no old one, each in the entry
// that it is for: another one may be read with the old one on and on.
func isLast(file []byte, changes []edit.Replacement) bool {
	entries, err := edit.Entries(file)
	if err != nil {
		return false
	}
	return !slices.ContainsFunc(changes, func(r edit.Replacement) bool {
		at := entries
		if r.Entry > 0 {
			at = entries[min(r.Entry-1, len(entries)):min(r.Entry, len(entries))]
		}
		some := func(name string) bool {
			return slices.ContainsFunc(at, func(e edit.Entry) bool { return e.Has(name) })
		}
		return some(r.Old) || !some(r.New.Name)
	})
}

// lastHashes are those of the stages of which the last one is a file, which one
// of the files before leads to; none if that is not so.
func lastHashes(file []byte, before [][]byte, changes []edit.Replacement) []string {
	for _, first := range before {
		hashes, err := plannedHashes(first, changes)
		if err == nil && hashes[len(hashes)-1] == hashed.Name(file) {
			return hashes
		}
	}
	return nil
}

func unknownBefore(changes []edit.Replacement) error {
	var from, to []string
	for _, r := range changes {
		from, to = append(from, r.Old), append(to, r.New.Name)
	}
	return fmt.Errorf("it has %s and no longer %s, as after the last step of this rotation, and neither the file of another apiserver nor a copy in the folder --state "+
		"tells what it was before: name the folder that the rotation began with, or put %s back behind %s; if no apiserver has %s any more, atrest retire says whether it may go",
		quoted(to), quoted(from), quoted(from), quoted(to), quoted(from))
}

// plannedHashes are those of the files of all stages. Every stage has to be a
// file that an apiserver takes, and the new providers plugins of their own.
func plannedHashes(before []byte, changes []edit.Replacement) ([]string, error) {
	for _, stage := range rotation.Stages {
		next, err := edit.Advance(before, rotation.Before, stage, changes...)
		if err != nil {
			return nil, err
		}
		c, err := configurationOf(next, "stage "+string(stage))
		if err != nil {
			return nil, err
		}
		if err := ownSockets(c, changes); err != nil {
			return nil, err
		}
	}
	return edit.Hashes(before, changes...)
}

// ownSockets tells if a new provider is on the plugin of one that is there: its
// key would be no new one.
func ownSockets(c *config.Configuration, changes []edit.Replacement) error {
	isNew := func(name string) bool {
		return slices.ContainsFunc(changes, func(r edit.Replacement) bool { return r.New.Name == name })
	}
	taken := map[string]string{}
	for _, p := range c.Providers() {
		if kms := p.KMS(); kms.Address != "" && !isNew(kms.Name) {
			taken[path.Clean(kms.Address)] = kms.Name
		}
	}
	for _, p := range c.Providers() {
		kms := p.KMS()
		if other, ok := taken[path.Clean(kms.Address)]; ok && isNew(kms.Name) {
			return fmt.Errorf("the new provider %q has the endpoint of %q, and would be the same plugin with the same key: "+
				"start the new plugin on a socket of its own, and name that one by --endpoint", kms.Name, other)
		}
	}
	return nil
}
