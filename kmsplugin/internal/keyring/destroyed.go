package keyring

import (
	"errors"
	"fmt"
	"slices"
)

// ToDestroy is the key of an id or a key_id, which has to be given whole. The one that writes
// is refused.
func (r *Ring[K]) ToDestroy(id string) (K, error) {
	k, err := r.Find(id)
	switch {
	case err != nil:
	case id != k.ID() && id != k.Version().KeyID():
		err = fmt.Errorf("%w: %.64q is only the beginning of an id: give all of it", errNoVersion, id)
	case k.ID() == r.Writes:
		err = fmt.Errorf("version %s is not destroyed: it wraps: activate another one first, and write anew what is stored under this one", k.ID())
	}
	return k, err
}

// Without has one key less, and remembers that.
func (r *Ring[K]) Without(gone K) *Ring[K] {
	next := New(r.Writes, slices.DeleteFunc(slices.Clone(r.Keys), func(k K) bool { return k.ID() == gone.ID() })...)
	next.Destroyed = slices.Sorted(slices.Values(append(slices.Clone(r.Destroyed), gone.ID())))
	return next
}

// HasDestroyed reports whether the key of an id was destroyed.
func (r *Ring[K]) HasDestroyed(id string) bool {
	_, found := slices.BinarySearch(r.Destroyed, id)
	return found
}

// Spares is an error if what writes in other was destroyed here.
func (r *Ring[K]) Spares(other *Ring[K]) error {
	if r.HasDestroyed(other.Writes) {
		return fmt.Errorf("version %s was destroyed in one of the files, and wraps in the other: activate another one there first", other.Writes)
	}
	return nil
}

// Forgets is an error if something was destroyed in other, and is not known here as that.
func (r *Ring[K]) Forgets(other *Ring[K]) error {
	for _, id := range other.Destroyed {
		if !r.HasDestroyed(id) {
			return fmt.Errorf("version %s was destroyed, and it does not know: merge it instead or, to have that version back, move this file away first", id)
		}
	}
	return nil
}

// checkDestroyed holds what a file says of keys that it has no more against what is written.
func (r *Ring[K]) checkDestroyed() error {
	for i, id := range r.Destroyed {
		if err := CheckID(id); err != nil {
			return err
		}
		if _, has := r.ByID[id]; has {
			return fmt.Errorf("it has key %s, and says that it was destroyed", id)
		}
		if i > 0 && r.Destroyed[i-1] >= id {
			return errors.New("what was destroyed is not in order")
		}
	}
	return nil
}
