package retire

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kube-atrest/atrest/internal/hashed"
	"github.com/kube-atrest/atrest/operate/audit"
)

// Subject is what is to go: a KMS provider by its name, or a key_id by its hash.
// Exactly one is set.
type Subject struct{ Provider, KeyID string }

// String is what it is called in an answer.
func (r Subject) String() string {
	if r.Provider != "" {
		return fmt.Sprintf("KMS provider %q", r.Provider)
	}
	return "key_id " + r.KeyID
}

// opens reports whether it takes r to open what is stored in a form.
func (r Subject) opens(f audit.Form) bool {
	if r.Provider != "" {
		return f.Kind.IsKMS() && f.Name == r.Provider
	}
	return f.KeyIDHash == r.KeyID
}

// As is what somebody says that a name is of.
type As int

// What a name is of.
const (
	Anything As = iota
	AProvider
	AKeyID // or the hash of one
)

// ErrAmbiguous says that a name is of two things.
var ErrAmbiguous = errors.New("say which, with --provider or --key-id")

// Identify finds out what a name is of. The error wraps [ErrAmbiguous] if that
// has to be said; any other lists what there is. What is known as the other kind alone
// is refused: that nothing needs it as this one is no answer to what was meant.
func (e Evidence) Identify(name string, as As) (Subject, error) {
	providers, keyIDs := e.names()
	if strings.HasPrefix(name, "sha256:") && !hashed.IsName(name) && !providers[name] {
		return Subject{}, fmt.Errorf("%q is the beginning of a hash: give all of it, as atrest audit -o json does", name)
	}
	keyID := hashed.ID(name)
	if hashed.IsName(name) && !keyIDs[keyID] {
		keyID = name
	}
	isProvider, isKeyID := providers[name], keyIDs[keyID]
	if raw, prefixed := strings.CutPrefix(name, "sha256:"); prefixed && !isKeyID && !isProvider && keyIDs[hashed.ID(raw)] {
		return Subject{}, fmt.Errorf("%q is no hash of a key_id, and without sha256: it is a key_id: name it as it is, or by its hash, %s", name, hashed.ID(raw))
	}
	if bare := "sha256:" + strings.ToLower(name); !isProvider && !isKeyID && hashed.IsName(bare) && (as != AProvider || keyIDs[bare]) {
		return Subject{}, fmt.Errorf("nothing knows %q, which looks like a hash: write %s, or if it is a key_id itself, %s", name, bare, keyID)
	}
	if _, isKey := providers[name]; isKey && !isProvider && !isKeyID { // whatever it is said to be
		return Subject{}, fmt.Errorf("%q is a key of the configuration file, and not of a KMS: atrest audit counts what is stored under it; "+
			"if a key_id of that name is meant, name it by its hash, %s", name, keyID)
	}
	switch {
	case as == AProvider && isKeyID && !isProvider:
		return Subject{}, fmt.Errorf("%q is a key_id, and nothing knows a KMS provider of that name: leave --provider out", name)
	case as == AKeyID && isProvider && !isKeyID:
		return Subject{}, fmt.Errorf("%q is a KMS provider, and nothing knows a key_id of that name: leave --key-id out, or if the key_id is meant, name it by its hash, %s", name, keyID)
	case as == AProvider, as == Anything && isProvider && !isKeyID:
		return Subject{Provider: name}, nil
	case as == AKeyID, isKeyID && !isProvider:
		return Subject{KeyID: keyID}, nil
	case isProvider:
		return Subject{}, fmt.Errorf("%q is a KMS provider and a key_id: %w", name, ErrAmbiguous)
	}
	return Subject{}, fmt.Errorf("nothing knows %q: there are the KMS providers %s and the key_ids %s; "+
		"if it was one of them and is gone from everywhere, say which, with --provider or --key-id", name, someOf(providers), someOf(keyIDs))
}

// names are all KMS providers, and all key_ids by their hashes.
func (e Evidence) names() (providers, keyIDs map[string]bool) {
	providers, keyIDs = map[string]bool{}, map[string]bool{}
	for _, stock := range e.stocks() {
		for _, resource := range stock.Report.Resources {
			for _, c := range resource.Forms {
				providers[c.Name] = providers[c.Name] || c.Kind.IsKMS()
				keyIDs[c.KeyIDHash] = true
			}
		}
	}
	for _, seen := range e.Apiservers {
		for _, i := range seen {
			for name, p := range i.Providers {
				providers[name], keyIDs[p.KeyID], keyIDs[p.WroteKeyID] = true, true, true
			}
		}
	}
	delete(providers, "") // of what is stored in no form that has one
	delete(keyIDs, "")
	return providers, keyIDs
}

// someOf lists a few names.
func someOf(names map[string]bool) string {
	const few = 20
	var all []string
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if names[name] {
			all = append(all, name)
		}
	}
	switch more := len(all) - few; {
	case len(all) == 0:
		return "(none)"
	case more > 0:
		return fmt.Sprintf("%s and %d more", strings.Join(all[:few], ", "), more)
	}
	return strings.Join(all, ", ")
}
