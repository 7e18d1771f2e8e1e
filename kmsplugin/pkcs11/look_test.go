//go:build cgo

package pkcs11

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/kmsplugin"
	"github.com/kube-atrest/atrest/kmsplugin/plugintest"
)

// stepping is a clock that goes on when it is told to, and whose timers run.
type stepping struct {
	patient
	passed atomic.Int64
}

func (s *stepping) Now() time.Time                  { return time.Unix(0, s.passed.Load()) }
func (s *stepping) Since(t time.Time) time.Duration { return s.Now().Sub(t) }

// A token that takes 100 ms to tell of a key, and a look that ends after 1.8 s. What is known unwraps,
// and as a key may be there that is not, nothing is said to be gone, and the token is not well.
func TestALookAtManyKeysOnASlowTokenGoesOnWhereTheLastOneEnded(t *testing.T) {
	const versions = 24
	token := tokenWithKeys(t, versions)
	n := numberTheKeys(t, token, 100*time.Millisecond)
	s, err := token.Open(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close(context.Background())) })
	for _, known := range []int{18, versions, versions} {
		found, err := s.Versions(t.Context())
		require.ErrorIs(t, err, kmsplugin.ErrUnavailable)
		require.ErrorContains(t, err, "18 of 24 were read in this look")
		require.Len(t, found.All, known)
		ct := append([]byte{form}, make([]byte, 60)...)
		_, err = s.Unwrap(t.Context(), newKeyID(7, time.Now()).version(), ct, nil)
		require.NotErrorIs(t, err, kmsplugin.ErrUnknownKey)
		require.ErrorIs(t, err, kmsplugin.ErrUnavailable)
	}
	n.takes = 10 * time.Millisecond
	found, err := s.Versions(t.Context())
	require.NoError(t, err)
	require.Len(t, found.All, versions)
	ct, _, err := s.Wrap(t.Context(), found.All[found.Writes], []byte("dek"), nil)
	require.NoError(t, err)
	n.takes = 100 * time.Millisecond
	_, err = s.Versions(t.Context())
	require.ErrorIs(t, err, kmsplugin.ErrUnavailable)
	dek, err := s.Unwrap(t.Context(), found.All[found.Writes], ct, nil)
	require.NoError(t, err)
	require.Equal(t, "dek", string(dek))

	infos, err := token.List(t.Context()) // which has more time
	require.NoError(t, err)
	require.Len(t, infos, versions)
	_, err = token.Rotate(t.Context())
	require.NoError(t, err)
}

// After an outage another session begins to read all keys, and the token is slow.
func TestAKeyThatWasNotReadInTimeIsNotToldToBeGone(t *testing.T) {
	token := tokenWithKeys(t, 24)
	n := numberTheKeys(t, token, 50*time.Millisecond)
	config := quick(token)
	var gone atomic.Int32
	config.Observer.Looked = func(l kmsplugin.Look) { gone.Add(int32(len(l.Gone))) }
	k := plugintest.Keep(t, token, config)
	becomes(t, k, isWell)
	n.slow(100 * time.Millisecond)
	token.sessions.now()[0].end()
	becomes(t, k, func(_ string, err error) bool {
		return err != nil && strings.Contains(err.Error(), "were read in this look")
	})
	n.slow(50 * time.Millisecond)
	becomes(t, k, isWell)
	require.Zero(t, gone.Load(), "nothing was deleted")
}

// Half of a key is no good one, either: it would be wrapped under.
func TestAKeyThatWasReadWrongOnceIsNeitherToldNorWrappedUnder(t *testing.T) {
	l := newLine(nil, 1)
	id := newKeyID(9, time.Now())
	key := reading{id: id, bad: badKey{what: "may not encrypt", unwraps: true}, at: time.Now()}
	l.known[object{l, 1}] = key
	require.Empty(t, l.found(false).keys)
	require.Empty(t, l.found(false).wrong)
	key.sure = true
	l.known[object{l, 1}] = key
	require.Contains(t, l.found(false).keys, id)
	require.Contains(t, l.found(false).wrong, "may not encrypt")
}
