package tpm

import "io"

// SetRandom sets where new keys and their ids come from.
func SetRandom(s *Store, random io.Reader) { s.random = random }

// Decode reads a file, and Encode writes it.
var (
	Decode = func(data []byte) (*Ring, error) { return decode(data) }
	Encode = func(r *Ring) ([]byte, error) { return encode(r) }
)

// Ring is all keys of a file.
type Ring = ring

// Parts are the two parts of the key that writes.
func Parts(r *Ring) (public, private []byte) {
	k := r.ByID[r.Writes]
	return k.sealed.public, k.sealed.private
}

// Exchange has two keys change what is sealed as them, under their names.
func Exchange(r *Ring) *Ring {
	a, b := r.Keys[0], r.Keys[1]
	a.sealed, b.sealed, a.recovery, b.recovery = b.sealed, a.sealed, b.recovery, a.recovery
	r.Keys[0], r.Keys[1] = a, b
	return r
}
