// Package keyring is one thing: the versions in a file of keys, with the names that they have
// for ever, in an order that is the same on every node.
package keyring

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/kube-atrest/atrest/kmsplugin"
)

// A Key is one version.
type Key[K any] interface {
	// ID is its name in the file: see [NewID].
	ID() string
	// Created is when it was made.
	Created() time.Time
	// Equal tells if the other one is the same in all that must never change.
	Equal(K) bool
	// Version is what the kit knows of it.
	Version() kmsplugin.Version
}

// IDSize is the size of an id in bytes, of which the name is the hexadecimal form.
const IDSize = 16

// NewID draws the name of a new key.
func NewID(random io.Reader) (string, error) {
	var id [IDSize]byte
	if _, err := io.ReadFull(random, id[:]); err != nil {
		return "", fmt.Errorf("randomness for a new id: %w", err)
	}
	return hex.EncodeToString(id[:]), nil
}

// CheckID holds an id from a file against what [NewID] makes.
func CheckID(id string) error {
	if raw, err := hex.DecodeString(id); err != nil || len(raw) != IDSize || id != strings.ToLower(id) {
		return fmt.Errorf("id %.64q is not one of 32 hexadecimal digits", id)
	}
	return nil
}

// A Ring is all keys of a file, the oldest first. It is read-only.
type Ring[K Key[K]] struct {
	Keys   []K
	ByID   map[string]K
	Writes string // id of the one that wraps
	// Destroyed are the ids of those that were, in order: no other file brings one back.
	Destroyed []string
}

// New puts keys in order.
func New[K Key[K]](writes string, keys ...K) *Ring[K] {
	r := &Ring[K]{Keys: slices.SortedFunc(slices.Values(keys), Older[K]), ByID: make(map[string]K, len(keys)), Writes: writes}
	for _, k := range keys {
		r.ByID[k.ID()] = k
	}
	return r
}

// Older orders keys by age, and those of one age in the same way on every node.
func Older[K Key[K]](a, b K) int {
	return cmp.Or(a.Created().Compare(b.Created()), strings.Compare(a.ID(), b.ID()))
}

// Check is what is wrong with a ring that was read, if something is.
func (r *Ring[K]) Check() error {
	if len(r.ByID) < len(r.Keys) {
		return errors.New("it has two keys of one id")
	}
	if _, ok := r.ByID[r.Writes]; !ok {
		return fmt.Errorf("it has no key %.64q, which is to write", r.Writes)
	}
	return r.checkDestroyed()
}

// HasAll is an error if a key of other is not here as it is there, unless it was destroyed.
func (r *Ring[K]) HasAll(other *Ring[K]) error {
	for _, k := range other.Keys {
		switch mine, ok := r.ByID[k.ID()]; {
		case !ok && r.HasDestroyed(k.ID()):
		case !ok:
			return fmt.Errorf("it no longer has version %s", k.ID())
		case !mine.Equal(k):
			return fmt.Errorf("it has something else as version %s", k.ID())
		}
	}
	return nil
}

// Time is when a new key was made: after all others, whatever the clock says.
func (r *Ring[K]) Time(now time.Time) time.Time {
	now = Time(now)
	if newest := r.Keys[len(r.Keys)-1].Created(); !now.After(newest) {
		now = newest.Add(time.Millisecond)
	}
	return now
}

// Time is a time as a file has it.
func Time(now time.Time) time.Time { return now.UTC().Truncate(time.Millisecond) }

// With has one key more, and another that writes.
func (r *Ring[K]) With(k K, writes string) *Ring[K] {
	next := New(writes, append(slices.Clone(r.Keys), k)...)
	next.Destroyed = r.Destroyed
	return next
}

// Joined has the keys of another ring, too, but for those that were destroyed here. Those of one id are as
// they are here.
func (r *Ring[K]) Joined(other *Ring[K]) *Ring[K] {
	keys := slices.Clone(r.Keys)
	for _, k := range other.Keys {
		if _, has := r.ByID[k.ID()]; !has && !r.HasDestroyed(k.ID()) {
			keys = append(keys, k)
		}
	}
	next := New(r.Writes, keys...)
	next.Destroyed = r.Destroyed
	return next
}

// Writing is the same with another key that writes.
func (r *Ring[K]) Writing(id string) *Ring[K] {
	next := *r
	next.Writes = id
	return &next
}

// Find is the key whose id or key_id begins so; the newest if nothing is given.
func (r *Ring[K]) Find(begins string) (K, error) {
	if begins == "" {
		return r.Keys[len(r.Keys)-1], nil
	}
	var none K
	var found []K
	for _, k := range r.Keys {
		if strings.HasPrefix(k.ID(), begins) || strings.HasPrefix(k.Version().KeyID(), begins) {
			found = append(found, k)
		}
	}
	switch len(found) {
	case 0:
		if r.HasDestroyed(begins) {
			return none, fmt.Errorf("%w: %s was destroyed", errNoVersion, begins)
		}
		return none, fmt.Errorf("%w: %.64q is the id of none of its %d versions: list them, or merge the file that has it", errNoVersion, begins, len(r.Keys))
	case 1:
		return found[0], nil
	}
	return none, fmt.Errorf("%w: %.64q is the beginning of %d ids: give more of it", errNoVersion, begins, len(found))
}

var errNoVersion = errors.New("no version")

// Versions are all, for the kit.
func (r *Ring[K]) Versions() kmsplugin.Versions {
	var vs kmsplugin.Versions
	for i, k := range r.Keys {
		vs.All = append(vs.All, k.Version())
		if k.ID() == r.Writes {
			vs.Writes = i
		}
	}
	return vs
}
