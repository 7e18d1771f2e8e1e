package interop

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"

	"k8s.io/apiserver/pkg/storage/value"

	"github.com/kube-atrest/atrest/internal/stored"
)

// verdict is what a server makes of a stored value.
type verdict struct {
	opened, stale, panicked bool
	value                   string
}

func (v verdict) String() string {
	switch {
	case v.panicked:
		return "panics"
	case !v.opened:
		return "does not open it"
	case len(v.value) > 40:
		return fmt.Sprintf("opens it to %d bytes, stale: %t", len(v.value), v.stale)
	}
	return fmt.Sprintf("opens it to %q, stale: %t", v.value, v.stale)
}

func (s server) read(data []byte, at value.Context) (v verdict) {
	defer func() {
		if recover() != nil {
			v = verdict{panicked: true}
		}
	}()
	out, stale, err := s.TransformFromStorage(context.Background(), data, at)
	if err != nil {
		return verdict{}
	}
	return verdict{opened: true, stale: stale, value: string(out)}
}

// crosses has one server write and another read: the value has to come back,
// stale or not as wanted.
func crosses(writer, reader server, plaintext []byte, stale bool) error {
	data, err := writer.write(plaintext)
	if err != nil {
		return fmt.Errorf("%s does not write %d bytes: %w", writer.name, len(plaintext), err)
	}
	want := verdict{opened: true, stale: stale, value: string(plaintext)}
	if got := reader.read(data, here); got != want {
		return fmt.Errorf("%d bytes written by %s: %s %v, want that it %v", len(plaintext), writer.name, reader.name, got, want)
	}
	return nil
}

// difference is a way in which a verdict here may differ from kube-apiserver's.
// These are all, and docs/interoperability.md has them in the same words.
type difference string

const (
	none difference = ""
	// kube-apiserver writes again what a server of the other mode wrote; in a
	// fleet of both, one of the two must not.
	sourceTypeAlone difference = "a KMS v2 value of the other source type, under the same key_id, is stale to kube-apiserver and fresh here"
	ivAlone         difference = "a CBC payload that is an IV and nothing else makes kube-apiserver panic and is an error here"
	downgrade       difference = "a damaged KMS v1 value whose DEK is known to have sealed AES-GCM is opened as AES-CBC by kube-apiserver and refused here"
)

var differences = []difference{sourceTypeAlone, ivAlone, downgrade}

// agree holds two servers to the same verdict on a stored value, or to one of
// the differences, which it returns.
func agree(theirs, ours server, data []byte, at value.Context) (difference, error) {
	a, b := theirs.read(data, at), ours.read(data, at)
	f, payload := payloadOf(data)
	switch {
	case a == b && !a.panicked:
		return none, nil
	case a.panicked && b == verdict{} && len(cbcOf(f, payload)) == 16:
		return ivAlone, nil
	case f == stored.KMSv2 && a.opened && a.stale && b == verdict{opened: true, value: a.value} && typeOf(payload) != theirs.source:
		return sourceTypeAlone, nil
	case f == stored.KMSv1 && a.opened && a.stale && b == verdict{} && len(cbcOf(f, payload))%16 == 0:
		return downgrade, nil
	}
	return none, fmt.Errorf("%s %v, %s %v: %.80q at %s", theirs.name, a, ours.name, b, data, at.AuthenticatedData())
}

// payloadOf is what follows the prefix of a stored value.
func payloadOf(data []byte) (stored.Format, []byte) {
	f, name, ok := stored.Identify(data)
	if !ok {
		return stored.Format{}, nil
	}
	return f, data[len(f.PrefixFor(name)):]
}

// cbcOf is what of a payload is AES-CBC, or in KMS v1 may be.
func cbcOf(f stored.Format, payload []byte) []byte {
	switch {
	case f == stored.AESCBC:
		return payload
	case f == stored.KMSv1 && len(payload) >= 2:
		wrapped := int(binary.BigEndian.Uint16(payload))
		return payload[min(len(payload), 2+wrapped):]
	}
	return nil
}

func typeOf(payload []byte) stored.SourceType {
	object, err := stored.Parse(payload)
	if err != nil {
		return -1
	}
	return object.Source.Type
}

// damages are a value cut at every byte and with every bit flipped.
func damages(data []byte) [][]byte {
	var all [][]byte
	for n := range data {
		all = append(all, bytes.Clone(data[:n]))
	}
	for bit := range len(data) * 8 {
		flipped := bytes.Clone(data)
		flipped[bit/8] ^= 1 << (bit % 8)
		all = append(all, flipped)
	}
	return append(all, append(bytes.Clone(data), 0))
}

// agreeOnDamage is agree on a value that both can read, on all its damages, and
// on the value at another etcd key. It counts the differences.
func agreeOnDamage(theirs, ours server, data []byte) (map[difference]int, error) {
	if v := theirs.read(data, here); !v.opened {
		return nil, fmt.Errorf("%s %v even undamaged", theirs.name, v)
	}
	if v := ours.read(data, here); !v.opened {
		return nil, fmt.Errorf("%s %v even undamaged", ours.name, v)
	}
	if _, err := agree(theirs, ours, data, there); err != nil {
		return nil, err
	}
	found := map[difference]int{}
	for _, damaged := range append(damages(data), data) {
		d, err := agree(theirs, ours, damaged, here)
		if err != nil {
			return nil, err
		}
		if d != none {
			found[d]++
		}
	}
	return found, nil
}

// etcd is what a fleet of servers shares.
type etcd map[string][]byte

// update is an update of an object by a server as the storage layer makes it:
// read, and written only if the content changed or the stored form is stale.
func (e etcd) update(s server, name string, change func(string) string) (written bool, err error) {
	at := value.DefaultContext(name)
	before := s.read(e[name], at)
	if !before.opened {
		return false, fmt.Errorf("%s %v: %.80q at %s", s.name, before, e[name], name)
	}
	after := change(before.value)
	if after == before.value && !before.stale {
		return false, nil
	}
	data, err := s.TransformToStorage(context.Background(), []byte(after), at)
	if err != nil {
		return false, fmt.Errorf("%s does not write: %w", s.name, err)
	}
	e[name] = data
	return true, nil
}

func nothing(content string) string { return content }

// settle has every server of a fleet make updates that change nothing, of every
// object, until a whole round writes nothing. It gives the writes of each round.
func settle(fleet []server, e etcd, rounds int) (writes []int, err error) {
	for range rounds {
		n := 0
		for name := range e {
			for _, s := range fleet {
				written, err := e.update(s, name, nothing)
				if err != nil {
					return writes, err
				}
				if written {
					n++
				}
			}
		}
		if n == 0 {
			return writes, nil
		}
		writes = append(writes, n)
	}
	return writes, fmt.Errorf("updates that change nothing still write after %d rounds: %v", rounds, writes)
}
