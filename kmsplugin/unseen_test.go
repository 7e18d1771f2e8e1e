package kmsplugin

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kube-atrest/atrest/internal/bubble"
)

// forgetter wraps, and unwraps nothing.
type forgetter struct {
	*shelf
	why error
}

func (f forgetter) Open(ctx context.Context) (Session, error) {
	_, err := f.shelf.Open(ctx)
	return f, err
}

func (f forgetter) Unwrap(context.Context, Version, []byte, []byte) ([]byte, error) {
	return nil, f.why
}

// An apiserver takes NotFound and InvalidArgument for the end of a value. What is wrong with a test
// DEK is not wrong with that.
func TestATestDEKThatDoesNotOpenSaysNothingOfAKeyIDThatWasNeverSeen(t *testing.T) {
	for _, why := range []error{ErrInvalid, ErrUnknownKey, status.Error(codes.NotFound, "no such key"), status.Error(codes.InvalidArgument, "no ciphertext")} {
		bubble.Test(t, func(t *testing.T) {
			k, err := NewKeeper(forgetter{newShelf("1"), fmt.Errorf("unwrap: %w", why)}, Config{})
			require.NoError(t, err)
			stop := k.Start(t.Context())
			poll(1)
			_, err = k.Decrypt(t.Context(), "", Sealed{Ciphertext: []byte("c"), KeyID: version("0").KeyID()})
			require.Equal(t, codes.Unavailable, CodeOf(err), why)
			require.ErrorContains(t, err, why.Error())
			require.NoError(t, stop())
		})
	}
}

func TestAKeyIDThatIsNotKnownMayBeThatOfAVersionThatIsWithheld(t *testing.T) {
	s := newShelf("1", "2")
	logged(t, s, Config{}, func(t *testing.T, k *Keeper, lines func() (int, string)) {
		first := Sealed{Ciphertext: []byte("c"), KeyID: version("1").KeyID()}
		s.set(func() {
			s.all, s.writes, s.withheld = s.all[1:], 0, fmt.Errorf("%w: lower the minimum", ErrKeyDisabled)
		})
		poll(1)
		require.Equal(t, version("2").KeyID(), keyIDOf(t, k), "the others go on")
		_, text := lines()
		require.NotContains(t, text, "a version is gone")
		require.Contains(t, text, "may not be gone")
		_, err := k.Decrypt(t.Context(), "", first)
		require.ErrorIs(t, err, ErrKeyDisabled)
		require.ErrorContains(t, err, "lower the minimum")
		s.set(func() { s.withheld = nil })
		poll(1)
		_, err = k.Decrypt(t.Context(), "", first)
		require.ErrorIs(t, err, ErrUnknownKey)
	})
}

// Another HSM may have it: it is neither gone nor gone on from.
func TestAnAnnouncedVersionThatAPartOfTheBackEndDoesNotHaveIsWaitedFor(t *testing.T) {
	for name, part := range map[string][]Version{"the one before": {version("1")}, "a newer one": {version("1"), version("3")}} {
		s := newShelf("1", "2")
		kept(t, s, Config{}, func(t *testing.T, k *Keeper) {
			announced, all := keyIDOf(t, k), s.all
			s.set(func() { s.all, s.writes, s.partial = part, len(part)-1, true })
			poll(3)
			_, err := k.Status(t.Context())
			require.ErrorIs(t, err, ErrUnavailable, name)
			require.ErrorContains(t, err, `version "2", which is wrapped under, was not seen`)
			s.set(func() { s.all, s.writes, s.partial = all, 1, false })
			poll(1)
			require.Equal(t, announced, keyIDOf(t, k))
		})
	}
}

func TestAPinnedVersionThatIsNotSeenIsNotSaidToBeNone(t *testing.T) {
	for text, notAll := range map[string]Versions{"could be asked": {Partial: true}, "lower the minimum": {Withheld: fmt.Errorf("%w: lower the minimum", ErrKeyDisabled)}} {
		s := newShelf("1", "2")
		kept(t, s, Config{Pin: "1"}, func(t *testing.T, k *Keeper) {
			pinned := keyIDOf(t, k)
			all := s.all
			s.set(func() { s.all, s.writes, s.partial, s.withheld = all[1:], 0, notAll.Partial, notAll.Withheld })
			poll(1)
			_, err := k.Status(t.Context())
			require.ErrorContains(t, err, text)
			require.NotContains(t, err.Error(), "the back end has none")
			require.Equal(t, notAll.Withheld == nil, errors.Is(err, ErrUnavailable))
			s.set(func() { s.all, s.writes, s.partial, s.withheld = all, 1, false, nil })
			poll(1)
			require.Equal(t, pinned, keyIDOf(t, k))
		})
	}
}

// moody is a back end whose calls fail and take long as it comes, and that loses nothing.
type moody struct {
	*shelf
	chance sync.Mutex
	random *rand.Rand
	fails  float64 // how often
}

func (m *moody) below(n int) int {
	m.chance.Lock()
	defer m.chance.Unlock()
	return m.random.IntN(n)
}

func (m *moody) mood(call string) error {
	time.Sleep(time.Duration(m.below(2000)) * time.Millisecond)
	m.chance.Lock()
	defer m.chance.Unlock()
	if m.random.Float64() >= m.fails {
		return nil
	}
	of := append([]error{status.Error(codes.NotFound, "none")}, ErrUnavailable, ErrDenied, ErrThrottled, ErrKeyDisabled, ErrUnknownKey, ErrInvalid)
	return fmt.Errorf("%s: %w", call, of[m.random.IntN(len(of))])
}

func (m *moody) Open(ctx context.Context) (Session, error) {
	if err := m.mood("open"); err != nil {
		return nil, err
	}
	_, err := m.shelf.Open(ctx)
	return moodySession{m}, err
}

type moodySession struct{ *moody }

func (m moodySession) Renew(ctx context.Context) error {
	select {
	case <-ctx.Done():
	case <-time.After(time.Duration(m.below(300)) * time.Second):
	}
	return nil
}

func (m moodySession) Versions(ctx context.Context) (Versions, error) {
	failed := m.mood("versions")
	found, err := m.shelf.Versions(ctx)
	if failed == nil {
		return found, err
	}
	if m.below(2) == 0 { // a part, with the error or without
		found.All, found.Writes, found.Partial = found.All[:1], 0, true
		if m.below(2) == 0 {
			failed = nil
		}
		return found, failed
	}
	return Versions{}, failed
}

func (m moodySession) Wrap(ctx context.Context, v Version, dek, aad []byte) ([]byte, Version, error) {
	if err := m.mood("wrap"); err != nil {
		return nil, Version{}, err
	}
	return m.shelf.Wrap(ctx, v, dek, aad)
}

func TestWhateverFailsNothingThatThereIsIsSaidToBeGoneOrDamaged(t *testing.T) {
	file := filepath.Join(t.TempDir(), "secret")
	for seed := range uint64(4) {
		bubble.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			m := &moody{shelf: newShelf("1", "2"), random: rand.New(rand.NewPCG(seed, 2))}
			k, err := NewKeeper(m, Config{Credentials: []string{file}})
			require.NoError(t, err)
			stop := k.Start(t.Context())
			var all []Sealed
			for range 200 {
				m.chance.Lock()
				m.fails = []float64{0, 0.3, 0.8}[random.IntN(3)]
				m.chance.Unlock()
				switch random.IntN(20) {
				case 0:
					m.set(func() { m.all, m.writes = append(m.all, version(fmt.Sprint(len(m.all)+1))), m.writes+1 })
				case 1, 2, 3:
					require.NoError(t, os.WriteFile(file, make([]byte, random.IntN(10)), 0o600))
				}
				time.Sleep(time.Duration(random.IntN(5000)) * time.Millisecond)
				if sealed, err := k.Encrypt(t.Context(), "", []byte("dek")); err == nil {
					all = append(all, sealed)
				}
				if len(all) > 0 {
					_, err := k.Decrypt(t.Context(), "", all[random.IntN(len(all))])
					require.NotContains(t, []codes.Code{codes.NotFound, codes.InvalidArgument}, CodeOf(err), "seed %d: %v", seed, err)
				}
			}
			require.NotEmpty(t, all)
			require.NoError(t, stop())
			m.set(func() { require.Equal(t, m.opened, m.closed) })
		})
	}
}
