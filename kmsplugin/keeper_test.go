package kmsplugin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/kube-atrest/atrest/internal/bubble"
)

// shelf is a back end in memory, whose versions a test changes.
type shelf struct {
	mu       sync.Mutex
	all      []Version
	writes   int
	oldest   int
	partial  bool
	withheld error
	err      error         // of everything
	hangs    chan struct{} // what a call waits for, whatever its ctx
	slow     time.Duration // of each call
	mislabel bool
	panics   bool
	readable bool // whatever the error
	looks    int
	opened   int
	closed   int
	running  int
	most     int
	over     chan struct{} // ends what Renew keeps alive
}

func newShelf(labels ...string) *shelf {
	s := &shelf{}
	for _, label := range labels {
		s.all = append(s.all, version(label))
	}
	s.writes = len(labels) - 1
	return s
}

func version(label string) Version {
	return Version{Kind: "shelf", Lineage: []byte("one"), Label: label}
}

func (s *shelf) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func (s *shelf) Open(context.Context) (Session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil && !s.readable {
		return nil, s.err
	}
	s.opened++
	s.over = make(chan struct{})
	return s, nil
}

func (s *shelf) Close(context.Context) error { s.set(func() { s.closed++ }); return nil }

func (s *shelf) Renew(ctx context.Context) error {
	s.mu.Lock()
	over := s.over
	s.mu.Unlock()
	select {
	case <-ctx.Done():
	case <-over:
	}
	return errors.New("over")
}

func (s *shelf) begin() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running++
	s.most = max(s.most, s.running)
	if s.panics {
		panic("a KEK: " + string(bytes.Repeat([]byte("k"), 32)))
	}
	return s.err
}

func (s *shelf) call() error {
	err := s.begin()
	s.mu.Lock()
	hangs, slow := s.hangs, s.slow
	s.mu.Unlock()
	time.Sleep(slow)
	if hangs != nil {
		<-hangs
	}
	s.set(func() { s.running-- })
	return err
}

func (s *shelf) Versions(context.Context) (Versions, error) {
	err := s.call()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.looks++
	if err != nil && !s.readable {
		return Versions{}, err
	}
	return Versions{All: append([]Version{}, s.all...), Writes: s.writes, Oldest: s.oldest, Partial: s.partial, Withheld: s.withheld}, err
}

func (s *shelf) Wrap(_ context.Context, v Version, dek, aad []byte) ([]byte, Version, error) {
	if err := s.call(); err != nil {
		return nil, Version{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mislabel {
		v = version("another")
	}
	return fmt.Appendf(nil, "%s|%s|%x", v.Label, aad, dek), v, nil
}

func (s *shelf) Unwrap(_ context.Context, v Version, ciphertext, aad []byte) (dek []byte, err error) {
	if err := s.call(); err != nil && !s.readable {
		return nil, err
	}
	if _, err := fmt.Sscanf(string(ciphertext), v.Label+"|"+string(aad)+"|%x", &dek); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return dek, nil
}

// kept runs a test with a Keeper of a back end, by a clock that goes on when all wait.
func kept(t *testing.T, s *shelf, c Config, test func(t *testing.T, k *Keeper)) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) {
		k, err := NewKeeper(s, c)
		require.NoError(t, err)
		_, err = k.Status(t.Context())
		require.ErrorIs(t, err, ErrUnavailable)
		require.ErrorContains(t, err, "starts")
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- k.Run(ctx) }()
		synctest.Wait()
		test(t, k)
		stop()
		require.NoError(t, <-ended)
		require.Equal(t, s.opened, s.closed, "every session that was opened is closed")
	})
}

// poll lets the time of n polls pass.
func poll(n int) {
	time.Sleep(time.Duration(n) * 10 * time.Second)
	synctest.Wait()
}

func keyIDOf(t *testing.T, k *Keeper) string {
	t.Helper()
	keyID, err := k.Status(t.Context())
	require.NoError(t, err)
	return keyID
}

func TestAKeyIDIsOfOneKEK(t *testing.T) {
	a := Version{Kind: "a", Lineage: []byte("bc"), Label: "d"}
	require.Len(t, a.KeyID(), 64)
	require.NotContains(t, a.KeyID(), "bc")
	seen := map[string]bool{}
	for _, v := range []Version{a, {Kind: "ab", Lineage: []byte("c"), Label: "d"}, {Kind: "a", Lineage: []byte("b"), Label: "cd"}, {Kind: "a", Lineage: []byte("bcd")}} {
		require.False(t, seen[v.KeyID()], "where one part ends is part of it")
		seen[v.KeyID()] = true
	}
	later := a
	later.Created, later.Formerly = time.Now(), []string{"x"}
	require.Equal(t, a.KeyID(), later.KeyID())
}

func TestWhatIsWrappedIsUnwrapped(t *testing.T) {
	kept(t, newShelf("1", "2"), Config{}, func(t *testing.T, k *Keeper) {
		require.Equal(t, version("2").KeyID(), keyIDOf(t, k))
		sealed, err := k.Encrypt(t.Context(), "", []byte("dek"))
		require.NoError(t, err)
		require.Equal(t, version("2").KeyID(), sealed.KeyID)
		dek, err := k.Decrypt(t.Context(), "", sealed)
		require.NoError(t, err)
		require.Equal(t, []byte("dek"), dek)
		sealed.KeyID = version("1").KeyID()
		_, err = k.Decrypt(t.Context(), "", sealed)
		require.ErrorIs(t, err, ErrInvalid)
	})
}

func TestANewVersionIsAnnouncedWhenItWasSeenTwice(t *testing.T) {
	s := newShelf("1")
	kept(t, s, Config{}, func(t *testing.T, k *Keeper) {
		s.set(func() { s.all, s.writes = append(s.all, version("2")), 1 })
		poll(1)
		require.Equal(t, version("1").KeyID(), keyIDOf(t, k))
		s.set(func() { s.writes = 0 }) // a standby that lags
		poll(1)
		s.set(func() { s.writes = 1 })
		poll(1)
		require.Equal(t, version("1").KeyID(), keyIDOf(t, k), "not twice in a row")
		poll(1)
		require.Equal(t, version("2").KeyID(), keyIDOf(t, k))
	})
}

func TestANewVersionWaitsUntilAllNodesReadIt(t *testing.T) {
	synced := func() Version { v := version("2"); v.Created = time.Now(); return v }
	s := newShelf("1")
	kept(t, s, Config{HoldDown: time.Minute}, func(t *testing.T, k *Keeper) {
		s.set(func() { s.all, s.writes = append(s.all, synced()), 1 })
		poll(5)
		require.Equal(t, version("1").KeyID(), keyIDOf(t, k))
		other, err := NewKeeper(s, Config{HoldDown: time.Minute})
		require.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- other.Run(ctx) }()
		synctest.Wait()
		require.Equal(t, version("1").KeyID(), keyIDOf(t, other), "a plugin that starts meanwhile announces what the others do")
		poll(2)
		require.Equal(t, version("2").KeyID(), keyIDOf(t, k))
		require.Equal(t, version("2").KeyID(), keyIDOf(t, other))
		stop()
		require.NoError(t, <-ended)
	})
}

// restarted is what a plugin announces that runs for some time, one after the other.
func restarted(t *testing.T, s *shelf, holdDown time.Duration, runs ...time.Duration) (keyIDs []string) {
	t.Helper()
	for _, d := range runs {
		k, err := NewKeeper(s, Config{HoldDown: holdDown})
		require.NoError(t, err)
		stop := k.Start(t.Context())
		time.Sleep(d)
		keyIDs = append(keyIDs, keyIDOf(t, k))
		require.NoError(t, stop())
	}
	return keyIDs
}

// made is a version by the clock of its maker.
func made(label string, at time.Time) Version {
	v := version(label)
	v.Created = at
	return v
}

func TestARestartIsNoRotationBackIfAClockIsAheadByMoreThanTheHoldDown(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := newShelf("1", "2")
		s.all = []Version{made("1", time.Now().Add(-24*time.Hour)), made("2", time.Now().Add(time.Hour))}
		second := version("2").KeyID()
		require.Equal(t, []string{second, second}, restarted(t, s, 10*time.Minute, 20*time.Minute, time.Minute))
	})
}

func TestRestartsAreNoRotationBackIfClocksDifferByLessThanTheHoldDown(t *testing.T) {
	for _, ahead := range []time.Duration{-10 * time.Minute, -time.Second, 0, time.Second, 5 * time.Minute, 10 * time.Minute} {
		bubble.Test(t, func(t *testing.T) {
			s := newShelf("1")
			s.all[0] = made("1", time.Now().Add(-24*time.Hour))
			k, err := NewKeeper(s, Config{HoldDown: 10 * time.Minute})
			require.NoError(t, err)
			stop := k.Start(t.Context())
			s.set(func() { s.all, s.writes = append(s.all, made("2", time.Now().Add(ahead))), 1 })
			announced := version("1").KeyID()
			for range 30 {
				time.Sleep(time.Minute)
				for _, keyID := range append([]string{keyIDOf(t, k)}, restarted(t, s, 10*time.Minute, time.Second)...) {
					if announced != version("1").KeyID() {
						require.Equal(t, announced, keyID, "%s ahead", ahead)
					}
				}
				announced = keyIDOf(t, k)
			}
			require.Equal(t, version("2").KeyID(), announced)
			require.NoError(t, stop())
		})
	}
}

func TestAVersionOfAClockThatIsBehindWaitsAsAnyOther(t *testing.T) {
	s := newShelf("1")
	kept(t, s, Config{HoldDown: time.Minute}, func(t *testing.T, k *Keeper) {
		s.set(func() { s.all, s.writes = append(s.all, made("2", time.Now().Add(-8*time.Hour))), 1 })
		poll(6)
		require.Equal(t, version("1").KeyID(), keyIDOf(t, k), "that it is old is a mistake, or it was made elsewhere")
		poll(1)
		require.Equal(t, version("2").KeyID(), keyIDOf(t, k))
	})
}

func TestAVersionThatIsActivatedLaterHasWaitedAlready(t *testing.T) {
	s := newShelf("1", "2")
	s.writes = 0
	kept(t, s, Config{HoldDown: time.Minute}, func(t *testing.T, k *Keeper) {
		s.set(func() { s.all = append(s.all, made("3", time.Now())) })
		poll(10)
		s.set(func() { s.writes = 2 })
		poll(2)
		require.Equal(t, version("3").KeyID(), keyIDOf(t, k))
	})
}

func TestAVersionThatOnlyUnwrapsIsNotAnnouncedAnyMore(t *testing.T) {
	s := newShelf("1")
	kept(t, s, Config{HoldDown: time.Hour}, func(t *testing.T, k *Keeper) {
		first := keyIDOf(t, k)
		s.set(func() { s.all, s.writes = append(s.all, version("2")), 1 })
		poll(5)
		require.Equal(t, first, keyIDOf(t, k), "the new one is not old enough")
		sealed, err := k.Encrypt(t.Context(), "", []byte("dek"))
		require.NoError(t, err)
		s.set(func() { s.oldest = 1 })
		poll(1)
		require.Equal(t, version("2").KeyID(), keyIDOf(t, k))
		_, err = k.Decrypt(t.Context(), "", sealed)
		require.NoError(t, err)
	})
	kept(t, s, Config{Pin: "1"}, func(t *testing.T, k *Keeper) {
		_, err := k.Status(t.Context())
		require.ErrorIs(t, err, ErrKeyDisabled)
		require.ErrorContains(t, err, `version "1" is pinned, and only unwraps: the oldest that wraps is "2"`)
	})
}

// The key that is wrapped with is gone, and with it what needs it: nobody goes on as if all were
// well. Another key in its place is another key_id for all to see.
func TestAKeyThatIsGoneIsNotGoneBackFrom(t *testing.T) {
	s := newShelf("1", "2")
	kept(t, s, Config{}, func(t *testing.T, k *Keeper) {
		sealed, err := k.Encrypt(t.Context(), "", []byte("dek"))
		require.NoError(t, err)
		s.set(func() { s.all, s.writes = s.all[:1], 0 })
		poll(5)
		_, err = k.Status(t.Context())
		require.ErrorIs(t, err, ErrKeyDisabled)
		require.ErrorContains(t, err, `version "2", which is wrapped under, is gone`)
		s.set(func() { s.all, s.writes = append(s.all, version("2")), 1 })
		poll(1)
		require.Equal(t, version("2").KeyID(), keyIDOf(t, k))
		_, err = k.Decrypt(t.Context(), "", sealed)
		require.NoError(t, err)
		s.set(func() { s.all, s.writes = []Version{version("made again")}, 0 })
		poll(1)
		require.Equal(t, version("made again").KeyID(), keyIDOf(t, k))
	})
}

// The version that is announced is destroyed on purpose, as one that was disclosed, while the
// newer one is held down. That is no way back.
func TestAVersionThatGoesWhileANewerOneIsHeldDownIsFollowedByThatOne(t *testing.T) {
	s := newShelf("1", "2")
	kept(t, s, Config{HoldDown: time.Hour}, func(t *testing.T, k *Keeper) {
		s.set(func() { s.all, s.writes = append(s.all, version("3")), 2 })
		poll(3)
		require.Equal(t, version("2").KeyID(), keyIDOf(t, k))
		s.set(func() { s.all, s.writes = []Version{version("1"), version("3")}, 1 })
		poll(1)
		require.Equal(t, version("3").KeyID(), keyIDOf(t, k))
		s.set(func() { s.all, s.writes = []Version{version("1"), version("2")}, 1 })
		poll(5)
		_, err := k.Status(t.Context())
		require.ErrorIs(t, err, ErrKeyDisabled, "from the newer one there is no way back")
	})
}

// What was newer than a version is not for that newer than another one.
func TestAVersionThatIsGoneIsNotFollowedByOneThatWasNeverSeenBehindIt(t *testing.T) {
	s := newShelf("1")
	kept(t, s, Config{HoldDown: time.Hour}, func(t *testing.T, k *Keeper) {
		s.set(func() { s.all, s.writes = append(s.all, version("2")), 1 })
		poll(3)
		s.set(func() { s.all, s.writes = []Version{version("made again")}, 0 })
		poll(3)
		require.Equal(t, version("made again").KeyID(), keyIDOf(t, k))
		s.set(func() { s.all, s.writes = []Version{version("1"), version("2")}, 1 })
		poll(3)
		_, err := k.Status(t.Context())
		require.ErrorIs(t, err, ErrKeyDisabled)
	})
}

// Where a version stands tells where it came from, and not when: one that was announced before is
// not newer for standing behind.
func TestAVersionThatWasLeftIsNotGoneBackTo(t *testing.T) {
	s := newShelf("1", "C")
	kept(t, s, Config{HoldDown: time.Minute}, func(t *testing.T, k *Keeper) {
		require.Equal(t, version("C").KeyID(), keyIDOf(t, k))
		s.set(func() { s.all, s.writes = []Version{version("1"), version("B"), version("C")}, 1 })
		poll(10)
		require.Equal(t, version("B").KeyID(), keyIDOf(t, k))
		s.set(func() { s.all, s.writes = []Version{version("1"), version("C")}, 1 })
		poll(2)
		_, err := k.Status(t.Context())
		require.ErrorIs(t, err, ErrKeyDisabled)
		require.ErrorContains(t, err, `version "B", which is wrapped under, is gone`)
	})
}

func TestAPinIsWrappedWithWhateverTheBackEndSays(t *testing.T) {
	s := newShelf("1", "2")
	kept(t, s, Config{Pin: "1"}, func(t *testing.T, k *Keeper) {
		require.Equal(t, version("1").KeyID(), keyIDOf(t, k))
		s.set(func() { s.all, s.writes = s.all[1:], 0 })
		poll(1)
		_, err := k.Status(t.Context())
		require.ErrorIs(t, err, ErrKeyDisabled)
		require.ErrorContains(t, err, `version "1" is pinned`)
	})
}

func TestNothingIsLabelledWithAnotherVersion(t *testing.T) {
	s := newShelf("1")
	kept(t, s, Config{}, func(t *testing.T, k *Keeper) {
		s.set(func() { s.mislabel = true })
		_, err := k.Encrypt(t.Context(), "", []byte("dek"))
		require.ErrorIs(t, err, ErrUnavailable)
		require.ErrorContains(t, err, `wrapped under version "another"`)
	})
}

func TestTroubleIsToldAsAnErrorAndReadsGoOn(t *testing.T) {
	s := newShelf("1")
	kept(t, s, Config{}, func(t *testing.T, k *Keeper) {
		sealed, err := k.Encrypt(t.Context(), "", []byte("dek"))
		require.NoError(t, err)
		s.set(func() { s.all = nil })
		poll(1)
		_, err = k.Status(t.Context())
		require.ErrorIs(t, err, ErrKeyDisabled)
		_, err = k.Decrypt(t.Context(), "", sealed)
		require.ErrorContains(t, err, "cannot be looked at", "whether the KEK is gone for good is not known")

		s.set(func() { s.all, s.err = []Version{version("1")}, fmt.Errorf("%w: sealed", ErrUnavailable) })
		poll(1)
		_, err = k.Status(t.Context())
		require.ErrorContains(t, err, "sealed")
		_, err = k.Encrypt(t.Context(), "", []byte("dek"))
		require.ErrorContains(t, err, "sealed")
		s.set(func() { s.err = nil })
		_, err = k.Decrypt(t.Context(), "", sealed)
		require.NoError(t, err, "a read asks the back end itself")
		poll(1)
		require.Equal(t, sealed.KeyID, keyIDOf(t, k))
	})
}

func TestAVersionThatIsNewToADecryptIsFoundAndNotAnnounced(t *testing.T) {
	s := newShelf("1")
	kept(t, s, Config{}, func(t *testing.T, k *Keeper) {
		s.set(func() { s.all, s.writes = append(s.all, version("2")), 1 })
		keyID := version("2").KeyID()
		dek, err := k.Decrypt(t.Context(), "", Sealed{Ciphertext: fmt.Appendf(nil, "2|%s|%x", keyID, "dek"), KeyID: keyID})
		require.NoError(t, err)
		require.Equal(t, []byte("dek"), dek)
		require.Equal(t, version("1").KeyID(), keyIDOf(t, k))
		_, err = k.Decrypt(t.Context(), "", Sealed{Ciphertext: []byte("x"), KeyID: "nobody's"})
		require.ErrorIs(t, err, ErrUnknownKey)
	})
}

func TestABackEndThatFindsNoKeySaysNothingOfAKeyIDThatItNeverSaw(t *testing.T) {
	s := newShelf("1")
	s.err = fmt.Errorf("no key of that name: %w", ErrUnknownKey)
	kept(t, s, Config{}, func(t *testing.T, k *Keeper) {
		_, err := k.Status(t.Context())
		require.ErrorIs(t, err, ErrUnknownKey)
		_, err = k.Decrypt(t.Context(), "", Sealed{Ciphertext: []byte("c"), KeyID: version("1").KeyID()})
		require.ErrorIs(t, err, ErrUnavailable)
		require.NotErrorIs(t, err, ErrUnknownKey, "an apiserver would take the data for lost")
		require.ErrorContains(t, err, "no key of that name")
	})
}

func TestTroubleEndsSoonForWhoReads(t *testing.T) {
	s := newShelf("1")
	kept(t, s, Config{Poll: time.Hour}, func(t *testing.T, k *Keeper) {
		sealed, err := k.Encrypt(t.Context(), "", []byte("dek"))
		require.NoError(t, err)
		s.set(func() { s.err = ErrUnavailable })
		_, err = k.Encrypt(t.Context(), "", []byte("dek"))
		require.Error(t, err)
		time.Sleep(3 * time.Hour) // the next look is an hour away
		synctest.Wait()
		_, err = k.Decrypt(t.Context(), "", sealed)
		require.Error(t, err)
		s.set(func() { s.err = nil })
		time.Sleep(2 * time.Second)
		synctest.Wait()
		_, err = k.Status(t.Context())
		require.NoError(t, err)
	})
}

func TestManyWhoAskForAnUnknownKeyIDShareALook(t *testing.T) {
	s := newShelf("1")
	kept(t, s, Config{}, func(t *testing.T, k *Keeper) {
		before, began := s.looks, time.Now()
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				_, err := k.Decrypt(t.Context(), "", Sealed{Ciphertext: []byte("x"), KeyID: "nobody's"})
				assert.ErrorIs(t, err, ErrUnknownKey)
			})
		}
		all.Wait()
		require.LessOrEqual(t, s.looks-before, 2)
		require.LessOrEqual(t, time.Since(began), time.Second)
	})
}

func TestVersionsThatComeWithTroubleUnwrap(t *testing.T) {
	s := newShelf("1")
	s.err, s.readable = fmt.Errorf("%w: the disk takes no writes", ErrUnavailable), true
	kept(t, s, Config{}, func(t *testing.T, k *Keeper) {
		keyID := version("1").KeyID()
		dek, err := k.Decrypt(t.Context(), "", Sealed{Ciphertext: fmt.Appendf(nil, "1|%s|%x", keyID, "dek"), KeyID: keyID})
		require.NoError(t, err)
		require.Equal(t, []byte("dek"), dek)
		_, err = k.Encrypt(t.Context(), "", []byte("dek"))
		require.ErrorContains(t, err, "takes no writes")
		_, err = k.Status(t.Context())
		require.ErrorContains(t, err, "takes no writes")
		s.set(func() { s.err = nil })
		poll(1)
		require.Equal(t, keyID, keyIDOf(t, k))
	})
}

// prudent finds versions at once, and takes too long to see whether it may wrap with them.
type prudent struct{ *shelf }

func (p prudent) Open(ctx context.Context) (Session, error) {
	_, err := p.shelf.Open(ctx)
	return p, err
}

func (p prudent) Versions(ctx context.Context) (Versions, error) {
	found, err := p.shelf.Versions(ctx)
	if p.slow > 0 {
		<-ctx.Done()
		return found, fmt.Errorf("not seen yet: %w", ctx.Err())
	}
	return found, err
}

func (p prudent) Wrap(context.Context, Version, []byte, []byte) ([]byte, Version, error) {
	panic("it wraps")
}

func TestWhatIsFoundUntilTheTimeOfALookIsOverUnwraps(t *testing.T) {
	s := newShelf("1")
	s.slow = time.Millisecond
	bubble.Test(t, func(t *testing.T) {
		k, err := NewKeeper(prudent{s}, Config{})
		require.NoError(t, err)
		stop := k.Start(t.Context())
		defer func() { require.NoError(t, stop()) }()
		time.Sleep(10 * time.Second)
		keyID := version("1").KeyID()
		dek, err := k.Decrypt(t.Context(), "", Sealed{Ciphertext: fmt.Appendf(nil, "1|%s|%x", keyID, "dek"), KeyID: keyID})
		require.NoError(t, err)
		require.Equal(t, []byte("dek"), dek)
		_, err = k.Encrypt(t.Context(), "", []byte("dek"))
		require.ErrorIs(t, err, ErrUnavailable)
		require.ErrorContains(t, err, "no answer in time of 2.25s: not seen yet")
	})
}

func TestWhatNoVersionWrappedIsInvalid(t *testing.T) {
	s := newShelf("1")
	kept(t, s, Config{}, func(t *testing.T, k *Keeper) {
		for _, plaintext := range [][]byte{nil, {}, make([]byte, MaxPlaintext+1)} {
			_, err := k.Encrypt(t.Context(), "", plaintext)
			require.ErrorIs(t, err, ErrInvalid)
		}
		sealed, err := k.Encrypt(t.Context(), "", make([]byte, MaxPlaintext))
		require.NoError(t, err)
		sealed.Annotations = map[string][]byte{"a.example": nil}
		_, err = k.Decrypt(t.Context(), "", sealed)
		require.ErrorIs(t, err, ErrInvalid)
		require.ErrorContains(t, err, "annotations")
	})
}

func TestAVersionOfAClockThatIsAheadIsAnnounced(t *testing.T) {
	s := newShelf("1")
	kept(t, s, Config{}, func(t *testing.T, k *Keeper) {
		ahead := version("2")
		ahead.Created = time.Now().Add(time.Hour)
		s.set(func() { s.all, s.writes = append(s.all, ahead), 1 })
		poll(2)
		require.Equal(t, ahead.KeyID(), keyIDOf(t, k))
	})
	kept(t, s, Config{}, func(t *testing.T, k *Keeper) {
		require.Equal(t, version("2").KeyID(), keyIDOf(t, k), "a restart is no rotation back")
	})
}

func TestWhatWasWrappedUnderAFormerKeyIDIsUnwrapped(t *testing.T) {
	s := newShelf("1")
	s.all[0].Formerly = []string{"1.0f3a"}
	kept(t, s, Config{}, func(t *testing.T, k *Keeper) {
		dek, err := k.Decrypt(t.Context(), "", Sealed{Ciphertext: fmt.Appendf(nil, "1|1.0f3a|%x", "dek"), KeyID: "1.0f3a"})
		require.NoError(t, err)
		require.Equal(t, []byte("dek"), dek)
		require.Equal(t, version("1").KeyID(), keyIDOf(t, k))
	})
}

func TestTwoKEKsUnderOneKeyIDAreRefused(t *testing.T) {
	s := newShelf("1", "2")
	s.all[1].Formerly = []string{version("1").KeyID()}
	kept(t, s, Config{}, func(t *testing.T, k *Keeper) {
		_, err := k.Status(t.Context())
		require.ErrorContains(t, err, "this is a mistake of the back end")
	})
}

func TestACallIsAnsweredInTimeWhateverTheBackEndDoes(t *testing.T) {
	s := newShelf("1")
	kept(t, s, Config{Concurrency: 2}, func(t *testing.T, k *Keeper) {
		hangs := make(chan struct{})
		s.set(func() { s.hangs = hangs })
		began := time.Now()
		_, err := k.Encrypt(t.Context(), "", []byte("dek"))
		require.ErrorIs(t, err, ErrUnavailable)
		require.ErrorContains(t, err, "no answer in time")
		require.Equal(t, 2500*time.Millisecond, time.Since(began))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = k.Encrypt(ctx, "", []byte("dek"))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		_, err = k.Encrypt(t.Context(), "", []byte("dek"))
		require.ErrorIs(t, err, ErrThrottled, "two calls hang, and no third one is made")
		s.set(func() { s.hangs = nil })
		close(hangs)
		poll(2)
		require.LessOrEqual(t, s.most, 2)
		require.Equal(t, version("1").KeyID(), keyIDOf(t, k))
	})
}

func TestWhoGivesUpInTimeSaysWhyAndNotOnlyThatItsTimeWasOver(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		ctx, cancel := Config{}.withDefaults().within(t.Context(), time.Second)
		defer cancel()
		require.NoError(t, withCause(ctx, nil))
		<-ctx.Done()
		err := withCause(ctx, fmt.Errorf("KMS at x: %w", ctx.Err()))
		require.Equal(t, codes.Unavailable, CodeOf(err))
		require.ErrorContains(t, err, "no answer in time of 1s: KMS at x")
		require.Equal(t, codes.PermissionDenied, CodeOf(withCause(ctx, ErrDenied)), "that says more")
		own, end := context.WithCancel(t.Context())
		end()
		require.Equal(t, codes.Canceled, CodeOf(withCause(own, own.Err())))
	})
}

func TestAPanicOfTheBackEndIsAnError(t *testing.T) {
	s := newShelf("1")
	kept(t, s, Config{}, func(t *testing.T, k *Keeper) {
		s.set(func() { s.panics = true })
		_, err := k.Encrypt(t.Context(), "", []byte("dek"))
		require.ErrorContains(t, err, "panicked")
		require.NotContains(t, err.Error(), "kkkk")
		s.set(func() { s.panics = false })
		poll(2)
		_, err = k.Encrypt(t.Context(), "", []byte("dek"))
		require.NoError(t, err)
	})
}

func TestOtherCredentialsOpenAnotherSession(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte("one"), 0o600))
	s := newShelf("1")
	kept(t, s, Config{Credentials: []string{file}}, func(t *testing.T, k *Keeper) {
		hangs := make(chan struct{})
		answered := make(chan error, 1)
		s.set(func() { s.hangs = hangs })
		go func() { _, err := k.Encrypt(t.Context(), "", []byte("dek")); answered <- err }()
		synctest.Wait()
		s.set(func() { s.hangs = nil })
		require.NoError(t, os.WriteFile(file, []byte("another"), 0o600))
		poll(1)
		require.Equal(t, 2, s.opened)
		require.Zero(t, s.closed, "a call runs")
		close(hangs)
		<-answered
		poll(1)
		require.Equal(t, 1, s.closed)

		s.set(func() { s.err = ErrDenied })
		require.NoError(t, os.WriteFile(file, []byte("a wrong one"), 0o600))
		poll(1)
		_, err := k.Status(t.Context())
		require.ErrorIs(t, err, ErrDenied)
		s.set(func() { s.err = nil })
		poll(1)
		require.Equal(t, version("1").KeyID(), keyIDOf(t, k))
	})
}

func TestASessionThatIsOverIsReplaced(t *testing.T) {
	s := newShelf("1")
	kept(t, s, Config{}, func(t *testing.T, k *Keeper) {
		poll(1)
		s.set(func() { close(s.over) })
		synctest.Wait()
		require.Equal(t, 2, s.opened)
		require.Equal(t, version("1").KeyID(), keyIDOf(t, k))
		_, err := k.Encrypt(t.Context(), "", []byte("dek"))
		require.NoError(t, err)
	})
}

func TestStatusAndEncryptAgreeThroughRotations(t *testing.T) {
	s := newShelf("1")
	kept(t, s, Config{Steady: 1}, func(t *testing.T, k *Keeper) {
		for n := range 50 {
			s.set(func() { s.all, s.writes = append(s.all, version(fmt.Sprint(n+2))), n+1 })
			var all sync.WaitGroup
			for range 4 {
				all.Go(func() {
					before := keyIDOf(t, k)
					sealed, err := k.Encrypt(t.Context(), "", []byte("dek"))
					after := keyIDOf(t, k)
					if err != nil || sealed.KeyID != before && sealed.KeyID != after {
						t.Errorf("%s is none of %s and %s: %v", sealed.KeyID, before, after, err)
					}
				})
			}
			poll(1)
			all.Wait()
		}
	})
}

func TestStartWaitsForTheFirstLookAndNotForLong(t *testing.T) {
	for _, hangs := range []bool{false, true} {
		bubble.Test(t, func(t *testing.T) {
			s, began := newShelf("1"), time.Now()
			if hangs {
				s.hangs = make(chan struct{})
			}
			k, err := NewKeeper(s, Config{})
			require.NoError(t, err)
			ctx, end := context.WithCancel(t.Context())
			stop := k.Start(ctx)
			end()
			synctest.Wait()
			if hangs {
				require.Equal(t, soon, time.Since(began))
				close(s.hangs)
				s.set(func() { s.hangs = nil })
				poll(1)
			} else {
				require.Zero(t, time.Since(began))
			}
			require.Equal(t, version("1").KeyID(), keyIDOf(t, k), "the end of ctx is not its end")
			require.NoError(t, stop())
			require.NoError(t, stop(), "twice is harmless")
			_, err = k.Status(t.Context())
			require.ErrorContains(t, err, "stops")
			require.Equal(t, s.opened, s.closed)
		})
	}
}

func TestTheLogTellsOfChangesAndNotOfLooks(t *testing.T) {
	s := newShelf("1")
	var log strings.Builder
	bubble.Test(t, func(t *testing.T) {
		ctx := klog.NewContext(t.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log))))
		k, err := NewKeeper(s, Config{Steady: 1})
		require.NoError(t, err)
		stop := k.Start(ctx)
		logged := func(change func(), lines ...string) {
			t.Helper()
			log.Reset()
			s.set(change)
			poll(3)
			require.Equal(t, len(lines), strings.Count(log.String(), "\n"), log.String())
			for _, line := range lines {
				require.Contains(t, log.String(), line)
			}
		}
		logged(func() {})
		logged(func() { s.err = ErrDenied }, "nothing can be wrapped")
		logged(func() { s.err = nil }, "DEKs can be wrapped")
		logged(func() { s.all, s.writes = append(s.all, version("2")), 1 }, "wrapped under another key_id")
		require.NoError(t, stop())
	})
}

func TestConfigsThatMakeNoSense(t *testing.T) {
	for name, c := range map[string]Config{"Concurrency is -1": {Concurrency: -1}, "Poll is -1s": {Poll: -time.Second}, "HoldDown is -1s": {HoldDown: -time.Second}} {
		_, err := NewKeeper(newShelf("1"), c)
		require.ErrorContains(t, err, name)
	}
	_, err := NewKeeper(nil, Config{})
	require.ErrorContains(t, err, "no back end")
}

// busy is a shelf that takes some time to unwrap.
type busy struct{ *shelf }

func (b busy) Open(ctx context.Context) (Session, error) {
	_, err := b.shelf.Open(ctx)
	return b, err
}

func (b busy) Unwrap(ctx context.Context, v Version, ciphertext, aad []byte) ([]byte, error) {
	if err := b.begin(); err != nil {
		return nil, err
	}
	time.Sleep(45 * time.Millisecond)
	b.set(func() { b.running-- })
	return b.shelf.Unwrap(ctx, v, ciphertext, aad)
}

func TestManyCallsAreNoTrouble(t *testing.T) {
	for _, at := range []struct{ turns, callers int }{{1, 64}, {4, 400}} {
		s := newShelf("1")
		bubble.Test(t, func(t *testing.T) {
			k, err := NewKeeper(busy{s}, Config{Concurrency: at.turns, Poll: time.Second})
			require.NoError(t, err)
			stop := k.Start(t.Context())
			sealed, err := k.Encrypt(t.Context(), "", []byte("dek"))
			require.NoError(t, err)
			ctx, end := context.WithCancel(t.Context())
			var all sync.WaitGroup
			for range at.callers {
				all.Go(func() {
					for ctx.Err() == nil {
						_, _ = k.Decrypt(t.Context(), "", sealed)
					}
				})
			}
			for range 10 {
				time.Sleep(time.Second)
				require.Equal(t, sealed.KeyID, keyIDOf(t, k))
			}
			end()
			all.Wait()
			require.NoError(t, stop())
			require.Greater(t, s.looks, 6)
			require.LessOrEqual(t, s.most, at.turns, "and no more at once than may be")
		})
	}
}

// A key_id that is not known takes a look and an unwrap, for which an apiserver waits as for one.
func TestALookAndAnUnwrapHaveTheTimeOfOneCall(t *testing.T) {
	s := newShelf("1")
	kept(t, s, Config{Poll: time.Hour}, func(t *testing.T, k *Keeper) {
		sealed := Sealed{KeyID: version("2").KeyID(), Ciphertext: []byte("2|" + version("2").KeyID() + "|0102")}
		took := func() (time.Duration, error) {
			time.Sleep(time.Minute)
			start := time.Now()
			_, err := k.Decrypt(t.Context(), "", sealed)
			return time.Since(start), err
		}
		s.set(func() { s.slow = 2 * time.Second; s.all = append(s.all, version("2")) })
		d, err := took()
		require.ErrorIs(t, err, ErrUnavailable)
		require.Equal(t, 2500*time.Millisecond, d, "2 s for the look, and what is left for the unwrap")

		s.set(func() { s.slow = 0 })
		d, err = took()
		require.NoError(t, err)
		require.Zero(t, d)
	})
}

// Whether there is such a key is not known then.
func TestALookThatTakesTooLongSaysNothingOfAKey(t *testing.T) {
	s := newShelf("1")
	kept(t, s, Config{Poll: time.Hour}, func(t *testing.T, k *Keeper) {
		time.Sleep(time.Minute)
		s.set(func() { s.slow = 2 * time.Second })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := k.Decrypt(ctx, "", Sealed{KeyID: version("2").KeyID(), Ciphertext: []byte("x")})
		require.NotErrorIs(t, err, ErrUnknownKey)
		require.Equal(t, codes.DeadlineExceeded, CodeOf(err))
		require.ErrorContains(t, err, "were not looked at in time")
		time.Sleep(time.Minute)
	})
}
