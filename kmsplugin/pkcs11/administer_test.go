//go:build cgo

package pkcs11

import (
	"context"
	"encoding/hex"
	"strings"
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

// ownWay is a token that gives keys an attribute of its own.
type ownWay struct {
	driver
	name  uint
	value []byte
}

func (o *ownWay) GenerateKey(h cryptoki.SessionHandle, m []*cryptoki.Mechanism, template []*cryptoki.Attribute) (cryptoki.ObjectHandle, error) {
	for _, a := range template {
		if a.Type == o.name {
			a.Value = o.value
		}
	}
	return o.driver.GenerateKey(h, m, template)
}

func TestAKeyThatWasMadeAsNobodyAskedForIsNotSaidToWrap(t *testing.T) {
	other := newKeyID(7, time.Now())
	for says, o := range map[string]*ownWay{
		"was not made by":       {name: cryptoki.CKA_ID, value: []byte{1}},
		"is not the 61747231":   {name: cryptoki.CKA_ID, value: other[:]},
		"CKA_EXTRACTABLE true":  {name: cryptoki.CKA_EXTRACTABLE, value: []byte{1}},
		"may not decrypt":       {name: cryptoki.CKA_DECRYPT, value: []byte{0}},
		"is used without a PIN": {name: cryptoki.CKA_PRIVATE, value: []byte{0}},
	} {
		t.Run(says, func(t *testing.T) {
			token := newToken(t, newConfig(t))
			m, err := load(token.config.Module)
			require.NoError(t, err)
			o.driver = m.driver
			mine := newModule(m.path, o)
			token.load = func(string) (*module, error) { return mine, nil }
			_, err = token.Create(t.Context())
			require.ErrorIs(t, err, ErrMistake)
			require.ErrorContains(t, err, "made a key that cannot be used")
			require.ErrorContains(t, err, says)
		})
	}
}

// failing is a token that makes a key, and says of that or of what the key is that something failed.
type failing struct {
	driver
	makes, tells uint // what it says, if not zero
	made         bool
}

func (f *failing) GenerateKey(h cryptoki.SessionHandle, m []*cryptoki.Mechanism, template []*cryptoki.Attribute) (cryptoki.ObjectHandle, error) {
	made, err := f.driver.GenerateKey(h, m, template)
	f.made = true
	if f.makes != 0 {
		return 0, cryptoki.Error(f.makes)
	}
	return made, err
}

func (f *failing) GetAttributeValue(h cryptoki.SessionHandle, o cryptoki.ObjectHandle, a []*cryptoki.Attribute) ([]*cryptoki.Attribute, error) {
	if f.made && f.tells != 0 {
		return nil, cryptoki.Error(f.tells)
	}
	return f.driver.GetAttributeValue(h, o, a)
}

// Plugins wrap under it, and no backup has it.
func TestAKeyThatMayBeThereIsNotSaidNotToBeMade(t *testing.T) {
	for says, f := range map[string]*failing{
		" made version 2-":             {tells: cryptoki.CKR_DEVICE_ERROR},
		" made version 2":              {tells: cryptoki.CKR_OBJECT_HANDLE_INVALID},
		" made version":                {tells: cryptoki.CKR_DEVICE_MEMORY},
		"may have made version 2-":     {makes: cryptoki.CKR_DEVICE_ERROR},
		"may have made version 2":      {makes: cryptoki.CKR_DEVICE_REMOVED},
		"cannot make a key: throttled": {makes: cryptoki.CKR_DEVICE_MEMORY},
		"cannot make a key: denied":    {makes: cryptoki.CKR_FUNCTION_REJECTED},
	} {
		token, _ := tokenWithKey(t)
		m, err := load(token.config.Module)
		require.NoError(t, err)
		f.driver = m.driver
		mine := newModule(m.path, f)
		token.load = func(string) (*module, error) { return mine, nil }
		_, err = token.Rotate(t.Context())
		require.ErrorContains(t, err, says)
		if strings.Contains(says, "version") {
			require.NotContains(t, err.Error(), "cannot make")
			require.NotErrorIs(t, err, ErrMistake)
			require.ErrorContains(t, err, `look with "list": if it is there it wraps from now on, and the token is to be backed up`)
		}
	}
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
