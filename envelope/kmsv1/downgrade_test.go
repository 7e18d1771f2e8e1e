package kmsv1

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/subtle"
	"encoding/base64"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/envelope"
)

func newBlock(key []byte) (cipher.Block, error) { return aes.NewCipher(key) }

// forge makes AES-CBC ciphertext under the DEK of an AES-GCM record, of which
// only the plaintext is known: GCM tells what the DEK makes of its counter, and
// that block with a fitting IV decrypts to what is wanted.
func forge(t *testing.T, record []byte, known, wanted string) []byte {
	wrapped, data, ok := split(record)
	require.True(t, ok)
	require.GreaterOrEqual(t, len(known), aes.BlockSize)
	require.Less(t, len(wanted), aes.BlockSize)
	counter := append(append([]byte{}, data[:12]...), 0, 0, 0, 2) // SP 800-38D, 7.1
	block := make([]byte, aes.BlockSize)
	subtle.XORBytes(block, data[12:][:aes.BlockSize], []byte(known)[:aes.BlockSize])
	padded := []byte(wanted)
	for len(padded) < aes.BlockSize {
		padded = append(padded, byte(aes.BlockSize-len(wanted)))
	}
	iv := make([]byte, aes.BlockSize)
	subtle.XORBytes(iv, counter, padded)
	return append(append([]byte(head("", wrapped)), iv...), block...)
}

// This is the risk that the package tells of, and how far it is closed.
func TestAForgeryUnderTheDEKOfAnAESGCMValueIsRefusedOnceThatWasRead(t *testing.T) {
	const known = `{"kind":"Secret","apiVersion":"v1"}`
	r := newRig(t)
	genuine := r.write(known)
	forged := forge(t, genuine, known, "forged")

	_, _, err := r.Open(t.Context(), forged, otherKey)
	require.ErrorIs(t, err, envelope.ErrCorrupt, "the DEK was made here")

	l, _ := reader(t)
	got, stale, err := l.Open(t.Context(), forged, otherKey)
	require.NoError(t, err, "a DEK whose value was never read might be one of AES-CBC")
	require.Equal(t, "forged", string(got))
	require.True(t, stale)

	for range 2 {
		_, stale, err = l.Open(t.Context(), genuine, testKey)
		require.NoError(t, err)
		require.False(t, stale)
		_, _, err = l.Open(t.Context(), forged, otherKey)
		require.ErrorIs(t, err, envelope.ErrCorrupt)
	}
}

// oldRecord is what v1.24 wrote.
func oldRecord(t testing.TB, plugin *faultyPlugin, plaintext string) []byte {
	out, err := theirs(plugin, asOf124).TransformToStorage(t.Context(), []byte(plaintext), testKey)
	require.NoError(t, err)
	return out
}

func TestAESCBCValuesAreCountedAndToldOfOnceAMinute(t *testing.T) {
	r := newRig(t)
	old := oldRecord(t, r.plugin, "value")
	read := func() {
		_, stale, err := r.Open(t.Context(), old, testKey)
		require.NoError(t, err)
		require.True(t, stale)
	}
	read()
	require.Equal(t, []uint64{1}, r.seen.notes, "the first at once")
	require.Equal(t, "/registry/secrets/default/golden", r.seen.noted)
	for range 9 {
		r.clock.SetTime(r.clock.Now().Add(time.Second))
		read()
	}
	require.Equal(t, []uint64{1}, r.seen.notes)
	r.clock.SetTime(r.clock.Now().Add(noteEvery))
	read()
	require.Equal(t, []uint64{1, 10}, r.seen.notes)
	require.Equal(t, 11, r.seen.opened)

	_, _, err := r.Open(t.Context(), r.write("new"), testKey)
	require.NoError(t, err)
	require.Equal(t, 11, r.seen.opened, "AES-GCM is not counted")
}

// What does not open says the same whatever the reason: a length that only
// AES-GCM has, a padding that is wrong, and an AES-GCM value that was moved.
func TestOneErrorForAllThatDoesNotOpen(t *testing.T) {
	secret := make([]byte, dekSize)
	wrapped := head("", []byte(base64.StdEncoding.EncodeToString(secret)))
	texts := map[string]bool{}
	for n := minData; n <= 96; n++ {
		l, _ := reader(t)
		_, _, err := l.Open(t.Context(), append([]byte(wrapped), make([]byte, n)...), testKey)
		require.ErrorIs(t, err, envelope.ErrCorrupt)
		texts[err.Error()] = true
	}
	r := newRig(t)
	l, _ := reader(t)
	_, _, err := l.Open(t.Context(), r.write("1234"), otherKey)
	require.ErrorIs(t, err, envelope.ErrCorrupt)
	texts[err.Error()] = true
	require.Len(t, texts, 1)
}

// An IV and nothing else, and every other length that is too short.
func TestTooShortIsAnErrorAndNoCall(t *testing.T) {
	wrapped := head("", []byte(base64.StdEncoding.EncodeToString(make([]byte, dekSize))))
	l, plugin := reader(t)
	for n := range minData {
		_, _, err := l.Open(t.Context(), append([]byte(wrapped), make([]byte, n)...), testKey)
		require.ErrorIs(t, err, envelope.ErrCorrupt)
	}
	for n := range len(wrapped) {
		_, _, err := l.Open(t.Context(), []byte(wrapped)[:n], testKey)
		require.ErrorIs(t, err, envelope.ErrCorrupt)
	}
	_, decrypts := plugin.calls()
	require.Zero(t, decrypts)
}
