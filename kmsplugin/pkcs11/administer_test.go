//go:build cgo

package pkcs11

import (
	"context"
	"encoding/hex"
	"testing"
	"time"

	cryptoki "github.com/miekg/pkcs11"
	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kube-atrest/atrest/kmsplugin"
)

func TestNoKeyIsMadeBesideOneThatStopsAllWrapping(t *testing.T) {
	c := newConfig(t)
	act(t, c, "make", "foreign")
	token := newToken(t, c)
	_, err := token.Create(t.Context())
	require.ErrorIs(t, err, ErrMistake)
	require.ErrorContains(t, err, "was not made by")
	infos, _ := token.List(t.Context())
	require.Empty(t, infos)
}

// While another process makes a key SoftHSM does not find what is there.
func TestKeysThatAreHiddenForAMomentAreSeen(t *testing.T) {
	token, first := tokenWithKey(t)
	a := alter(t, token)
	hidden := 0
	a.hides = func() bool { hidden--; return hidden >= 0 }
	hidden = 1
	_, err := token.Create(t.Context())
	require.ErrorContains(t, err, "rotate to make another")
	hidden = 1
	second, err := token.Rotate(t.Context())
	require.NoError(t, err)
	hidden = 1
	infos, err := token.List(t.Context())
	require.NoError(t, err)
	first.Writes = false
	require.Equal(t, []KeyInfo{first, second}, infos)
}

func TestAfterTheHighestCounterNoKeyIsMade(t *testing.T) {
	token, _ := tokenWithKey(t)
	id := newKeyID(0xffffffff, time.Now())
	act(t, token.config, "make", "with the CKA_ID", hex.EncodeToString(id[:]))
	_, err := token.Rotate(t.Context())
	require.ErrorIs(t, err, ErrMistake)
	require.ErrorContains(t, err, "the highest number there is")
	infos, err := token.List(t.Context())
	require.NoError(t, err, "no key was made")
	require.Len(t, infos, 2)
}

func TestACommandEndsThoughTheTokenHangs(t *testing.T) {
	c := newConfig(t)
	_, err := newToken(t, c).Create(t.Context())
	require.NoError(t, err)
	clock := clocktesting.NewFakeClock(time.Now())
	c.Clock = clock
	token := newToken(t, c)
	hang, hangs := make(chan struct{}), make(chan struct{}, 2)
	t.Cleanup(func() { close(hang) })
	alter(t, token).attributes = func([]*cryptoki.Attribute) { hangs <- struct{}{}; <-hang }
	list := func(ctx context.Context) chan error {
		done := make(chan error)
		go func() { _, err := token.List(ctx); done <- err }()
		<-hangs
		return done
	}
	ctx, interrupt := context.WithCancel(t.Context())
	ended := list(ctx)
	interrupt()
	err = <-ended
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, kmsplugin.ErrUnavailable)

	ended = list(t.Context())
	clock.Step(patience)
	err = <-ended
	require.ErrorIs(t, err, kmsplugin.ErrUnavailable)
	require.ErrorContains(t, err, "it has not answered for 1m0s")
}
