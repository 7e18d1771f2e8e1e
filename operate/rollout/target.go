package rollout

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/operate/rotation"
	"github.com/kube-atrest/atrest/operate/rotation/edit"
)

// Target is what a cluster is to be written with, from whatever writes now.
type Target struct {
	// Kind is any but [config.KMSv1] and [config.KMSv2] for a new key in the files, or
	// for none at all.
	Kind config.Kind
	// Plugins are, for KMS, the new providers of an apiserver: one, or where several
	// entries of its file are moved, one for each.
	Plugins func(apiserver string) []edit.Provider
	// Now is what a new key is named by.
	Now time.Time
}

// ErrAlready says that everything is written with the target.
var ErrAlready = errors.New("everything is written with it already")

// keySize is that of a new key, in bytes: AES-256, and all that secretbox takes.
const keySize = 32

// Move is the move there from what the files say. What has begun in the folder goes on,
// with the key that is in the files. Nothing is written.
func (t Target) Move(ctx context.Context, files Files, apiservers []string, folder *Folder) (Move, error) {
	s, begun, err := folder.load()
	if err != nil {
		return Move{}, err
	}
	if begun && s.Move == nil {
		return Move{}, fmt.Errorf("folder %s %w", folder.Path, ErrAnother)
	}
	if err := folder.errIfBack(s); err != nil {
		return Move{}, err
	}
	found, err := filesOf(ctx, files, apiservers, s.Plan, folder)
	if err != nil {
		return Move{}, err
	}
	if begun {
		if m, ok, err := t.goOn(found, s, folder); ok || err != nil {
			return m, err
		}
	}
	return t.begin(found)
}

// filesOf are the files of apiservers, also one whose write was cut off as it was to be.
func filesOf(ctx context.Context, files Files, apiservers []string, p rotation.Plan, folder *Folder) (map[string][]byte, error) {
	found := map[string][]byte{}
	for _, apiserver := range apiservers {
		file, err := files.Read(ctx, apiserver)
		if err != nil {
			return nil, fmt.Errorf("configuration of %s: %w", apiserver, err)
		}
		if whole := folder.copies().whole(apiserver, p.Configs[apiserver], file); whole != nil {
			file = whole
		}
		if _, err := configurationOf(file, "configuration of "+apiserver); err != nil {
			return nil, err
		}
		found[apiserver] = file
	}
	return found, nil
}

// begin plans a move that has not begun.
func (t Target) begin(files map[string][]byte) (Move, error) {
	entries := map[string][]edit.Entry{}
	encrypted := false
	for _, apiserver := range slices.Sorted(maps.Keys(files)) {
		all, err := edit.Entries(files[apiserver])
		if err != nil {
			return Move{}, fmt.Errorf("configuration of %s: %w", apiserver, err)
		}
		entries[apiserver] = all
		encrypted = encrypted || slices.ContainsFunc(all, func(e edit.Entry) bool { return !e.Writes(rotation.Plain) })
	}
	m := Move{To: t.names(entries), Keyless: t.Kind != config.KMSv2, Local: !t.Kind.IsKMS(), Fresh: true}
	if err := m.leave(entries, encrypted); err != nil {
		return m, err
	}
	var err error
	changes, secret := map[string][]edit.Replacement{}, t.newSecret()
	for _, apiserver := range slices.Sorted(maps.Keys(files)) {
		if changes[apiserver], err = t.changes(m, apiserver, files[apiserver], secret); err != nil {
			return m, fmt.Errorf("configuration of %s: %w", apiserver, err)
		}
	}
	m.Changes = func(apiserver string) []edit.Replacement { return changes[apiserver] }
	return m, nil
}

// leave has a move leave all that is written with and is not its end. Plain text is
// left if nothing is encrypted: else it is meant to be so.
func (m *Move) leave(entries map[string][]edit.Entry, encrypted bool) error {
	first, writing := "", []string(nil)
	for _, apiserver := range slices.Sorted(maps.Keys(entries)) {
		var writes []string
		for _, e := range entries[apiserver] {
			if e.Writes(m.To...) || encrypted && e.Writes(rotation.Plain) {
				continue
			}
			writes = append(writes, e.Providers[0][0])
			for _, name := range e.Providers[0] {
				if !slices.Contains(m.From, name) {
					m.From = append(m.From, name)
				}
			}
		}
		slices.Sort(writes)
		writes = slices.Compact(writes)
		if first == "" {
			first, writing = apiserver, writes
		}
		if !slices.Equal(writes, writing) {
			return fmt.Errorf("%s writes with %s, and %s with %s: finish what was begun there, or give them one configuration",
				first, orNothing(writing), apiserver, orNothing(writes))
		}
	}
	if len(m.From) == 0 {
		return m.already(entries)
	}
	return nil
}

// already is the error where there is nothing to leave: what is read with behind the end of
// a move may be what objects are stored with still, as when the state was lost.
func (m *Move) already(entries map[string][]edit.Entry) error {
	var left []string
	for _, apiserver := range slices.Sorted(maps.Keys(entries)) {
		for _, e := range entries[apiserver] {
			for _, name := range slices.Concat(e.Providers...) {
				if e.Writes(m.To...) && name != rotation.Plain && !slices.Contains(slices.Concat(m.To, left), name) {
					left = append(left, name)
				}
			}
		}
	}
	if left == nil {
		return fmt.Errorf("%w: %s", ErrAlready, shownNames(m.To))
	}
	return fmt.Errorf("%s is written with from now on, and %s is read with still, which objects may need: what is stored was not looked at: "+
		"have it rewritten with atrest migrate, see with atrest audit that nothing is left, and take %[2]s out of the configurations then",
		shownNames(m.To), strings.Join(left, ", "))
}

func orNothing(writes []string) string {
	return cmp.Or(strings.Join(writes, ", "), "nothing that is to be left")
}

// newSecret makes a key, if it takes one.
func (t Target) newSecret() func() []byte {
	if t.Kind.IsKMS() || t.Kind == config.Identity {
		return nil
	}
	key := make([]byte, keySize)
	_, _ = rand.Read(key) // which never fails
	return func() []byte { return bytes.Clone(key) }
}

// names are those of what is to be written with. That of a key is one that no other of its kind
// has, or had: a backup would be read with the wrong one.
func (t Target) names(entries map[string][]edit.Entry) []string {
	switch {
	case t.Kind == config.Identity:
		return []string{rotation.Plain}
	case t.Kind.IsKMS():
		return t.plugins()
	}
	at := string(t.Kind) + ":key-" + t.Now.UTC().Format("20060102-150405")
	for name, n := at, 2; ; name, n = fmt.Sprintf("%s-%d", at, n), n+1 {
		taken := false
		for _, all := range entries {
			taken = taken || slices.ContainsFunc(all, func(e edit.Entry) bool { return e.Has(name) })
		}
		if !taken {
			return []string{name}
		}
	}
}

// plugins are the names of the new KMS providers, which are the same of all apiservers.
func (t Target) plugins() (names []string) {
	for _, p := range t.Plugins("") {
		names = append(names, p.Name)
	}
	return names
}

// changes are what becomes of the file of an apiserver: of each entry that is written
// with what is left.
func (t Target) changes(m Move, apiserver string, before []byte, secret func() []byte) ([]edit.Replacement, error) {
	entries, err := edit.Entries(before)
	if err != nil {
		return nil, err
	}
	var all []edit.Replacement
	for i, e := range entries {
		if e.Writes(m.From...) {
			all = append(all, edit.Replacement{Old: e.Providers[0][0], With: e.Providers[0][1:], New: edit.Provider{Name: m.To[0], Secret: secret}, Entry: i + 1})
		}
	}
	switch {
	case len(all) == 0:
		return nil, fmt.Errorf("nothing is written with %s in it: bring the configurations of all apiservers in line first", strings.Join(m.From, ", "))
	case t.Kind.IsKMS() && len(all) != len(m.To):
		return nil, fmt.Errorf("%d entries are moved, and a KMS provider is for one entry: name as many with --to kms:NAME,... and --endpoint, or join the entries", len(all))
	}
	if t.Kind.IsKMS() {
		for i, p := range t.Plugins(apiserver) {
			all[i].New = p.As(before)
		}
	}
	return all, nil
}
