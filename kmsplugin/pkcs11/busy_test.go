//go:build cgo

package pkcs11

import (
	"sync/atomic"
	"testing"

	cryptoki "github.com/miekg/pkcs11"
	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/internal/bubble"
	"github.com/kube-atrest/atrest/kmsplugin"
)

func TestAnHSMOfSeveralThatHasTooMuchToDoStopsNobodyElse(t *testing.T) {
	for _, code := range []uint{cryptoki.CKR_DEVICE_MEMORY, cryptoki.CKR_HOST_MEMORY, cryptoki.CKR_SESSION_COUNT} {
		t.Run(cryptoki.Error(code).Error(), func(t *testing.T) {
			token := tokenWithKeys(t, 2)
			bubble.Test(t, func(t *testing.T) {
				h := behind(t, token, 2)
				s, v := opened(t, token)
				h.set(func() { h.says[1] = code; h.next = func(int) int { return 1 } })
				for range 10 {
					requireWorks(t, s, v)
					_, err := looksInTime(t, s)
					require.NoError(t, err)
				}
			})
		})
	}
}

// refusing is a token that opens no session for some.
type refusing struct {
	driver
	n    atomic.Int32
	nope func(n int32) error
}

func (r *refusing) OpenSession(slot, flags uint) (cryptoki.SessionHandle, error) {
	if err := r.nope(r.n.Add(1)); err != nil {
		return 0, err
	}
	return r.driver.OpenSession(slot, flags)
}

// A plugin that is started while one HSM of several is away.
func TestAnHSMOfSeveralThatOpensNoSessionKeepsThePluginFromNothing(t *testing.T) {
	for _, code := range []uint{cryptoki.CKR_DEVICE_ERROR, cryptoki.CKR_DEVICE_REMOVED, cryptoki.CKR_GENERAL_ERROR} {
		for _, turn := range []int32{0, 1} {
			token, _ := tokenWithKey(t)
			m, err := load(token.config.Module)
			require.NoError(t, err)
			r := &refusing{driver: m.driver, nope: func(n int32) error {
				if (n+2*turn)%4 >= 2 {
					return cryptoki.Error(code)
				}
				return nil
			}}
			mine := newModule(m.path, r)
			token.load = func(string) (*module, error) { return mine, nil }
			bubble.Test(t, func(t *testing.T) {
				var s kmsplugin.Session
				for range 3 {
					if s, err = token.Open(t.Context()); err == nil {
						break
					}
				}
				require.NoError(t, err)
				found, err := s.Versions(t.Context())
				require.NoError(t, err)
				requireWorks(t, s.(*session), found.All[0])
				require.NoError(t, s.Close(t.Context()))
			})
		}
	}
}
