//go:build cgo

package pkcs11

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	cryptoki "github.com/miekg/pkcs11"
	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/kmsplugin"
)

// heart is a module that lost its device, and tells what it knows by heart. It is well again once
// it is initialised after the device is back.
type heart struct {
	*altered
	back  atomic.Bool
	inits atomic.Int32
	stays error // what C_Finalize says, with which nothing ends
}

func (h *heart) Initialize(o ...cryptoki.InitializeOption) error {
	err := h.altered.Initialize(o...)
	h.inits.Add(1)
	if h.back.Load() {
		h.set(func(a *altered) { a.fails, a.draws, a.login, a.hides, a.encrypts = nil, nil, nil, nil, nil })
	}
	return err
}

func (h *heart) Finalize() error {
	if h.stays != nil {
		return h.stays
	}
	return h.altered.Finalize()
}

// keptByHand is a token that a test keeps as the kit does, by a clock that it steps.
type keptByHand struct {
	testing.TB
	*heart
	token *Token
	clock *stepping
	s     *session
	every time.Duration // between two looks
}

func keepByHand(t testing.TB, d func(driver) driver) *keptByHand {
	t.Helper()
	clock := &stepping{}
	clock.passed.Store(time.Now().UnixNano())
	c := newConfig(t)
	c.Clock = clock
	token := newToken(t, c)
	_, err := token.Create(t.Context())
	require.NoError(t, err)
	k := &keptByHand{TB: t, heart: &heart{altered: alter(t, token)}, token: token, clock: clock, every: time.Second}
	if d != nil {
		k.driver = d(k.driver)
	}
	mine := newModule(token.config.Module, k.heart)
	token.load = func(string) (*module, error) { return mine, nil }
	require.NoError(t, k.look())
	t.Cleanup(func() { require.NoError(t, k.s.Close(context.Background())) })
	return k
}

// look looks, with another session if this one is over.
func (k *keptByHand) look() error {
	if k.s == nil || k.s.isOver() {
		next, err := k.token.Open(k.Context())
		if err != nil {
			return err
		}
		if k.s != nil {
			go func(over *session) { _ = over.Close(context.Background()) }(k.s)
		}
		k.s = next.(*session)
	}
	_, err := k.s.Versions(k.Context())
	return err
}

// looks looks for some time, or until all is well.
func (k *keptByHand) looks(long time.Duration) (err error) {
	for end := k.clock.Now().Add(long); k.clock.Now().Before(end); k.clock.passed.Add(int64(k.every)) {
		if err = k.look(); err == nil {
			return nil
		}
	}
	return err
}

// loses loses the device, which says this of all it is asked.
func (k *keptByHand) loses(code uint) {
	k.back.Store(false)
	k.set(func(a *altered) {
		a.fails, a.draws = cryptoki.Error(code), cryptoki.Error(code)
		if code != cryptoki.CKR_USER_NOT_LOGGED_IN { // which is no answer to a PIN
			a.login = func(string) error { return cryptoki.Error(code) }
		}
	})
}

func (k *keptByHand) wraps() error {
	id := k.s.keys.Load().ids[0]
	_, _, err := k.s.Wrap(k.Context(), id.version(), []byte("dek"), nil)
	return err
}

// Also one that says clearly what is wrong may know by heart that it can open a session.
func TestWhateverAModuleSaysThatLostItsDeviceItIsInitialisedAgain(t *testing.T) {
	for _, code := range []uint{
		cryptoki.CKR_DEVICE_ERROR, cryptoki.CKR_DEVICE_REMOVED, cryptoki.CKR_TOKEN_NOT_PRESENT, cryptoki.CKR_SESSION_HANDLE_INVALID,
		cryptoki.CKR_USER_NOT_LOGGED_IN, cryptoki.CKR_DEVICE_MEMORY, cryptoki.CKR_VENDOR_DEFINED + 3,
	} {
		t.Run(fmt.Sprint(cryptoki.Error(code)), func(t *testing.T) {
			k := keepByHand(t, nil)
			k.every = 2 * time.Second
			for range 2 {
				k.loses(code)
				require.Error(t, k.looks(20*time.Second))
				k.back.Store(true)
				require.NoError(t, k.looks(15*time.Minute))
				require.NoError(t, k.wraps())
			}
		})
	}
}

func TestAModuleThatDoesNotWrapAnyMoreIsInitialisedAgainWhateverItSays(t *testing.T) {
	for _, code := range []uint{cryptoki.CKR_DEVICE_ERROR, cryptoki.CKR_DEVICE_REMOVED, cryptoki.CKR_DEVICE_MEMORY, cryptoki.CKR_FUNCTION_REJECTED} {
		t.Run(fmt.Sprint(cryptoki.Error(code)), func(t *testing.T) {
			k := keepByHand(t, nil)
			k.back.Store(true)
			k.set(func(a *altered) {
				a.encrypts = func(driver, cryptoki.SessionHandle, cryptoki.ObjectHandle, []byte, []byte, []byte) ([]byte, []byte, error) {
					return nil, nil, cryptoki.Error(code)
				}
			})
			var err error
			for range silences + 1 {
				require.NoError(t, k.look())
				err = k.wraps()
			}
			require.NoError(t, err)
		})
	}
}

// What the kit asks each second is too often for a module that takes a while to start.
func TestBetweenTwoTimesThatAModuleIsInitialisedThereArePausesOfUpToAMinute(t *testing.T) {
	k := keepByHand(t, nil)
	before := k.inits.Load()
	k.loses(cryptoki.CKR_DEVICE_REMOVED)
	require.Error(t, k.looks(10*time.Minute))
	n := k.inits.Load() - before
	require.GreaterOrEqual(t, n, int32(6+8))
	require.LessOrEqual(t, n, int32(6+10))
	k.back.Store(true)
	require.NoError(t, k.looks(61*time.Second))
}

// Until its PIN may be tried again the module is not, but for that it would never be.
func TestAModuleIsInitialisedAgainWhileItsPINIsInDoubt(t *testing.T) {
	for _, code := range []uint{cryptoki.CKR_GENERAL_ERROR, cryptoki.CKR_FUNCTION_FAILED} {
		t.Run(fmt.Sprint(cryptoki.Error(code)), func(t *testing.T) {
			k := keepByHand(t, nil)
			k.every = 10 * time.Second
			k.loses(code)
			logins := 0
			k.set(func(a *altered) { // as an HSM that starts
				a.draws = nil
				a.login = func(string) error { logins++; return cryptoki.Error(code) }
			})
			require.ErrorContains(t, k.looks(10*time.Minute), "tried again in")
			require.Equal(t, 4, logins, "at once, and after 1, 2 and 4 minutes, however often the module was initialised")
			k.back.Store(true)
			require.NoError(t, k.looks(time.Hour))
		})
	}
}

func TestAPINThatIsRefusedIsTriedOnceHoweverOftenTheModuleIsInitialised(t *testing.T) {
	k := keepByHand(t, nil)
	logins := 0
	k.loses(cryptoki.CKR_DEVICE_REMOVED)
	require.Error(t, k.looks(5*time.Second))
	k.every = 10 * time.Second
	k.set(func(a *altered) {
		a.fails, a.draws = nil, nil
		a.login = func(string) error { logins++; return cryptoki.Error(cryptoki.CKR_PIN_INCORRECT) }
	})
	before := k.inits.Load()
	require.ErrorIs(t, k.looks(10*time.Minute), kmsplugin.ErrDenied)
	require.Greater(t, k.inits.Load(), before)
	require.Equal(t, 1, logins)
	k.back.Store(true)
	k.set(func(a *altered) { a.login = nil })
	writePIN(t, k.token.config, firstPIN+" ")
	require.ErrorIs(t, k.looks(time.Minute), kmsplugin.ErrDenied)
}

// To who is not logged in any more it is as if there were no keys, also right after the module was
// initialised.
func TestAModuleThatShowsNoKeyAnyMoreIsInitialisedAgain(t *testing.T) {
	k := keepByHand(t, nil)
	k.set(func(a *altered) { a.hides = func() bool { return true } })
	require.ErrorIs(t, k.looks(time.Minute), ErrNoKey)
	k.back.Store(true)
	require.NoError(t, k.looks(2*time.Minute))
}

func TestALookThatHangsKeepsNobodyAway(t *testing.T) {
	k := keepByHand(t, nil)
	call, hang, hangs := hangOnce()
	k.set(func(a *altered) { a.hides = func() bool { call(); return false } })
	ended := make(chan struct{})
	ctx, giveUp := context.WithCancel(t.Context())
	go func(s *session) { _, _ = s.Versions(ctx); close(ended) }(k.s)
	defer func() { close(hang); <-ended }()
	<-hangs
	giveUp()
	for range silences {
		_, err := k.s.Versions(ctx) // or it would wait for the one that hangs
		require.ErrorIs(t, err, kmsplugin.ErrUnavailable)
	}
	require.NoError(t, k.looks(5*time.Second))
	require.NoError(t, k.wraps())
}

// A call of C cannot be ended, and while it runs nothing is initialised.
func TestAModuleThatCannotBeInitialisedAgainIsToldOfUntilItCan(t *testing.T) {
	k := keepByHand(t, nil)
	hang, hangs := make(chan struct{}), make(chan struct{})
	k.set(func(a *altered) { a.decrypts = func() error { close(hangs); <-hang; return nil } })
	ended := make(chan struct{})
	go func(s *session) {
		defer close(ended)
		_, _ = s.Unwrap(t.Context(), s.keys.Load().ids[0].version(), append([]byte{form}, make([]byte, 60)...), nil)
	}(k.s)
	<-hangs
	k.set(func(a *altered) { a.decrypts = nil })
	k.loses(cryptoki.CKR_DEVICE_ERROR)
	k.back.Store(true)
	told, byHeart := false, false
	for range 10 {
		err := k.look()
		require.Error(t, err)
		told = told || strings.Contains(err.Error(), "restart the plugin")
		require.Equal(t, told, strings.Contains(err.Error(), "restart the plugin"), "until it can: %v", err)
		byHeart = byHeart || told && !k.s.isOver()
	}
	require.True(t, told)
	require.True(t, byHeart, "also while a session is open, as that call may be the only one that hangs")
	close(hang)
	<-ended
	require.NoError(t, k.looks(61*time.Second))

	k.set(func(a *altered) { a.fails = cryptoki.Error(cryptoki.CKR_DEVICE_ERROR) })
	err := k.look()
	require.Error(t, err)
	require.NotContains(t, err.Error(), "restart the plugin")
	k.set(func(a *altered) { a.fails = nil })
	require.NoError(t, k.look())
}

func TestALoginThatHangsIsToldOf(t *testing.T) {
	token, info := tokenWithKey(t)
	a := alter(t, token)
	call, hang, hangs := hangOnce()
	a.login = func(string) error { call(); return nil }
	late := make(chan *session)
	ctx, giveUp := context.WithCancel(t.Context())
	go func() {
		s, _ := token.enter(ctx, 0, 8)
		late <- s
	}()
	<-hangs
	giveUp()
	m, err := token.load("")
	require.NoError(t, err)
	for m.entering.late.Load() == 0 {
		runtime.Gosched()
	}
	_, err = token.Open(t.Context())
	require.ErrorIs(t, err, kmsplugin.ErrUnavailable)
	require.ErrorContains(t, err, "restart the plugin")
	close(hang)
	s := <-late
	require.NoError(t, s.Close(t.Context()))
	_, v := opened(t, token)
	require.Equal(t, info.KeyID, v.KeyID())
}

// A token that is in such a state for long would have no sessions left.
func TestAModuleThatDoesNotEndKeepsNoSessions(t *testing.T) {
	var l *limited
	k := keepByHand(t, func(real driver) driver {
		l = &limited{driver: real, live: map[cryptoki.SessionHandle]bool{}, most: 100}
		return l
	})
	k.stays = cryptoki.Error(cryptoki.CKR_FUNCTION_FAILED)
	for range 6 {
		before := k.inits.Load()
		k.loses(cryptoki.CKR_DEVICE_ERROR)
		k.set(func(a *altered) { a.draws, a.login = nil, nil })
		k.back.Store(true)
		require.NoError(t, k.looks(time.Hour))
		require.Greater(t, k.inits.Load(), before)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	require.LessOrEqual(t, len(l.live), 2*8, "those of one session and of the one before")
}

// Some would call for ever into a module in which nothing returns.
func TestNoSessionIsOpenedWhileAsManyCallsHangAsMayRun(t *testing.T) {
	k := keepByHand(t, nil)
	k.s.late.Add(int32(k.token.config.Sessions) + 1)
	_, err := k.token.Open(t.Context())
	require.ErrorIs(t, err, errHang)
	k.s.late.Add(-int32(k.token.config.Sessions) - 1)
}
