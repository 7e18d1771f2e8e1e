package kmsplugin

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/kube-atrest/atrest/internal/bubble"
)

// door is a shelf whose sessions a test tells apart.
type door struct {
	*shelf
	tried   int
	refuses bool
	hangs   chan struct{}               // what Open waits for
	mute    int                         // the session that does not tell its versions, by number
	idle    map[int]bool                // sessions that wrap nothing, by number
	renew   func(context.Context) error // instead of the shelf's
}

type visitor struct {
	*door
	number int
}

func (d *door) Open(ctx context.Context) (Session, error) {
	d.mu.Lock()
	d.tried++
	number, refuses, hangs := d.tried, d.refuses, d.hangs
	d.mu.Unlock()
	if hangs != nil {
		select {
		case <-hangs:
		case <-ctx.Done():
		}
	}
	if refuses {
		return nil, fmt.Errorf("%w: wrong password", ErrDenied)
	}
	_, err := d.shelf.Open(ctx)
	return &visitor{d, number}, err
}

func (v *visitor) Versions(ctx context.Context) (Versions, error) {
	v.mu.Lock()
	mute := v.mute == v.number
	v.mu.Unlock()
	if mute {
		return Versions{}, fmt.Errorf("%w: may not list", ErrDenied)
	}
	return v.shelf.Versions(ctx)
}

func (v *visitor) Wrap(ctx context.Context, under Version, dek, aad []byte) ([]byte, Version, error) {
	v.mu.Lock()
	idle := v.idle[v.number]
	v.mu.Unlock()
	if idle {
		return nil, Version{}, fmt.Errorf("%w: may not wrap", ErrDenied)
	}
	return v.shelf.Wrap(ctx, under, dek, aad)
}

func (v *visitor) Renew(ctx context.Context) error {
	if v.renew != nil {
		return v.renew(ctx)
	}
	return v.shelf.Renew(ctx)
}

// keptDoor runs a test with a Keeper of a door, and a file of credentials to write to.
func keptDoor(t *testing.T, d *door, test func(t *testing.T, k *Keeper, file string)) {
	t.Helper()
	d.shelf = newShelf("1")
	file := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(file, []byte("one"), 0o600))
	bubble.Test(t, func(t *testing.T) {
		k, err := NewKeeper(d, Config{Credentials: []string{file}})
		require.NoError(t, err)
		stop := k.Start(t.Context())
		synctest.Wait()
		test(t, k, file)
		require.NoError(t, stop())
		require.Equal(t, d.opened, d.closed, "every session that was opened is closed")
	})
}

func TestASessionThatDoesNotTellItsVersionsYetIsKept(t *testing.T) {
	d := &door{mute: 1}
	keptDoor(t, d, func(t *testing.T, k *Keeper, file string) {
		poll(3)
		_, err := k.Status(t.Context())
		require.ErrorContains(t, err, "may not list")
		require.Equal(t, 1, d.tried, "what it logged in with may be used up")
		d.set(func() { d.mute = 0 })
		poll(1)
		require.Equal(t, version("1").KeyID(), keyIDOf(t, k))

		d.set(func() { d.mute = 2 })
		require.NoError(t, os.WriteFile(file, []byte("another"), 0o600))
		poll(3)
		require.Equal(t, 2, d.tried)
		require.Zero(t, d.closed)
		require.Equal(t, version("1").KeyID(), keyIDOf(t, k), "the one that there was goes on")
		d.set(func() { d.mute = 0 })
		poll(1)
		require.Equal(t, version("1").KeyID(), keyIDOf(t, k))
		require.Equal(t, 2, d.tried)
		require.Equal(t, 1, d.closed)
	})
}

func TestASessionThatIsKeptInVainIsClosed(t *testing.T) {
	d := &door{}
	keptDoor(t, d, func(t *testing.T, k *Keeper, file string) {
		d.set(func() { d.mute = 2 })
		require.NoError(t, os.WriteFile(file, []byte("another"), 0o600))
		poll(1)
		require.NoError(t, os.WriteFile(file, []byte("a third one"), 0o600))
		poll(1)
		require.Equal(t, 3, d.tried)
		require.Equal(t, 2, d.closed, "the second, and the first when the third had come")
		d.set(func() { d.mute = 4 })
		require.NoError(t, os.WriteFile(file, []byte("a fourth one that is kept at the end"), 0o600))
		poll(1)
		require.Equal(t, 4, d.tried)
	})
}

func TestASessionThatIsOverIsUsedUntilItFails(t *testing.T) {
	d := &door{}
	keptDoor(t, d, func(t *testing.T, k *Keeper, _ string) {
		poll(1)
		d.set(func() { d.refuses = true; close(d.over) })
		poll(6)
		require.Equal(t, version("1").KeyID(), keyIDOf(t, k))
		_, err := k.Encrypt(t.Context(), "", []byte("dek"))
		require.NoError(t, err, "what it has is good until its end")
		require.LessOrEqual(t, d.tried, 10)
		d.set(func() { d.mute = 1 })
		poll(1)
		_, err = k.Status(t.Context())
		require.ErrorContains(t, err, "cannot be opened anew: denied: wrong password; and as it was opened before: denied: may not list")
		d.set(func() { d.refuses = false })
		poll(1)
		require.Equal(t, version("1").KeyID(), keyIDOf(t, k))
	})
}

func TestOfTwoSessionsThatFailTheOneThatIsOverGoes(t *testing.T) {
	d := &door{}
	keptDoor(t, d, func(t *testing.T, k *Keeper, _ string) {
		sealed, err := k.Encrypt(t.Context(), "", []byte("dek"))
		require.NoError(t, err)
		poll(1)
		d.set(func() { d.err, d.readable = ErrUnavailable, true; close(d.over) })
		d.set(func() { d.mute = 2 })
		poll(2)
		_, err = k.Status(t.Context())
		require.ErrorContains(t, err, "may not list")
		require.Equal(t, 1, d.closed)
		_, err = k.Decrypt(t.Context(), "", sealed)
		require.NoError(t, err, "the other one reads")
		d.set(func() { d.err = nil })
	})
}

func TestASessionThatMayOnlyReadTakesNoOthersPlace(t *testing.T) {
	for why, begin := range map[Reason]func(t *testing.T, d *door, file string){
		AfterCredentials: func(t *testing.T, _ *door, file string) {
			require.NoError(t, os.WriteFile(file, []byte("another"), 0o600))
		},
		AfterEnd: func(_ *testing.T, d *door, _ string) { d.set(func() { close(d.over) }) },
	} {
		d := &door{idle: map[int]bool{2: true}}
		keptDoor(t, d, func(t *testing.T, k *Keeper, file string) {
			poll(1)
			begin(t, d, file)
			for range 20 {
				poll(1)
				require.Equal(t, version("1").KeyID(), keyIDOf(t, k), why)
				_, err := k.Encrypt(t.Context(), "", []byte("dek"))
				require.NoError(t, err)
			}
			require.Equal(t, 2, d.tried)
			require.Zero(t, d.closed, "neither of them")
			d.set(func() { d.idle = nil })
			poll(1)
			require.Equal(t, 1, d.closed)
			require.NoError(t, k.Check(t.Context()))
		})
	}
}

func TestOfTwoSessionsThatOnlyReadTheNewerIsTaken(t *testing.T) {
	d := &door{idle: map[int]bool{1: true, 2: true}}
	keptDoor(t, d, func(t *testing.T, k *Keeper, file string) {
		_, err := k.Status(t.Context())
		require.ErrorContains(t, err, "may not wrap")
		require.NoError(t, os.WriteFile(file, []byte("another"), 0o600))
		poll(1)
		_, err = k.Status(t.Context())
		require.ErrorContains(t, err, "may not wrap")
		require.Equal(t, 1, d.closed)
		d.set(func() { delete(d.idle, 2) })
		poll(1)
		require.NoError(t, k.Check(t.Context()))
	})
}

func TestASessionThatFailsForAMomentLosesItsPlaceToNoneThatOnlyReads(t *testing.T) {
	d := &door{idle: map[int]bool{2: true}}
	keptDoor(t, d, func(t *testing.T, k *Keeper, file string) {
		require.NoError(t, os.WriteFile(file, []byte("another"), 0o600))
		poll(2)
		d.set(func() { d.mute = 1 })
		poll(1)
		_, err := k.Status(t.Context())
		require.ErrorContains(t, err, "may not wrap; and as it was opened before: denied: may not list")
		d.set(func() { d.mute = 0 })
		poll(1)
		require.Equal(t, version("1").KeyID(), keyIDOf(t, k))
		require.Zero(t, d.closed)
	})
}

func TestWhatIsWrongIsToldWhileAnOpenHangs(t *testing.T) {
	d := &door{}
	keptDoor(t, d, func(t *testing.T, k *Keeper, file string) {
		d.set(func() { d.hangs = make(chan struct{}) })
		require.NoError(t, os.WriteFile(file, []byte("another"), 0o600))
		poll(1)
		require.Equal(t, 2, d.tried)
		require.NoError(t, k.Check(t.Context()))
		d.set(func() { d.err = fmt.Errorf("%w: sealed", ErrUnavailable) })
		poll(1)
		_, err := k.Status(t.Context())
		require.ErrorContains(t, err, "sealed")
		d.set(func() { d.err = nil; close(d.hangs) })
		poll(1)
		require.Equal(t, version("1").KeyID(), keyIDOf(t, k))
		require.Equal(t, 1, d.closed)
	})
}

func TestABackEndIsOpenedAtMostOnceASecond(t *testing.T) {
	for what, d := range map[string]*door{
		"a Renew that ends at once": {renew: func(context.Context) error { return nil }},
		"an Open that is refused":   {refuses: true},
	} {
		keptDoor(t, d, func(t *testing.T, k *Keeper, file string) {
			for n := range 20 {
				require.NoError(t, os.WriteFile(file, make([]byte, n), 0o600))
				_ = k.Check(t.Context())
				time.Sleep(time.Second / 2)
			}
			synctest.Wait()
			d.set(func() {
				require.LessOrEqual(t, d.tried, 21, what)
				require.Greater(t, d.tried, 1, what)
			})
		})
	}
}

// lockedLog may be written by many.
type lockedLog struct {
	mu sync.Mutex
	strings.Builder
}

func (l *lockedLog) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Builder.Write(text)
}

func (l *lockedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Builder.String()
}

func TestAPanicOfRenewIsTheEndOfItsSessionAlone(t *testing.T) {
	panics := true
	d := &door{renew: func(ctx context.Context) error {
		if panics {
			panics = false
			panic("key material")
		}
		<-ctx.Done()
		return nil
	}}
	var log lockedLog
	bubble.Test(t, func(t *testing.T) {
		d.shelf = newShelf("1")
		ctx := klog.NewContext(t.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log))))
		k, err := NewKeeper(d, Config{})
		require.NoError(t, err)
		stop := k.Start(ctx)
		poll(1)
		require.Equal(t, version("1").KeyID(), keyIDOf(t, k))
		require.Equal(t, 2, d.tried)
		require.NoError(t, stop())
	})
	require.Contains(t, log.String(), "the back end panicked")
	require.NotContains(t, log.String(), "key material")
}

// late is a back end whose Open heeds no deadline, and whose Close panics.
type late struct{ *shelf }

func (l late) Open(context.Context) (Session, error) { time.Sleep(time.Minute); return l, nil }
func (l late) Close(ctx context.Context) error {
	l.set(func() { l.closed++ })
	if ctx.Err() == nil {
		panic("key material")
	}
	return nil
}

// slowly is a back end that takes its time to open, and to take that back.
type slowly struct{ *shelf }

func (s slowly) Open(ctx context.Context) (Session, error) {
	<-ctx.Done()
	time.Sleep(3 * time.Second)
	return s, nil
}

func (s slowly) Close(context.Context) error {
	time.Sleep(2 * time.Second)
	s.set(func() { s.closed++ })
	return nil
}

// A process that ended before would leave behind what it has begun, as in a TPM.
func TestAKeeperThatEndsWaitsForWhatIsBeingOpened(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			callTimeout time.Duration
			closed      int
		}{"to its end": {10 * time.Second, 1}, "as long as for any other": {4 * time.Second, 0}} {
			b := slowly{newShelf("1")}
			k, err := NewKeeper(b, Config{CallTimeout: c.callTimeout})
			require.NoError(t, err)
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- k.Run(ctx) }()
			time.Sleep(time.Second)
			stop()
			require.NoError(t, <-ended)
			b.set(func() { require.Equal(t, c.closed, b.closed, name) })
			time.Sleep(time.Minute)
		}
	})
}

// first is a back end of which the first session comes too late, and the second soon.
type first struct{ *slowly }

func (f first) Open(ctx context.Context) (Session, error) {
	_, err := f.shelf.Open(ctx)
	soon := false
	if f.set(func() { soon = f.opened > 1 }); soon {
		return f, err
	}
	return f.slowly.Open(ctx)
}

func TestAKeeperThatEndsWaitsForOneThatIsStillOpenedBesideAnother(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := first{&slowly{newShelf("1")}}
		k, err := NewKeeper(b, Config{CallTimeout: 10 * time.Second})
		require.NoError(t, err)
		stop := k.Start(t.Context())
		time.Sleep(31 * time.Second) // the first one is given up, and comes in 2 s
		require.Equal(t, version("1").KeyID(), keyIDOf(t, k))
		b.set(func() { require.Equal(t, 2, b.opened) })
		require.NoError(t, stop())
		b.set(func() { require.Equal(t, 2, b.closed) })
	})
}

func TestAPanicOfASessionThatCameTooLateIsItsOwn(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		l := late{newShelf("1")}
		_, _, err := open(t.Context(), l, Config{}.withDefaults())
		require.Equal(t, codes.Unavailable, CodeOf(err))
		time.Sleep(time.Hour)
		l.set(func() { require.Equal(t, 1, l.closed) })
	})
}
