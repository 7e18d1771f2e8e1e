//go:build cgo

package pkcs11

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	cryptoki "github.com/miekg/pkcs11"
	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/kmsplugin"
	"github.com/kube-atrest/atrest/kmsplugin/plugintest"
)

// numbered is a token whose handles are the numbers of places, which are used again, and that
// takes a while to tell of a key.
type numbered struct {
	driver
	clock *stepping
	takes time.Duration
	// damaged is what it answers to a ciphertext that does not open, if not zero.
	damaged uint
	// other is what it answers to who encrypts with what is no AES key.
	other uint

	mu     sync.Mutex
	places []cryptoki.ObjectHandle // real handles, zero if free
}

// numberTheKeys puts such a token in the place of a token.
func numberTheKeys(t testing.TB, token *Token, takes time.Duration) *numbered {
	t.Helper()
	m, err := load(token.config.Module)
	require.NoError(t, err)
	n := &numbered{driver: m.driver, clock: &stepping{}, takes: takes}
	n.clock.passed.Store(time.Now().UnixNano())
	token.config.Clock = n.clock
	mine := newModule(m.path, n)
	token.load = func(string) (*module, error) { return mine, nil }
	return n
}

func (n *numbered) find(h cryptoki.SessionHandle, a []*cryptoki.Attribute) ([]cryptoki.ObjectHandle, error) {
	real, err := n.driver.find(h, a)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	var all []cryptoki.ObjectHandle
	for i, o := range n.places {
		for _, one := range real {
			if one == o {
				all = append(all, cryptoki.ObjectHandle(i+1))
			}
		}
		if _, err := (object{newLine(n.driver, h), o}).attributes(cryptoki.CKA_ID); err != nil {
			n.places[i] = 0
		}
	}
	for _, one := range real {
		all = append(all, n.place(one)...)
	}
	return all, nil
}

// place gives an object that has none a place.
func (n *numbered) place(object cryptoki.ObjectHandle) []cryptoki.ObjectHandle {
	free := len(n.places)
	for i, o := range n.places {
		if o == object {
			return nil
		}
		if o == 0 {
			free = min(free, i)
		}
	}
	if free == len(n.places) {
		n.places = append(n.places, 0)
	}
	n.places[free] = object
	return []cryptoki.ObjectHandle{cryptoki.ObjectHandle(free + 1)}
}

func (n *numbered) GenerateKey(h cryptoki.SessionHandle, m []*cryptoki.Mechanism, a []*cryptoki.Attribute) (cryptoki.ObjectHandle, error) {
	real, err := n.driver.GenerateKey(h, m, a)
	if err != nil {
		return 0, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.place(real)[0], nil
}

func (n *numbered) at(o cryptoki.ObjectHandle) cryptoki.ObjectHandle {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.places[o-1]
}

// slow has it take that long from now on.
func (n *numbered) slow(takes time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.takes = takes
}

func (n *numbered) swap(a, b int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.places[a], n.places[b] = n.places[b], n.places[a]
}

func (n *numbered) GetAttributeValue(h cryptoki.SessionHandle, o cryptoki.ObjectHandle, a []*cryptoki.Attribute) ([]*cryptoki.Attribute, error) {
	n.mu.Lock()
	takes := n.takes
	n.mu.Unlock()
	n.clock.passed.Add(int64(takes))
	return n.driver.GetAttributeValue(h, n.at(o), a)
}

func (n *numbered) seal(h cryptoki.SessionHandle, key cryptoki.ObjectHandle, iv, aad, p []byte) ([]byte, []byte, error) {
	ct, used, err := n.driver.seal(h, n.at(key), iv, aad, p)
	if n.other != 0 && err != nil {
		err = cryptoki.Error(n.other)
	}
	return ct, used, err
}

func (n *numbered) open(h cryptoki.SessionHandle, key cryptoki.ObjectHandle, iv, aad, c []byte) ([]byte, error) {
	dek, err := n.driver.open(h, n.at(key), iv, aad, c)
	if n.other != 0 && err != nil {
		return nil, cryptoki.Error(n.other)
	}
	if n.damaged != 0 && isCode(err, cryptoki.CKR_GENERAL_ERROR) {
		err = cryptoki.Error(n.damaged)
	}
	return dek, err
}

// tokenWithKeys is a new token with so many versions.
func tokenWithKeys(t testing.TB, versions int) *Token {
	t.Helper()
	token, _ := tokenWithKey(t)
	for range versions - 1 {
		_, err := token.Rotate(t.Context())
		require.NoError(t, err)
	}
	return token
}

func TestAnEmptyTokenInThePlaceOfTheOldIsNoProofThatAKeyIsGone(t *testing.T) {
	token, info := tokenWithKey(t)
	k := keep(t, token)
	becomes(t, k, wraps(info.KeyID))
	sealed := wrapped(t, k)
	bringBack := takeAway(t)
	becomes(t, k, is(kmsplugin.ErrUnavailable))
	t.Cleanup(func() {
		require.NoError(t, os.RemoveAll(tokens()))
		bringBack()
	})
	comesWith(t, token.config.Token)
	becomes(t, k, is(kmsplugin.ErrKeyDisabled))
	_, err := k.Status(t.Context())
	require.ErrorContains(t, err, "restore it or")
	_, err = k.Decrypt(t.Context(), "", sealed)
	require.ErrorIs(t, err, kmsplugin.ErrKeyDisabled)
	require.NotErrorIs(t, err, kmsplugin.ErrUnknownKey)
}

func TestTheOnlyKeyThatMayNotDecryptNowIsNotSaidToBeGone(t *testing.T) {
	token, info := tokenWithKey(t)
	a := alter(t, token)
	k := keep(t, token)
	becomes(t, k, wraps(info.KeyID))
	sealed := wrapped(t, k)
	a.set(func(a *altered) {
		a.attributes = func(found []*cryptoki.Attribute) {
			for _, one := range found {
				if one.Type == cryptoki.CKA_DECRYPT {
					one.Value = []byte{0}
				}
			}
		}
	})
	becomes(t, k, is(kmsplugin.ErrKeyDisabled))
	_, err := k.Decrypt(t.Context(), "", sealed)
	require.ErrorIs(t, err, kmsplugin.ErrKeyDisabled)
	require.NotErrorIs(t, err, kmsplugin.ErrUnknownKey)
}

func TestThatAKeyIsGoneIsSaidOnceAFreshLookShowsIt(t *testing.T) {
	token := tokenWithKeys(t, 2)
	unhurried(token)
	a := alter(t, token)
	s, _ := opened(t, token)
	gone := newKeyID(7, time.Now()).version()
	ct := append([]byte{form}, make([]byte, 60)...)
	_, err := s.Unwrap(t.Context(), gone, ct, nil)
	require.ErrorIs(t, err, kmsplugin.ErrUnknownKey)

	a.set(func(a *altered) { a.fails = cryptoki.Error(cryptoki.CKR_DEVICE_ERROR) })
	_, err = s.Unwrap(t.Context(), gone, ct, nil)
	require.ErrorIs(t, err, kmsplugin.ErrUnavailable)
	require.NotErrorIs(t, err, kmsplugin.ErrUnknownKey)
	a.set(func(a *altered) { a.fails = nil })
	act(t, token.config, "make", "foreign")
	_, err = s.Unwrap(t.Context(), gone, ct, nil)
	require.ErrorIs(t, err, kmsplugin.ErrKeyDisabled)
	require.NotErrorIs(t, err, kmsplugin.ErrUnknownKey)
	_, _, err = s.Wrap(t.Context(), gone, []byte("dek"), nil)
	require.NotErrorIs(t, err, kmsplugin.ErrUnknownKey)
}

// What another process makes is found, though no look has seen it.
func TestAKeyThatNoLookHasSeenUnwraps(t *testing.T) {
	token, _ := tokenWithKey(t)
	s, _ := opened(t, token)
	rotate(t, token)
	other, v := opened(t, newToken(t, token.config))
	ct, _, err := other.Wrap(t.Context(), v, []byte("dek"), nil)
	require.NoError(t, err)
	dek, err := s.Unwrap(t.Context(), v, ct, nil)
	require.NoError(t, err)
	require.Equal(t, "dek", string(dek))
}

// Another node has wrapped under it. HSMs number their objects.
func TestANewKeyInThePlaceOfADestroyedOneIsNotSaidToBeGone(t *testing.T) {
	token := tokenWithKeys(t, 12)
	numberTheKeys(t, token, 100*time.Millisecond)
	k := plugintest.Keep(t, token, token.Keeping()) // polls every 10 s, as the command does
	becomes(t, k, isWell)
	elsewhere := newToken(t, token.config)
	elsewhere.config.Clock = patient{}
	elsewhere, err := New(elsewhere.config)
	require.NoError(t, err)
	infos, err := elsewhere.List(t.Context())
	require.NoError(t, err)
	act(t, token.config, "delete", infos[len(infos)-2].CKAID)
	next := rotate(t, token)
	other, v := opened(t, elsewhere)
	require.Equal(t, next.KeyID, v.KeyID())
	ct, _, err := other.Wrap(t.Context(), v, []byte("dek"), []byte(v.KeyID()))
	require.NoError(t, err)
	requireOpens(t, k, kmsplugin.Sealed{Ciphertext: ct, KeyID: v.KeyID()})
}

func TestALookSeesANewKeyInThePlaceOfADestroyedOne(t *testing.T) {
	token := tokenWithKeys(t, 12)
	numberTheKeys(t, token, 100*time.Millisecond)
	s, _ := opened(t, token)
	found, err := s.Versions(t.Context())
	require.NoError(t, err)
	for range 3 {
		old := found.All[5]
		act(t, token.config, "delete", fmt.Sprintf("%x", old.Lineage))
		next := rotate(t, token)
		found, err = s.Versions(t.Context())
		require.NoError(t, err)
		require.Len(t, found.All, 12)
		require.Equal(t, next.KeyID, found.All[11].KeyID())
		require.NotContains(t, found.All, old)
	}
}

// Deleted and restored, or numbered anew: the handle is another key's, and the ciphertext is good.
func TestAHandleThatIsAnotherKeysByNowIsNoDamagedCiphertext(t *testing.T) {
	for _, damaged := range []uint{0, cryptoki.CKR_ENCRYPTED_DATA_INVALID, cryptoki.CKR_ENCRYPTED_DATA_LEN_RANGE, 0x35 /* CKR_AEAD_DECRYPT_FAILED */} {
		token := tokenWithKeys(t, 2)
		n := numberTheKeys(t, token, 0)
		n.damaged = damaged
		s, v := opened(t, token)
		ct, _, err := s.Wrap(t.Context(), v, []byte("dek"), nil)
		require.NoError(t, err)
		_, err = s.Unwrap(t.Context(), v, damagedOf(ct), nil)
		require.ErrorIs(t, err, kmsplugin.ErrInvalid)

		n.swap(0, 1)
		_, used, err := s.Wrap(t.Context(), v, []byte("dek"), nil)
		require.NoError(t, err)
		require.Equal(t, v, used, "the handle was found anew")
		dek, err := s.Unwrap(t.Context(), v, ct, nil)
		require.NoError(t, err, damaged)
		require.Equal(t, "dek", string(dek))
		_, err = s.Unwrap(t.Context(), v, damagedOf(ct), nil)
		require.ErrorIs(t, err, kmsplugin.ErrInvalid)
	}
}

// The number of a key that was moved is that of something else, which does not encrypt at all.
func TestAHandleThatIsOfSomethingElseByNowIsNoKeyThatIsDisabled(t *testing.T) {
	token := tokenWithKeys(t, 1)
	other := token.config
	other.Key = "other"
	act(t, other, "make", "generic")
	for _, code := range []uint{cryptoki.CKR_KEY_TYPE_INCONSISTENT, cryptoki.CKR_KEY_FUNCTION_NOT_PERMITTED, cryptoki.CKR_KEY_SIZE_RANGE} {
		n := numberTheKeys(t, token, 0)
		n.other = code
		s, v := opened(t, token)
		ct, _, err := s.Wrap(t.Context(), v, []byte("dek"), nil)
		require.NoError(t, err)
		l := s.pool.now(want{})
		_, err = l.find(newToken(t, other).keys())
		require.NoError(t, err)
		s.pool.put(l)
		for range 8 {
			n.swap(0, 1)
			_, _, err = s.Wrap(t.Context(), v, []byte("dek"), nil)
			require.NoError(t, err)
			n.swap(0, 1)
			dek, err := s.Unwrap(t.Context(), v, ct, nil)
			require.NoError(t, err)
			require.Equal(t, "dek", string(dek))
		}
	}
}

func TestACiphertextIsNotDamagedWhileTheKeysHaveAProblem(t *testing.T) {
	token, _ := tokenWithKey(t)
	s, v := opened(t, token)
	ct, _, err := s.Wrap(t.Context(), v, []byte("dek"), nil)
	require.NoError(t, err)
	act(t, token.config, "make", "with the CKA_ID", idOf(t, token))
	_, err = s.Versions(t.Context())
	require.ErrorIs(t, err, kmsplugin.ErrKeyDisabled)
	_, _, err = s.Wrap(t.Context(), v, []byte("dek"), nil)
	require.ErrorIs(t, err, kmsplugin.ErrKeyDisabled, "nothing is wrapped")
	_, err = s.Unwrap(t.Context(), v, damagedOf(ct), nil)
	require.ErrorIs(t, err, kmsplugin.ErrKeyDisabled)
	require.NotErrorIs(t, err, kmsplugin.ErrInvalid)
}

// A CKA_ID that is there twice: one of the two is out of reach.
func TestAnOutageOfOneKeyIsNotHiddenByAnother(t *testing.T) {
	var tried atomic.Int32
	_, err := anyOf([]object{{number: 1}, {number: 2}, {number: 3}}, func(key object) ([]byte, error) {
		tried.Add(1)
		if key.number == 2 {
			return nil, kmsplugin.ErrUnavailable
		}
		return nil, errDoesNotOpen
	})
	require.ErrorIs(t, err, kmsplugin.ErrUnavailable)
	require.EqualValues(t, 3, tried.Load())
}
