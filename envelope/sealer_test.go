package envelope

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"io"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/internal/gcm"
	"github.com/kube-atrest/atrest/internal/stored"
)

var errDry = errors.New("no randomness")

// dryAfter gives n bytes, one at a time, and then fails.
func dryAfter(n int) io.Reader {
	return iotest.OneByteReader(io.MultiReader(bytes.NewReader(make([]byte, n)), iotest.ErrReader(errDry)))
}

func sealed(s sealer, plaintext string) ([]byte, error) {
	return s.seal(testPrefix, []byte(plaintext), []byte("key"))
}

// A key or a nonce of which a part is not random must not come about.
func TestNothingIsMadeOrSealedWithoutAllOfItsRandomness(t *testing.T) {
	seeded, err := newSeedSealer(make([]byte, seedSize), nil, dryAfter(0), 10)
	require.NoError(t, err)
	for name, test := range map[string]struct {
		needs int // bytes
		make  func(random io.Reader) (made bool, err error)
	}{
		"DEK": {dekSize, func(random io.Reader) (bool, error) {
			var m maker
			err := m.begin(random)
			return m.pending != nil, err
		}},
		"nonce of a DEK": {fixedSize, func(random io.Reader) (bool, error) {
			s, err := newCounterSealer(make([]byte, dekSize), nil, random, 10)
			return s != nil, err
		}},
		"info and nonce of a value": {seeded.header, func(random io.Reader) (bool, error) {
			s, err := newSeedSealer(make([]byte, seedSize), nil, random, 10)
			require.NoError(t, err)
			out, err := sealed(s, "value")
			return out != nil, err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "nonce of a DEK" {
				counted(t)
			}
			for given := range test.needs {
				made, err := test.make(dryAfter(given))
				require.ErrorIs(t, err, errDry, "%d of %d bytes", given, test.needs)
				require.False(t, made)
			}
			made, err := test.make(dryAfter(test.needs))
			require.NoError(t, err)
			require.True(t, made)
		})
	}
}

// A source of randomness that fails costs writes and nothing else.
func TestWritesFailWhileThereIsNoRandomness(t *testing.T) {
	var dry atomic.Bool
	r := newRig(t, func(o *Options) {
		o.Mode, o.Random = Seed, readerFunc(func(p []byte) (int, error) {
			if dry.Load() {
				return 0, errDry
			}
			return rand.Read(p)
		})
	})
	before := r.write("before")
	dry.Store(true)
	out, err := r.Seal(t.Context(), testPrefix, []byte("now"), testKey)
	require.ErrorIs(t, err, errDry)
	require.Nil(t, out)
	got, _ := r.read(before)
	require.Equal(t, "before", got)
	dry.Store(false)
	got, _ = r.read(r.write("after"))
	require.Equal(t, "after", got)
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// What came from etcd may have lost any number of bytes.
func TestAValueCutAnywhereIsCorruptAndNoPanic(t *testing.T) {
	for _, mode := range WriteModes() {
		t.Run(string(mode), func(t *testing.T) {
			r := newRig(t, func(o *Options) { o.Mode = mode })
			data, tail, ok := stored.Split(r.write("value"))
			require.True(t, ok)
			for n := range data {
				cut := append(append(stored.AppendDataHead(nil, n), data[:n]...), tail...)
				_, _, err := r.Open(t.Context(), cut, testKey)
				require.ErrorIs(t, err, ErrCorrupt, "%d of %d bytes are left", n, len(data))

				open, err := newOpener(mode.sourceType(), r.plugin.wrapped[0])
				require.NoError(t, err)
				_, err = open.open(data[:n], testKey.AuthenticatedData())
				require.Error(t, err)
			}
		})
	}
}

func TestAnOpenerKeepsNothingOfWhatAPluginUnwrapped(t *testing.T) {
	for _, mode := range WriteModes() {
		r := newRig(t, func(o *Options) { o.Mode = mode })
		data, _, _ := stored.Split(r.write("value"))
		secret := bytes.Clone(r.plugin.wrapped[0])
		open, err := newOpener(mode.sourceType(), secret)
		require.NoError(t, err)
		clear(secret)
		got, err := open.open(data, testKey.AuthenticatedData())
		require.NoError(t, err)
		require.Equal(t, "value", string(got))
	}
}

func TestASecretOfNoUsableLengthMakesNeitherSealerNorOpener(t *testing.T) {
	for n := range 100 {
		secret := make([]byte, n)
		isKey := n == 16 || n == 24 || n == 32
		_, err := newOpener(stored.SourceDEK, secret)
		require.Equal(t, isKey, err == nil, "DEK of %d bytes: %v", n, err)
		if slices.Contains(WriteModes(), Counter) {
			counter, err := newCounterSealer(secret, nil, zeros{}, 1)
			require.Equal(t, isKey, err == nil, "DEK of %d bytes: %v", n, err)
			require.Equal(t, isKey, counter != nil)
		}

		_, err = newOpener(stored.SourceSeed, secret)
		require.Equal(t, n >= seedSize, err == nil, "seed of %d bytes: %v", n, err)
		seeded, err := newSeedSealer(secret, nil, zeros{}, 1)
		require.Equal(t, n >= seedSize, err == nil, "seed of %d bytes: %v", n, err)
		require.Equal(t, n >= seedSize, seeded != nil)
	}
}

// The state of a seed is used again, for other values, for as long as the seed is.
func TestTheKeyOfAValueIsOverwrittenWhenItsCipherIsMade(t *testing.T) {
	s, err := newSeed(make([]byte, seedSize))
	require.NoError(t, err)
	m := &mac{As: "seed", Hash: hmac.New(sha256.New, make([]byte, seedSize))}
	s.macs.New = func() any { return m }
	info := make([]byte, infoSize)
	aead, err := s.aead(info, gcm.RandomNonce)
	require.NoError(t, err)
	require.NotNil(t, aead)
	require.Equal(t, [sha256.Size]byte{}, m.key)

	m.Reset()
	m.Write(append(info, 1))
	require.NotEqual(t, make([]byte, sha256.Size), m.Sum(nil), "it is not the key that is zero")
}

// A seed is in memory for as long as something seals or opens with it.
func TestASeedIsOverwrittenOnceNothingUsesIt(t *testing.T) {
	secret := bytes.Repeat([]byte{7}, seedSize)
	s, err := newSeed(secret)
	require.NoError(t, err)
	state := s.macs.New // refers to the seed's own copy, and not to the seed
	require.Equal(t, macOf(secret), state().(*mac).Sum(nil))
	runtime.KeepAlive(s)

	require.Eventually(t, func() bool {
		runtime.GC()
		return bytes.Equal(macOf(make([]byte, seedSize)), state().(*mac).Sum(nil))
	}, testWait, time.Millisecond)
	require.Equal(t, bytes.Repeat([]byte{7}, seedSize), secret, "the caller's is the caller's")
}

func macOf(key []byte) []byte { return hmac.New(sha256.New, key).Sum(nil) }
