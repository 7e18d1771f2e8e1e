package tpm

import (
	"cmp"
	"context"
	"crypto/fips140"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"time"

	"k8s.io/utils/clock"

	"github.com/kube-atrest/atrest/kmsplugin"
	"github.com/kube-atrest/atrest/kmsplugin/internal/filestamp"
	"github.com/kube-atrest/atrest/kmsplugin/internal/kek"
	"github.com/kube-atrest/atrest/kmsplugin/internal/keptfile"
	"github.com/kube-atrest/atrest/kmsplugin/internal/keyring"
)

// Errors of the file, beside fs.ErrNotExist and fs.ErrExist.
var (
	// ErrExposed: somebody else can read the file or put another in its place. The error says
	// what to run.
	ErrExposed = keptfile.ErrExposed
	// ErrDamaged: the file, or a key sealed in it, is not what this package wrote. It is left
	// as it is; restore it from a copy.
	ErrDamaged = keptfile.ErrDamaged
	// ErrFull: the file has 1,000 versions, as many as it may.
	ErrFull = errors.New("full")
	// ErrConfig: a setting that can never work.
	ErrConfig = errors.New("wrong setting")
	// ErrNoTPM: there is no TPM at the path, or this user may not use it. For who serves that may be
	// over when the device comes; for who changes something it has to be put right first.
	ErrNoTPM = errors.New("no TPM")
)

// DefaultCheck is [Config.Check] if that is zero.
const DefaultCheck = 30 * time.Second

// NoPCRs as [Config.PCRs] has keys sealed again open whatever the PCRs are.
const NoPCRs = "none"

// Config says where the keys are, and how they are sealed.
type Config struct {
	// Device is the TPM: a device, best /dev/tpmrm0, which several processes may use at
	// once, or the unix socket of one that is a process. Needed for all but [Store.List].
	Device string
	// File is the path of the file of keys.
	File string
	// PCRs are those that have to be what they were when a key was sealed, as in "sha256:7,11":
	// at most eight of one bank. It is for what seals a whole file, [Store.Create],
	// [Store.Reseal] and [Store.Recover]; empty is none for the first and what
	// the file says for the others. 16 and 23 are refused: whoever may use the TPM resets
	// them at any time.
	PCRs string
	// Adopt has [Store.Recover] with a copy take the copy's recovery key, too, in place of the
	// one that the file has.
	Adopt bool
	// RemoveDestroyed has [Store.Recover] with a copy remove what was destroyed there, and take it
	// from no other copy later. Whoever can write a copy can have it say so of any version.
	RemoveDestroyed bool
	// Unproven has [Store.Recover] take keys from a file of the first format, which nothing
	// proves to be what its node has made.
	Unproven bool
	// Show is told a new recovery key, and the version that writes, when all keys are sealed for
	// it and before the file is changed: where it fails nothing is.
	Show func(writes KeyInfo, recoveryKey string) error
	// Check is the time between two proofs that the TPM would open the keys again; default
	// [DefaultCheck].
	Check time.Duration
	// Clock is the system's unless a test hands another in.
	Clock clock.Clock
}

// KeeperConfig is how a [kmsplugin.Keeper] keeps a Store: a look at the versions takes a stat,
// so that it may look every second. A proof takes a slow TPM, which has half a second and more for
// each answer, longer than an apiserver waits for a wrap, and is not to be given up for that: to
// wrap and to unwrap takes no TPM. What Open does not come to is done by later looks.
func KeeperConfig() kmsplugin.Config {
	return kmsplugin.Config{Poll: time.Second, Steady: 1, CallTimeout: 10 * time.Second, OpenTimeout: 30 * time.Second}
}

// A Store is a file of sealed keys with the TPM that opens them; it holds no key. Its methods
// read or change what is on the disk at that moment. They are safe for concurrent use, by any
// number of processes.
type Store struct {
	config Config
	pcrs   pcrs
	disk   *keptfile.File
	random io.Reader
	turn   chan struct{} // holds one while somebody talks to the TPM
}

// New checks the settings; it looks at nothing.
func New(config Config) (*Store, error) {
	config.Check = cmp.Or(config.Check, DefaultCheck)
	if config.Clock == nil {
		config.Clock = clock.RealClock{}
	}
	s := &Store{config: config, disk: keptfile.At(config.File, config.Clock), random: rand.Reader, turn: make(chan struct{}, 1)}
	var err error
	if config.PCRs != NoPCRs {
		s.pcrs, err = parsePCRs(config.PCRs)
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	case s.pcrs.check() != nil:
		return nil, s.pcrs.check()
	case config.File == "":
		return nil, fmt.Errorf("%w: no path for the file of keys", ErrConfig)
	case config.Check < 0:
		return nil, fmt.Errorf("%w: Check is %s: it has to be over 0", ErrConfig, config.Check)
	}
	return s, nil
}

// Path is where the file is.
func (s *Store) Path() string { return s.disk.Path() }

// withTPM talks to the TPM, one at a time. Whoever waits for another conversation, with a TPM that
// hangs, waits no longer than ctx.
func (s *Store) withTPM(ctx context.Context, use func(*chip) error) error {
	if fips140.Enforced() {
		return fmt.Errorf("%w: GODEBUG=fips140=only forbids AES-CFB, in which TPM 2.0 encrypts sessions: run with fips140=on", kmsplugin.ErrDenied)
	}
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("%w: TPM %s has not answered the last question yet: %w", kmsplugin.ErrUnavailable, s.config.Device, context.Cause(ctx))
	}
	free := func() { <-s.turn }
	opened, err := dial(ctx, s.config.Device)
	if err != nil {
		free()
		return err
	}
	return withChip(&line{TPMCloser: opened, ctx: ctx, clock: s.config.Clock, free: free}, use)
}

// Create makes the file, mode 0600, with one new key. With recovery it returns the recovery key,
// which is kept nowhere: whoever has it and the file has the keys, on any machine. It comes with
// an error, too, where the file has it by then, or may have it. If anything is at the path
// already, sound or not, it stays and the error wraps fs.ErrExist. ctx bounds the wait for the
// TPM and for another process that is changing the file.
func (s *Store) Create(ctx context.Context, recovery bool) (info KeyInfo, recoveryKey string, err error) {
	next := &ring{format: formatVersion, pcrs: s.pcrs, auth: noAuth[:]}
	var paper *paper
	if recovery {
		if paper, err = newPaper(s.random); err != nil {
			return KeyInfo{}, "", err
		}
		next.take(paper.key)
	}
	err = s.disk.Make(ctx, func() (data []byte, err error) {
		err = s.withTPM(ctx, func(c *chip) error {
			next.primary = c.name()
			k, err := s.newKey(c, next, keyring.Time(s.config.Clock.Now()))
			next.Ring = keyring.New(k.id, k)
			info = next.info(k)
			return err
		})
		if err == nil {
			data, err = encode(next)
		}
		if err == nil {
			err = s.show(info, paper)
		}
		return data, err
	})
	return s.tell(info, paper, s.disk.Explain(err))
}

// newKey makes a KEK and seals it as all of r are.
func (s *Store) newKey(c *chip, r *ring, created time.Time) (key, error) {
	id, secret, err := newKEK(s.random)
	if err != nil {
		return key{}, err
	}
	defer secret.Erase()
	values, err := c.read(r.pcrs)
	if err != nil {
		return key{}, err
	}
	return sealKey(c, r, key{id: id, created: created, pcrValues: values}, secret)
}

// sealKey seals a KEK, and proves that it opens: its PCRs have the values of the key.
func sealKey(c *chip, r *ring, k key, secret kek.KEK) (key, error) {
	simple := secretOf(k.id, secret)
	plain := slices.Concat(simple, r.auth)
	defer clear(simple)
	defer clear(plain)
	policy, err := r.pcrs.policy(k.pcrValues)
	if err != nil {
		return key{}, err
	}
	if k.sealed, err = c.seal(plain, policy); err != nil {
		return key{}, err
	}
	if k.recovery, err = sealFor(r.recovery, k.id, simple); err != nil {
		return key{}, err
	}
	if k.recovery != nil {
		k.proof = r.proof(k, r.auth)
	}
	again, err := openKey(c, r, k)
	if err != nil {
		return key{}, fmt.Errorf("a key that was just sealed does not open: %w", err)
	}
	defer again.erase()
	if !again.Equal(secret) || r.proves(again.auth, k) != nil {
		return key{}, fmt.Errorf("%w: a key that was just sealed opens to another one", kmsplugin.ErrUnavailable)
	}
	return k, nil
}

// openKey unseals a KEK. That the file has nothing else for its recovery key is for the ring to prove.
func openKey(c *chip, r *ring, k key) (opened, error) {
	plain, err := c.unseal(k.sealed, r.pcrs)
	if errors.Is(err, kmsplugin.ErrKeyDisabled) {
		if now, failed := c.read(r.pcrs); failed == nil {
			err = fmt.Errorf("PCR %v of %s: %w", r.pcrs.differ(k.pcrValues, now), r.pcrs.bank, err)
		}
	}
	if err != nil {
		return opened{}, fmt.Errorf("version %s: %w", k.id, err)
	}
	return openedOf(r.format, k.id, plain)
}

// Stage adds a new version that unwraps and does not wrap: every node has to have it before one
// wraps with it. A [kmsplugin.Keeper] of the same file, in any process, notices at its
// next look. One with a [kmsplugin.Config.HoldDown] that starts while the version that writes is
// too young wraps with the newest before it that is not, a staged one too. ctx as in Create.
func (s *Store) Stage(ctx context.Context) (KeyInfo, error) { return s.extend(ctx, false) }

// Rotate is Stage and Activate in one step, for a file that one node alone has. All older
// versions stay readable. ctx as in Create.
func (s *Store) Rotate(ctx context.Context) (KeyInfo, error) { return s.extend(ctx, true) }

func (s *Store) extend(ctx context.Context, writes bool) (KeyInfo, error) {
	return s.change(ctx, func(now *ring) (next *ring, id string, err error) {
		err = s.withTPM(ctx, func(c *chip) error {
			to := *now
			if to.auth, err = now.authOf(c); err != nil {
				return err
			}
			defer clear(to.auth)
			k, err := s.newKey(c, &to, now.Time(s.config.Clock.Now()))
			if err != nil {
				return err
			}
			writer := now.Writes
			if writes {
				writer = k.id
			}
			next, id = now.like(now.With(k, writer)), k.id
			return nil
		})
		return next, id, err
	})
}

// Activate has the version write whose id or key_id begins so, or the newest if id is empty.
// It needs no TPM. ctx as in Create.
func (s *Store) Activate(ctx context.Context, id string) (KeyInfo, error) {
	return s.change(ctx, func(now *ring) (*ring, string, error) {
		k, err := now.Find(id)
		return now.like(now.Writing(k.id)), k.id, err
	})
}

// List returns what may be told of the versions, oldest first. It needs no TPM.
func (s *Store) List() ([]KeyInfo, error) {
	r, _, err := s.load()
	if err != nil {
		return nil, s.disk.Explain(err)
	}
	infos := make([]KeyInfo, len(r.Keys))
	for i, k := range r.Keys {
		infos[i] = r.info(k)
	}
	return infos, nil
}

// Destroyed returns the ids of the versions that the file had, or a copy of it, and that no copy
// brings back; in order. It needs no TPM.
func (s *Store) Destroyed() ([]string, error) {
	r, _, err := s.load()
	if err != nil {
		return nil, s.disk.Explain(err)
	}
	return r.Destroyed, nil
}

// change replaces the file by another, and tells of a key of it.
func (s *Store) change(ctx context.Context, change func(now *ring) (*ring, string, error)) (info KeyInfo, err error) {
	err = s.disk.Change(ctx, func() ([]byte, error) {
		now, _, err := s.load()
		if err != nil {
			return nil, err
		}
		next, id, err := change(now)
		if err != nil {
			return nil, err
		}
		info = next.info(next.ByID[id])
		return encode(next)
	})
	if err != nil {
		return KeyInfo{}, s.disk.Explain(err)
	}
	return info, nil
}

// load reads the file. With keptfile.ErrNotDurable comes what was read.
func (s *Store) load() (*ring, filestamp.Stamp, error) {
	data, seen, err := s.disk.Read()
	if err != nil && !errors.Is(err, keptfile.ErrNotDurable) {
		return nil, filestamp.Stamp{}, err
	}
	r, damage := decode(data)
	if damage != nil {
		return nil, filestamp.Stamp{}, fmt.Errorf("%w: %w; restore it from a copy, nothing here overwrites it", ErrDamaged, damage)
	}
	return r, seen, err
}

func (s *Store) exists() bool {
	_, err := os.Lstat(s.Path())
	return !errors.Is(err, fs.ErrNotExist)
}
