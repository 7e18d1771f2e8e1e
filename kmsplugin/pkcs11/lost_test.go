//go:build cgo

package pkcs11

import (
	"sync/atomic"
	"testing"

	cryptoki "github.com/miekg/pkcs11"
	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/kmsplugin"
)

// lost is a module that loses its device. What it knows by heart it tells, as of sessions and
// slots; what it has to ask the device for fails until it is initialised again once that is back.
type lost struct {
	*altered
	back  atomic.Bool
	inits atomic.Int32
}

func (l *lost) Initialize(o ...cryptoki.InitializeOption) error {
	err := l.altered.Initialize(o...)
	if l.back.Load() {
		l.inits.Add(1)
		l.set(func(a *altered) { a.fails, a.encrypts = nil, nil })
	}
	return err
}

func TestAModuleThatLostItsDeviceIsInitialisedAgain(t *testing.T) {
	refuses := func(driver, cryptoki.SessionHandle, cryptoki.ObjectHandle, []byte, []byte, []byte) ([]byte, []byte, error) {
		return nil, nil, cryptoki.Error(cryptoki.CKR_DEVICE_ERROR)
	}
	for what, lose := range map[string]func(*altered){
		"and all that is on it":       func(a *altered) { a.fails = cryptoki.Error(cryptoki.CKR_DEVICE_ERROR) },
		"and knows the keys by heart": func(a *altered) { a.encrypts = refuses },
	} {
		t.Run(what, func(t *testing.T) {
			token, info := tokenWithKey(t)
			l := &lost{altered: alter(t, token)}
			mine := newModule(token.config.Module, l)
			token.load = func(string) (*module, error) { return mine, nil }
			k := keep(t, token)
			becomes(t, k, wraps(info.KeyID))
			sealed := wrapped(t, k)
			l.set(lose)
			_, err := k.Encrypt(t.Context(), "", []byte("dek"))
			require.Error(t, err)
			l.back.Store(true) // not before, as looks may have it initialised at any time
			becomes(t, k, func(keyID string, err error) bool {
				_, _ = k.Encrypt(t.Context(), "", []byte("dek"))
				return err == nil && l.inits.Load() > 0
			})
			requireOpens(t, k, sealed)
		})
	}
}

// One failure, or two, is nothing to log in again for.
func TestAModuleIsInitialisedAgainAfterSomeLooksInARow(t *testing.T) {
	token, _ := tokenWithKey(t)
	a := alter(t, token)
	s, _ := opened(t, token)
	fail := func(err error) { a.set(func(a *altered) { a.fails = err }) }
	for range 3 {
		fail(cryptoki.Error(cryptoki.CKR_DEVICE_ERROR))
		for range silences - 1 {
			_, err := s.Versions(t.Context())
			require.ErrorIs(t, err, kmsplugin.ErrUnavailable)
		}
		fail(nil)
		_, err := s.Versions(t.Context())
		require.NoError(t, err)
	}
	require.False(t, s.isOver())
}
