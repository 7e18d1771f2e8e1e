package kmsplugin

import (
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

// witness keeps what an Observer is told.
type witness struct {
	mu     sync.Mutex
	calls  []string
	looks  []Look
	opened []Reason
}

func (w *witness) observer() Observer {
	return Observer{
		Called: func(c Call) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.calls = append(w.calls, fmt.Sprint(c.Operation, " ", c.Code, " ", c.Took))
		},
		Looked: func(l Look) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.looks = append(w.looks, l)
		},
		Opened: func(why Reason) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.opened = append(w.opened, why)
		},
	}
}

// since forgets what was told, and returns the calls.
func (w *witness) since() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	calls := w.calls
	w.calls = nil
	return calls
}

// gone are all versions that were told to be.
func (w *witness) gone() (all []Version) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range w.looks {
		all = append(all, l.Gone...)
	}
	return all
}

func (w *witness) lastLook() Look {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.looks[len(w.looks)-1]
}

func TestAnObserverIsToldOfEachCall(t *testing.T) {
	s, w := newShelf("1"), &witness{}
	kept(t, s, Config{Observer: w.observer()}, func(t *testing.T, k *Keeper) {
		require.Equal(t, []string{"open OK 0s", "versions OK 0s", "wrap OK 0s", "unwrap OK 0s"}, w.since())
		require.Equal(t, []Reason{AtStart}, w.opened)
		sealed, err := k.Encrypt(t.Context(), "", []byte("dek"))
		require.NoError(t, err)
		require.Equal(t, []string{"wrap OK 0s"}, w.since())
		s.set(func() { s.err = fmt.Errorf("%w: no", ErrDenied) })
		_, err = k.Decrypt(t.Context(), "", sealed)
		require.Error(t, err)
		require.Equal(t, []string{"unwrap PermissionDenied 0s"}, w.since())
		hangs := make(chan struct{})
		s.set(func() { s.err, s.hangs = nil, hangs })
		_, err = k.Decrypt(t.Context(), "", sealed)
		require.Error(t, err)
		require.Equal(t, []string{"unwrap Unavailable 2.5s"}, w.since(), "it is told when it is given up")
		s.set(func() { s.hangs = nil })
		close(hangs)
	})
	require.Contains(t, w.since(), "close OK 0s")
}

func TestAnObserverIsToldOfLooks(t *testing.T) {
	s, w := newShelf("1", "2"), &witness{}
	kept(t, s, Config{Observer: w.observer(), Steady: 1}, func(t *testing.T, k *Keeper) {
		zero, one, two, three := version("0"), version("1"), version("2"), version("3")
		require.Equal(t, Look{At: time.Now(), KeyID: two.KeyID(), Announced: true, Versions: 2}, w.lastLook())
		s.set(func() { s.err = fmt.Errorf("%w: sealed", ErrUnavailable) })
		poll(1)
		trouble := w.lastLook()
		require.Equal(t, Look{At: trouble.At, Code: codes.Unavailable, KeyID: two.KeyID(), Versions: 2}, trouble)
		two.Formerly = []string{"2.0f3a"}
		s.set(func() { s.err, s.all, s.writes = nil, []Version{zero, two, three}, 2 })
		poll(1)
		s.set(func() { s.all, s.writes = []Version{three}, 0 })
		poll(1)
		var announced []string
		var gone []Version
		for _, l := range w.looks {
			gone = append(gone, l.Gone...)
			if l.Announced {
				announced = append(announced, l.KeyID)
			}
		}
		require.Equal(t, []string{two.KeyID(), three.KeyID()}, announced)
		require.ElementsMatch(t, []Version{one, zero, two}, gone, "each once, however many names it has")
		require.Equal(t, codes.OK, w.lastLook().Code)
	})
}

// What an answer shows that comes with an error, or of which a part is missing, is not all there is.
func TestAVersionIsToldToBeGoneOnceAllWereSeen(t *testing.T) {
	for what, hide := range map[string]func(*shelf){
		"an error": func(s *shelf) { s.err, s.readable = fmt.Errorf("%w: slow", ErrUnavailable), true },
		"a part":   func(s *shelf) { s.partial = true },
	} {
		t.Run(what, func(t *testing.T) {
			s, w := newShelf("1", "2", "3"), &witness{}
			kept(t, s, Config{Observer: w.observer()}, func(t *testing.T, k *Keeper) {
				one := version("1")
				sealed := Sealed{KeyID: one.KeyID(), Ciphertext: []byte("1|")}
				s.set(func() { hide(s); s.all, s.writes = s.all[1:], 1 })
				poll(3)
				require.Empty(t, w.gone())
				_, err := k.Decrypt(t.Context(), "", sealed)
				require.ErrorIs(t, err, ErrUnavailable)
				require.NotErrorIs(t, err, ErrUnknownKey)
				s.set(func() { s.err, s.readable, s.partial = nil, false, false })
				poll(3)
				require.Equal(t, []Version{one}, w.gone(), "once")
				_, err = k.Decrypt(t.Context(), "", sealed)
				require.ErrorIs(t, err, ErrUnknownKey)
			})
		})
	}
}

func TestAnObserverIsToldWhyASessionWasOpened(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte("one"), 0o600))
	s, w := newShelf("1"), &witness{}
	kept(t, s, Config{Observer: w.observer(), Credentials: []string{file}}, func(t *testing.T, k *Keeper) {
		require.NoError(t, os.WriteFile(file, []byte("another"), 0o600))
		poll(2)
		s.set(func() { close(s.over) })
		synctest.Wait()
		require.Equal(t, []Reason{AtStart, AfterCredentials, AfterEnd}, w.opened)
	})
}

// An observer that calls the Keeper would hang if it was told under a lock.
func TestAnObserverMayAskTheKeeper(t *testing.T) {
	var k *Keeper
	ask := func() {
		if k != nil {
			_, _ = k.Status(context.Background())
		}
	}
	o := Observer{Called: func(Call) { ask() }, Looked: func(Look) { ask() }, Opened: func(Reason) { ask() }}
	kept(t, newShelf("1"), Config{Observer: o}, func(t *testing.T, keeper *Keeper) {
		k = keeper
		_, err := k.Encrypt(t.Context(), "", []byte("dek"))
		require.NoError(t, err)
		poll(2)
	})
}

func TestCheckLooksNowAndWithATestDEK(t *testing.T) {
	s, w := newShelf("1"), &witness{}
	kept(t, s, Config{Observer: w.observer()}, func(t *testing.T, k *Keeper) {
		time.Sleep(2 * soon)
		w.since()
		began := time.Now()
		require.NoError(t, k.Check(t.Context()))
		require.Zero(t, time.Since(began))
		require.Equal(t, []string{"versions OK 0s", "wrap OK 0s", "unwrap OK 0s"}, w.since())
		s.set(func() { s.err = fmt.Errorf("%w: the token was revoked", ErrDenied) })
		_, err := k.Status(t.Context())
		require.NoError(t, err, "nobody has looked yet")
		require.ErrorIs(t, k.Check(t.Context()), ErrDenied)
		require.Equal(t, soon, time.Since(began), "at most once a second")
		_, err = k.Status(t.Context())
		require.ErrorIs(t, err, ErrDenied, "apiservers profit from it")
	})
}

func TestManyWhoCheckShareALook(t *testing.T) {
	s := newShelf("1")
	kept(t, s, Config{}, func(t *testing.T, k *Keeper) {
		before := s.looks
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() { assert.NoError(t, k.Check(t.Context())) })
		}
		all.Wait()
		require.LessOrEqual(t, s.looks-before, 2)
	})
}

func TestACheckOfABackEndThatHangsEnds(t *testing.T) {
	s := newShelf("1")
	kept(t, s, Config{}, func(t *testing.T, k *Keeper) {
		hangs := make(chan struct{})
		s.set(func() { s.hangs = hangs })
		began := time.Now()
		require.ErrorContains(t, k.Check(t.Context()), "in time")
		require.LessOrEqual(t, time.Since(began), 2500*time.Millisecond)
		s.set(func() { s.hangs = nil })
		close(hangs)
	})
	k, err := NewKeeper(s, Config{})
	require.NoError(t, err)
	ended, end := context.WithCancel(t.Context())
	end()
	require.Error(t, k.Check(ended), "nobody runs it")
}

// destroying is a shelf that destroys.
type destroying struct {
	*shelf
}

func (d destroying) Open(ctx context.Context) (Session, error) {
	_, err := d.shelf.Open(ctx)
	return d, err
}

func (d destroying) Destroy(_ context.Context, v Version) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err != nil {
		return d.err
	}
	for i := range d.all {
		if d.all[i].KeyID() == v.KeyID() {
			d.all = append(append([]Version{}, d.all[:i]...), d.all[i+1:]...)
			if i < d.writes {
				d.writes--
			}
			return nil
		}
	}
	return errors.New("none of these")
}

func TestAVersionIsDestroyedUnlessItIsOfUse(t *testing.T) {
	s := newShelf("1", "2", "3", "4")
	s.writes = 2
	bubble.Test(t, func(t *testing.T) {
		var log strings.Builder
		ctx := klog.NewContext(t.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log))))
		k, err := NewKeeper(destroying{s}, Config{Pin: "2"})
		require.NoError(t, err)
		stop := k.Start(ctx)
		require.Equal(t, version("2").KeyID(), keyIDOf(t, k))
		require.ErrorContains(t, k.Destroy(ctx, version("2").KeyID()), "announced")
		require.ErrorContains(t, k.Destroy(ctx, version("3").KeyID()), "will be announced")
		require.ErrorIs(t, k.Destroy(ctx, "nobody's"), ErrUnknownKey)
		require.Len(t, s.all, 4)
		require.NoError(t, k.Destroy(ctx, version("1").KeyID()))
		synctest.Wait()
		require.Len(t, s.all, 3)
		require.ErrorIs(t, k.Destroy(ctx, version("1").KeyID()), ErrUnknownKey)
		require.Equal(t, version("2").KeyID(), keyIDOf(t, k))
		require.Contains(t, log.String(), "a version was destroyed")
		require.NotContains(t, log.String(), "nothing can be wrapped")
		synctest.Wait() // for the look that follows
		s.set(func() { s.err = ErrDenied })
		require.ErrorIs(t, k.Destroy(ctx, version("4").KeyID()), ErrDenied)
		require.NoError(t, stop())
	})
}

func TestNothingIsDestroyedInTroubleNorByABackEndThatCannot(t *testing.T) {
	s := newShelf("1", "2")
	kept(t, s, Config{}, func(t *testing.T, k *Keeper) {
		require.ErrorIs(t, k.Destroy(t.Context(), version("1").KeyID()), errors.ErrUnsupported)
		s.set(func() { s.err = ErrUnavailable })
		poll(1)
		require.ErrorContains(t, k.Destroy(t.Context(), version("1").KeyID()), "while something is wrong")
		s.set(func() { s.err = nil })
	})
	k, err := NewKeeper(s, Config{})
	require.NoError(t, err)
	ended, end := context.WithCancel(t.Context())
	end()
	require.ErrorContains(t, k.Destroy(ended, version("1").KeyID()), "nothing was destroyed")
}
