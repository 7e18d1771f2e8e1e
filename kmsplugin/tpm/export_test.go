package tpm

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/kube-atrest/atrest/kmsplugin/internal/kek"
	"github.com/kube-atrest/atrest/kmsplugin/internal/keptfile"
	"github.com/kube-atrest/atrest/kmsplugin/internal/keyring"
)

// SetRandom sets where new keys and their ids come from.
func SetRandom(s *Store, random io.Reader) { s.random = random }

// Decode reads a file, and Encode writes it.
var (
	Decode = func(data []byte) (*Ring, error) { return decode(data) }
	Encode = func(r *Ring) ([]byte, error) { return encode(r) }
)

// EncodeUnchecked is Encode of what may not be in a file.
func EncodeUnchecked(r *Ring) ([]byte, error) { return contentOf(r).encode(r.format) }

// Filled has many keys in a file, with the values of PCRs, and parts, of some size.
func Filled(r *Ring, versions, value, part int) *Ring {
	k := r.Keys[0]
	for i := range k.pcrValues {
		k.pcrValues[i] = make([]byte, value)
	}
	k.sealed = sealed{make([]byte, part), make([]byte, part)}
	var keys []key
	for n := range versions {
		k.id = fmt.Sprintf("%032x", n)
		keys = append(keys, k)
	}
	return r.like(keyring.New(keys[0].id, keys...))
}

// WithPCRs has a file say that its keys are bound to others, or to none.
func WithPCRs(r *Ring, text string) *Ring {
	next := *r
	next.pcrs, _ = parsePCRs(text)
	keys := *r.Ring
	keys.Keys = slices.Clone(r.Keys)
	for i := range keys.Keys {
		keys.Keys[i].pcrValues = slices.Repeat([][]byte{make([]byte, 32)}, len(next.pcrs.numbers))
	}
	return next.like(&keys)
}

// UnsealWithoutTPM does all that is done with the public part of a key before it is sent.
func UnsealWithoutTPM(public []byte) error {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := (&chip{line: &line{ctx: ctx}}).unseal(sealed{public: public}, pcrs{})
	return err
}

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

// Forged has KEKs of somebody else's under the ids of a file, for its recovery key alone: they need
// neither that nor a TPM.
func Forged(r *Ring) *Ring {
	keys := *r.Ring
	keys.Keys = slices.Clone(r.Keys)
	for i, k := range r.Keys {
		theirs, err := kek.New(domain, [kek.Size]byte{7})
		if err == nil {
			keys.Keys[i].recovery, err = sealFor(r.recovery, k.id, secretOf(k.id, theirs))
		}
		if err != nil {
			panic(err)
		}
	}
	return r.like(&keys)
}

// ForgedWith is Forged by somebody who has the recovery key, too.
func ForgedWith(r *Ring, recoveryKey string) *Ring {
	given, err := readRecovery(recoveryKey)
	if err != nil {
		panic(err)
	}
	next := Forged(r)
	for i, k := range next.Keys {
		next.Keys[i].proof = next.proof(k, given.auth)
	}
	return next
}

// WithRecovery has another file's recovery key in a file, or none, and what somebody without a TPM
// makes of that.
func WithRecovery(r, of *Ring) *Ring {
	next := *r
	next.recovery = of.recovery
	next = *Forged(&next)
	for i, k := range next.Keys {
		if next.Keys[i].proof = nil; of.recovery != nil {
			next.Keys[i].proof = next.proof(k, noAuth[:])
		}
	}
	return &next
}

// WithPublic has another file's recovery key in a file, and all else as it was.
func WithPublic(r, of *Ring) *Ring {
	next := *r
	next.recovery = of.recovery
	return &next
}

// WithSealed has a key of a file be sealed under the TPM as another file has it, and all else as it was.
func WithSealed(r, of *Ring, at int) *Ring {
	keys := *r.Ring
	keys.Keys = slices.Clone(r.Keys)
	keys.Keys[at].sealed = of.Keys[at].sealed
	return r.like(&keys)
}

// Dated has the keys of a file be older, and nothing else be different.
func Dated(r *Ring) *Ring {
	keys := *r.Ring
	keys.Keys = slices.Clone(r.Keys)
	for i := range keys.Keys {
		keys.Keys[i].created = keys.Keys[i].created.Add(-time.Hour)
	}
	return r.like(&keys)
}

// AsFirst passes a file off as one of the first format, for the public half of a recovery key as that
// had it, if it is known.
func AsFirst(r *Ring, recoveryKey string) *Ring {
	next := *r
	next.format = firstFormat
	if recoveryKey != "" {
		next.recovery = firstHalf(recoveryKey)
	}
	next = *Forged(&next)
	for i := range next.Keys {
		next.Keys[i].proof = nil
	}
	return &next
}

func firstHalf(recoveryKey string) []byte {
	given, err := readRecovery(recoveryKey)
	if err != nil {
		panic(err)
	}
	return given.public(firstFormat)
}

// CreateFirst makes a file of the first format, for a new recovery key if there is to be one.
func CreateFirst(ctx context.Context, s *Store, recovery bool) (text string, err error) {
	r := &ring{format: firstFormat}
	if recovery {
		if text, _, err = newRecovery(s.random); err != nil {
			return "", err
		}
		r.recovery = firstHalf(text)
	}
	return text, s.disk.Make(ctx, func() ([]byte, error) {
		err := s.withTPM(ctx, func(c *chip) error {
			id, secret, err := newKEK(s.random)
			if err != nil {
				return err
			}
			k := key{id: id, created: keyring.Time(s.config.Clock.Now())}
			if k.sealed, err = c.seal(secretOf(id, secret), nil); err != nil {
				return err
			}
			k.recovery, err = sealFor(r.recovery, id, secretOf(id, secret))
			r.Ring, r.primary = keyring.New(id, k), c.name()
			return err
		})
		if err != nil {
			return nil, err
		}
		return encode(r)
	})
}

// FailToSync has the system say, when a file has taken its place, that it may not be on the disk
// to stay. FailToPublish has the file not take its place.
var (
	FailToSync    = func(s *Store) { s.disk.Files = &failing{FileSystem: s.disk.Files, folder: filepath.Dir(s.Path())} }
	FailToPublish = func(s *Store) { s.disk.Files = &failing{FileSystem: s.disk.Files, publish: true} }
)

// FailToSyncOnce has the first sync of the folder fail, and counts them.
func FailToSyncOnce(s *Store) (synced *int) {
	files := &failing{FileSystem: s.disk.Files, folder: filepath.Dir(s.Path()), placed: true, once: true}
	s.disk.Files = files
	return &files.synced
}

type failing struct {
	keptfile.FileSystem
	folder  string
	publish bool
	placed  bool
	once    bool
	synced  int
}

func (f *failing) place(place func(from, to string) error, from, to string) error {
	if f.publish {
		return syscall.ENOSPC
	}
	f.placed = true
	return place(from, to)
}

func (f *failing) Rename(from, to string) error { return f.place(f.FileSystem.Rename, from, to) }
func (f *failing) Link(from, to string) error   { return f.place(f.FileSystem.Link, from, to) }

func (f *failing) OpenFile(name string, flag int, mode fs.FileMode) (keptfile.Opened, error) {
	if name == f.folder && f.placed {
		if f.synced++; f.synced == 1 || !f.once {
			return nil, syscall.EIO
		}
	}
	return f.FileSystem.OpenFile(name, flag, mode)
}

// Spoiled has something else as the two parts of the oldest key.
func Spoiled(r *Ring, public, private []byte) *Ring {
	keys := *r.Ring
	keys.Keys = slices.Clone(r.Keys)
	keys.Keys[0].sealed = sealed{public, private}
	return r.like(&keys)
}
