package lookahead

import (
	"bytes"
	"hash/maphash"

	"github.com/kube-atrest/atrest/internal/stored"
)

// deks are those met so far. It takes some bytes for each.
type deks struct {
	seed maphash.Seed
	met  map[uint64]struct{}
}

func newDEKs() deks { return deks{seed: maphash.MakeSeed(), met: map[uint64]struct{}{}} }

// meet reports whether a value is the first met of its DEK. One that was not
// sealed under KMS v2 has none.
func (d deks) meet(value []byte) bool {
	sealed, ok := sealedDEK(value)
	if !ok {
		return false
	}
	id := maphash.Bytes(d.seed, sealed)
	_, before := d.met[id]
	d.met[id] = struct{}{}
	return !before
}

// sealedDEK is what stands behind the data of a value: the same for all that one
// server sealed under one DEK. Of two providers that have one plugin, it is the
// same too.
func sealedDEK(value []byte) ([]byte, bool) {
	named, ok := bytes.CutPrefix(value, []byte(stored.KMSv2.Prefix))
	if !ok {
		return nil, false
	}
	_, payload, _ := bytes.Cut(named, []byte(":"))
	_, sealed, ok := stored.Split(payload)
	return sealed, ok
}
