//go:build cgo

package pkcs11

import (
	"fmt"
	"testing"
	"time"

	cryptoki "github.com/miekg/pkcs11"
	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/internal/bubble"
	"github.com/kube-atrest/atrest/kmsplugin"
)

// One HSM gave the number of a key that it has no more to a new one, and neither change is copied yet.
func TestAKeyThatHasTheNumberOfADeletedOneOnOneHSMIsNotSaidToBeGone(t *testing.T) {
	token := tokenWithKeys(t, 3)
	truth, _ := opened(t, newToken(t, token.config))
	known, err := truth.Versions(t.Context())
	require.NoError(t, err)
	first, _ := parseKeyID(known.All[0].Lineage)
	last, _ := parseKeyID(known.All[2].Lineage)
	ct, _, err := truth.Wrap(t.Context(), known.All[2], []byte("dek"), nil)
	require.NoError(t, err)
	unhurried(token)
	for at := range 8 {
		t.Run(fmt.Sprint(at), func(t *testing.T) {
			h := behind(t, token, 2)
			h.lacks[0], h.lacks[1] = last, last
			s, _ := opened(t, token)
			for range 8 + at {
				found, err := s.Versions(t.Context())
				require.NoError(t, err)
				require.Len(t, found.All, 2)
			}
			h.set(func() {
				h.lacks[1] = first
				order := make([][]byte, 3)
				order[h.number(1, known.All[0].Lineage)-1] = known.All[2].Lineage
				order[h.number(1, known.All[1].Lineage)-1] = known.All[1].Lineage
				order[h.number(1, known.All[2].Lineage)-1] = known.All[0].Lineage
				h.order[1] = order
			})
			token.config.Clock = &waits{busy: time.Hour, took: time.Hour}
			_, err := s.Unwrap(t.Context(), newKeyID(7, time.Now()).version(), ct, nil)
			require.NotErrorIs(t, err, kmsplugin.ErrUnknownKey, "a slow token is not asked for all")
			unhurried(token)
			dek, err := s.Unwrap(t.Context(), known.All[2], ct, nil)
			require.NoError(t, err)
			require.Equal(t, "dek", string(dek))
		})
	}
}

// To a session of which its HSM knows no login it is as if there were no keys.
func TestAnHSMWhereNobodyIsLoggedInDoesNotSayThatAKeyIsGone(t *testing.T) {
	token := tokenWithKeys(t, 2)
	h := behind(t, token, 2)
	s, v := opened(t, token)
	known, err := s.Versions(t.Context())
	require.NoError(t, err)
	ct, _, err := s.Wrap(t.Context(), v, []byte("dek"), nil)
	require.NoError(t, err)
	id, _ := parseKeyID(v.Lineage)
	h.set(func() {
		h.lacks[0] = id
		h.shut[1] = true
		h.next = func(int) int { return 1 }
	})
	for range 10 {
		found, err := s.Versions(t.Context())
		require.NoError(t, err)
		require.Equal(t, known.All, found.All)
		require.True(t, found.Partial)
		_, err = s.Unwrap(t.Context(), newKeyID(7, time.Now()).version(), ct, nil)
		require.NotErrorIs(t, err, kmsplugin.ErrUnknownKey)
	}
}

// Each call of it returns, and all keys take it longer than a look may.
func TestOneHSMOfSeveralThatIsSlowStopsNobodyElse(t *testing.T) {
	const versions = 14
	token := tokenWithKeys(t, versions)
	for _, takes := range []time.Duration{150 * time.Millisecond, 600 * time.Millisecond} {
		t.Run(fmt.Sprint(takes), func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				h := behind(t, token, 2)
				s, v := opened(t, token)
				h.set(func() { h.lags[1] = takes })
				slow := 0
				for range 40 {
					found, err := looksInTime(t, s)
					if err != nil {
						slow++
						continue
					}
					require.Len(t, found.All, versions)
					time.Sleep(time.Second) // until all sessions are free
					for range 3 {           // so that the next look is over another one
						requireWorks(t, s, v)
					}
				}
				require.LessOrEqual(t, slow, 2*4, "until it is known of each session with it")
				time.Sleep(time.Minute) // what runs still has ended
			})
		})
	}
}

// quiet are HSMs behind a module that knows by heart that somebody is logged in.
type quiet struct{ *hsms }

func (q quiet) GetSessionInfo(s cryptoki.SessionHandle) (cryptoki.SessionInfo, error) {
	return q.driver.GetSessionInfo(s)
}

func TestAnHSMThatShowsNoKeyDoesNotSayThatOneIsGone(t *testing.T) {
	token := tokenWithKeys(t, 2)
	unhurried(token)
	h := behind(t, token, 2)
	mine := newModule(token.config.Module, quiet{h})
	token.load = func(string) (*module, error) { return mine, nil }
	s, v := opened(t, token)
	known, err := s.Versions(t.Context())
	require.NoError(t, err)
	ct, _, err := s.Wrap(t.Context(), v, []byte("dek"), nil)
	require.NoError(t, err)
	id, _ := parseKeyID(v.Lineage)
	before := s.keys.Load()
	h.set(func() { h.lacks[0], h.shut[1] = id, true })
	for range 10 {
		found, err := s.Versions(t.Context())
		require.NoError(t, err)
		require.Equal(t, known.All, found.All)
		require.True(t, found.Partial)
		s.keys.Store(&ring{})
		_, err = s.Unwrap(t.Context(), v, ct, nil)
		require.ErrorIs(t, err, kmsplugin.ErrUnavailable)
		require.NotErrorIs(t, err, kmsplugin.ErrUnknownKey)
		s.keys.Store(before)
	}
}

// A slow token is not asked anew for what is known. One HSM gave the number of a key to another key, and
// the key another number.
func TestAKeyThatHasAnotherNumberByNowIsNotThereTwice(t *testing.T) {
	token := tokenWithKeys(t, 3)
	h := behind(t, token, 2)
	token.config.Clock = &waits{busy: time.Hour, took: time.Hour}
	s, _ := opened(t, token)
	var known kmsplugin.Versions
	for range 9 {
		var err error
		known, err = s.Versions(t.Context())
		require.NoError(t, err)
	}
	h.set(func() {
		order := make([][]byte, 4)
		order[h.number(1, known.All[0].Lineage)-1] = known.All[1].Lineage
		order[h.number(1, known.All[2].Lineage)-1] = known.All[2].Lineage
		order[3] = known.All[0].Lineage
		h.order[1] = order
	})
	for range 10 {
		found, err := s.Versions(t.Context())
		require.NoError(t, err)
		require.Equal(t, known.All, found.All)
	}
}
