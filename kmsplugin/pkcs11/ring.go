//go:build cgo

package pkcs11

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kube-atrest/atrest/kmsplugin"
)

// A finding is what was found over one line, or over several: how often each key that unwraps is
// there, and what is wrong.
type finding struct {
	keys    map[keyID]int
	wrong   map[string]bool
	partial bool // there was no time for all, or something wrong was read once
	stale   bool // a handle may be another key's by now, which may be a new one
}

// found is what is known of the objects that were read; once is with what was wrong the only time.
func (l *line) found(once bool) finding {
	f := finding{keys: map[keyID]int{}, wrong: map[string]bool{}}
	for _, known := range l.known {
		if known.bad != nil && !once && !known.sure {
			continue // half of a key: neither wrong yet, nor one to wrap under
		}
		if known.bad != nil {
			f.wrong[known.bad.Error()] = true
		}
		if known.unwraps() && !known.at.IsZero() {
			f.keys[known.id]++
		}
	}
	for id, n := range f.keys {
		if n > 1 {
			f.wrong[fmt.Sprintf("version %s is there %d times, with one CKA_ID %x: delete those that are no copy of the first, once nothing needs them", id.label(), n, id[:])] = true
		}
	}
	return f
}

// hasAll reports whether all keys of a ring are there, and any at all.
func (f finding) hasAll(r *ring) bool {
	return len(f.keys) > 0 && !slices.ContainsFunc(r.ids, func(id keyID) bool { return f.keys[id] == 0 })
}

// lacks reports whether others have a key that is not there.
func (f finding) lacks(others finding) bool {
	for id := range others.keys {
		if f.keys[id] == 0 {
			return true
		}
	}
	return false
}

// add adds what was found over another line.
func (f *finding) add(other finding) {
	f.stale = f.stale || other.stale
	for id, n := range other.keys {
		f.keys[id] = max(f.keys[id], n)
	}
	maps.Copy(f.wrong, other.wrong)
}

// A ring is the keys of a label as a look found them: over which lines is no matter here. It is
// read-only.
type ring struct {
	ids []keyID // the oldest first
	// problem is why nothing is to be wrapped, whatever unwraps.
	problem error
	// partial is that not all could be asked, so that there may be others.
	partial bool
}

// ring is what a finding comes to.
func (t *Token) ring(f finding) *ring {
	r := &ring{ids: slices.SortedFunc(maps.Keys(f.keys), older)}
	switch {
	case len(f.wrong) > 0:
		wrong := strings.Join(slices.Sorted(maps.Keys(f.wrong)), "\n")
		r.problem = fmt.Errorf("%w: %w: %s, key %q: %s", kmsplugin.ErrKeyDisabled, ErrMistake, t, t.config.Key, wrong)
	case len(f.keys) == 0:
		r.problem = fmt.Errorf("%w: %w: %s has no secret key with the label %q: restore it or, if there never was one, make it with \"atrest-kms-plugin pkcs11 create\"", kmsplugin.ErrKeyDisabled, ErrNoKey, t, t.config.Key)
	}
	return r
}

func (r *ring) has(id keyID) bool {
	_, has := slices.BinarySearchFunc(r.ids, id, older)
	return has
}

func (r *ring) versions() kmsplugin.Versions {
	found := kmsplugin.Versions{Writes: len(r.ids) - 1, Partial: r.partial}
	for _, id := range r.ids {
		found.All = append(found.All, id.version())
	}
	return found
}

// beside is with what others may have still.
func (r *ring) beside(before *ring) *ring {
	all := &ring{ids: slices.Clone(r.ids), problem: r.problem, partial: true}
	if len(r.ids) > 0 { // to who sees none at all, none is hidden
		for _, id := range before.ids {
			if !r.has(id) {
				all.ids = append(all.ids, id)
			}
		}
	}
	slices.SortFunc(all.ids, older)
	return all
}
