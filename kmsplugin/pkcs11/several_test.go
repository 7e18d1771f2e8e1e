//go:build cgo

package pkcs11

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	cryptoki "github.com/miekg/pkcs11"
	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/internal/bubble"
	"github.com/kube-atrest/atrest/kmsplugin"
)

// inTime is as long as the kit gives a look.
const inTime = 2250 * time.Millisecond

// looksInTime is a look as the kit has it.
func looksInTime(t *testing.T, s *session) (kmsplugin.Versions, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), inTime)
	defer cancel()
	return s.Versions(ctx)
}

// requireWorks wraps and unwraps, as the kit does.
func requireWorks(t *testing.T, s *session, v kmsplugin.Version, msg ...any) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
	defer cancel()
	ct, used, err := s.Wrap(ctx, v, []byte("dek"), []byte("aad"))
	require.NoError(t, err, msg...)
	require.Equal(t, v, used)
	dek, err := s.Unwrap(ctx, v, ct, []byte("aad"))
	require.NoError(t, err, msg...)
	require.Equal(t, "dek", string(dek))
}

func TestAHandleIsOfTheHSMThatTheSessionIsWith(t *testing.T) {
	for n := 1; n <= 3; n++ {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			token := tokenOfTwoLabels(t, 3)
			unhurried(token)
			truth, _ := opened(t, newToken(t, token.config))
			known, err := truth.Versions(t.Context())
			require.NoError(t, err)
			behind(t, token, n)
			s, _ := opened(t, token)
			for range 16 {
				found, err := s.Versions(t.Context())
				require.NoError(t, err)
				require.Equal(t, known, found)
				for _, v := range found.All {
					ct, used, err := s.Wrap(t.Context(), v, []byte("dek"), nil)
					require.NoError(t, err)
					require.Equal(t, v, used)
					dek, err := truth.Unwrap(t.Context(), v, ct, nil)
					require.NoError(t, err, "it was wrapped under another key")
					require.Equal(t, "dek", string(dek))
					_, err = s.Unwrap(t.Context(), v, ct, nil)
					require.NoError(t, err)
					_, err = s.Unwrap(t.Context(), v, damagedOf(ct), nil)
					require.ErrorIs(t, err, kmsplugin.ErrInvalid)
				}
			}
		})
	}
}

// A session that is opened in the place of another may be with another HSM.
func TestASessionThatIsExchangedKnowsNothingOfTheOneBefore(t *testing.T) {
	token := tokenOfTwoLabels(t, 3)
	truth, _ := opened(t, newToken(t, token.config))
	h := behind(t, token, 3)
	token.config.Sessions = 2
	s, v := opened(t, token)
	for range 12 {
		ct, _, err := s.Wrap(t.Context(), v, []byte("dek"), nil)
		require.NoError(t, err)
		_, err = truth.Unwrap(t.Context(), v, ct, nil)
		require.NoError(t, err)
		l := s.pool.now(want{})
		before := h.of[l.handle]
		_, err = s.pool.exchange(l)
		require.NoError(t, err)
		require.NotEqual(t, before, h.of[l.handle])
		s.pool.put(l)
	}
}

func TestWhatOneHSMOfSeveralAnswersStopsNobodyElse(t *testing.T) {
	for _, code := range []uint{
		cryptoki.CKR_DEVICE_REMOVED, cryptoki.CKR_TOKEN_NOT_PRESENT, cryptoki.CKR_DEVICE_ERROR, cryptoki.CKR_USER_NOT_LOGGED_IN,
		cryptoki.CKR_GENERAL_ERROR, cryptoki.CKR_SESSION_HANDLE_INVALID, cryptoki.CKR_OBJECT_HANDLE_INVALID, cryptoki.CKR_KEY_HANDLE_INVALID,
	} {
		for _, moves := range []bool{false, true} {
			t.Run(fmt.Sprint(cryptoki.Error(code), moves), func(t *testing.T) {
				token := tokenWithKeys(t, 2)
				unhurried(token)
				bubble.Test(t, func(t *testing.T) {
					h := behind(t, token, 2)
					s, v := opened(t, token)
					known, err := s.Versions(t.Context())
					require.NoError(t, err)
					h.set(func() {
						h.says[1] = code
						h.next = func(int) int { return 1 }
						if moves {
							h.next = func(int) int { return 0 }
						}
					})
					for n := range 10 {
						requireWorks(t, s, v)
						found, err := looksInTime(t, s)
						require.NoError(t, err)
						require.Equal(t, known.All, found.All)
						if n > 0 {
							require.Equal(t, !moves, found.Partial, "until all are with the one that is well")
						}
						_, err = s.Unwrap(t.Context(), newKeyID(7, time.Now()).version(), append([]byte{form}, make([]byte, 60)...), nil)
						require.Error(t, err)
						if !moves {
							require.NotErrorIs(t, err, kmsplugin.ErrUnknownKey)
						}
					}
					require.False(t, s.isOver())
					require.False(t, isDoubted(token))
					require.Equal(t, 8, s.pool.size())
					h.set(func() { clear(h.says) })
					for range 2 {
						found, err := looksInTime(t, s)
						require.NoError(t, err)
						require.Equal(t, known.All, found.All)
					}
				})
			})
		}
	}
}

func TestWhenAllHSMsSayThatTheyAreAwayTheTokenIs(t *testing.T) {
	for _, asks := range []func(*testing.T, *session, kmsplugin.Version) error{
		func(t *testing.T, s *session, _ kmsplugin.Version) error {
			_, err := s.Versions(t.Context())
			return err
		},
		func(t *testing.T, s *session, v kmsplugin.Version) error {
			_, _, err := s.Wrap(t.Context(), v, []byte("dek"), nil)
			return err
		},
		func(t *testing.T, s *session, v kmsplugin.Version) error {
			_, err := s.Unwrap(t.Context(), v, append([]byte{form}, make([]byte, 60)...), nil)
			return err
		},
	} {
		token := tokenWithKeys(t, 1)
		h := behind(t, token, 2)
		s, v := opened(t, token)
		h.set(func() { h.says[0], h.says[1] = cryptoki.CKR_DEVICE_REMOVED, cryptoki.CKR_TOKEN_NOT_PRESENT })
		require.ErrorIs(t, asks(t, s, v), errAway)
		require.True(t, s.isOver(), "at once")
	}
}

// Those that do not come free may hang.
func TestALookDoesNotWaitForLongForSessionsThatAreInUseWhenAllOthersAreAway(t *testing.T) {
	token := tokenWithKeys(t, 1)
	bubble.Test(t, func(t *testing.T) {
		h := behind(t, token, 1)
		s, _ := opened(t, token)
		taken := takeThose(t, s, func(cryptoki.SessionHandle) bool { return true })
		s.pool.put(taken[0])
		h.set(func() { h.says[0] = cryptoki.CKR_DEVICE_REMOVED })
		_, err := looksInTime(t, s)
		require.ErrorIs(t, err, errAway)
		require.True(t, s.isOver())
		for _, l := range taken[1:] {
			s.pool.put(l)
		}
	})
}

// A key is on the others a while after it was made.
func TestAKeyThatIsNotCopiedYetWrapsOverThoseThatHaveIt(t *testing.T) {
	token := tokenOfTwoLabels(t, 2)
	unhurried(token)
	bubble.Test(t, func(t *testing.T) {
		h := behind(t, token, 4)
		s, v := opened(t, token)
		known, err := s.Versions(t.Context())
		require.NoError(t, err)
		id, _ := parseKeyID(v.Lineage)
		h.set(func() { h.lacks[0], h.lacks[1], h.lacks[2] = id, id, id })
		for range 10 {
			found, err := s.Versions(t.Context())
			require.NoError(t, err)
			require.Equal(t, known, found)
			var all sync.WaitGroup
			for range 8 {
				all.Go(func() {
					if _, used, err := s.Wrap(t.Context(), v, []byte("dek"), nil); err != nil || used.KeyID() != v.KeyID() {
						t.Errorf("%v, %v", used, err)
					}
				})
			}
			all.Wait()
			requireWorks(t, s, v)
		}
		h.set(func() { h.lacks[3] = id })
		_, err = s.Unwrap(t.Context(), v, append([]byte{form}, make([]byte, 60)...), nil)
		require.ErrorIs(t, err, kmsplugin.ErrUnavailable, "no look has shown that it is gone")
		found, err := s.Versions(t.Context())
		require.NoError(t, err)
		require.NotContains(t, found.All, v)
		require.False(t, found.Partial)
		_, err = s.Unwrap(t.Context(), v, append([]byte{form}, make([]byte, 60)...), nil)
		require.ErrorIs(t, err, kmsplugin.ErrUnknownKey)
	})
}

func TestOneHSMOfSeveralThatHangsStopsNobodyElse(t *testing.T) {
	token := tokenOfTwoLabels(t, 2)
	bubble.Test(t, func(t *testing.T) {
		h := behind(t, token, 2)
		s, v := opened(t, token)
		known, err := s.Versions(t.Context())
		require.NoError(t, err)
		hang := make(chan struct{})
		h.set(func() { h.hangs[1] = hang })
		for range 10 {
			requireWorks(t, s, v)
			found, err := looksInTime(t, s)
			require.NoError(t, err)
			require.Equal(t, known.All, found.All)
			require.True(t, found.Partial)
			_, err = s.Unwrap(t.Context(), newKeyID(7, time.Now()).version(), append([]byte{form}, make([]byte, 60)...), nil)
			require.ErrorIs(t, err, kmsplugin.ErrUnavailable)
			require.NotErrorIs(t, err, kmsplugin.ErrUnknownKey)
		}
		require.EqualValues(t, 4, s.late.Load())
		require.False(t, s.isOver())
		close(hang)
		h.set(func() { clear(h.hangs) })
		synctest.Wait()
		require.Zero(t, s.late.Load())
		found, err := looksInTime(t, s)
		require.NoError(t, err)
		require.Equal(t, known, found)
	})
}

// All sessions with the token wait for each other there.
func TestASlowTokenWithManyKeysIsLookedAtInTimeAndWraps(t *testing.T) {
	token := tokenWithKeys(t, 18)
	for _, takes := range []time.Duration{5 * time.Millisecond, 20 * time.Millisecond, 100 * time.Millisecond} {
		for _, n := range []int{1, 2} {
			t.Run(fmt.Sprintf("%s, %d HSMs", takes, n), func(t *testing.T) {
				bubble.Test(t, func(t *testing.T) {
					h := behind(t, token, n)
					s, v := opened(t, token)
					h.set(func() { h.takes = takes })
					for range 12 {
						var wraps sync.WaitGroup
						if takes < 100*time.Millisecond { // with which a look has no time for anything else
							wraps.Go(func() {
								ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
								defer cancel()
								if _, _, err := s.Wrap(ctx, v, []byte("dek"), nil); err != nil {
									t.Error(err)
								}
							})
						}
						found, err := looksInTime(t, s)
						require.NoError(t, err)
						require.Len(t, found.All, 18)
						wraps.Wait()
						requireWorks(t, s, v)
					}
					before := h.count()
					found, err := looksInTime(t, s)
					require.NoError(t, err)
					require.Equal(t, takes > 5*time.Millisecond, found.Partial)
					if takes == 100*time.Millisecond {
						require.LessOrEqual(t, h.count()-before, 1+2+18+8, "one reading, and a listing of each session")
					}
					time.Sleep(time.Minute) // what runs still has ended
				})
			})
		}
	}
}
