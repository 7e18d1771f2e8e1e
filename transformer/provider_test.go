package transformer_test

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apiserver/pkg/storage/value"

	"github.com/kube-atrest/atrest/internal/stored"
	"github.com/kube-atrest/atrest/transformer"
)

func TestKeysOfOtherSizesAreRefused(t *testing.T) {
	sizes := map[string]map[int]bool{
		stored.AESGCM.Kind:    {16: true, 24: true, 32: true},
		stored.AESCBC.Kind:    {16: true, 24: true, 32: true},
		stored.Secretbox.Kind: {32: true},
	}
	for kind, construct := range constructors {
		for size := range 65 {
			p, err := construct(keyOf('K', size))
			if sizes[kind][size] {
				require.NoError(t, err, "%s, %d bytes", kind, size)
				continue
			}
			require.ErrorContains(t, err, fmt.Sprintf("%s: the key has %d bytes", kind, size))
			require.NotContains(t, err.Error(), "KK")
			require.Nil(t, p)
		}
	}
}

func TestKeysAreCopied(t *testing.T) {
	for kind, construct := range constructors {
		key := keyOf(7, 32)
		p, err := construct(key)
		require.NoError(t, err)
		sealed, err := p.Seal(ctx, "", []byte("v"), here)
		require.NoError(t, err)
		clear(key)
		_, _, err = p.Open(ctx, sealed, here)
		require.NoError(t, err, kind)
	}
}

func TestInputsAreNeitherModifiedNorShared(t *testing.T) {
	for _, p := range everyProvider() {
		if p.format.Kind == "" {
			continue // identity hands its input on, as kube-apiserver's does
		}
		for _, size := range []int{0, 5, 16, 100} {
			chain := ours(t, p)
			backing := keyOf('p', size+64) // room for an append to do harm in
			data := write(t, chain, backing[:size])
			require.Equal(t, keyOf('p', size+64), backing, "%v changed what it sealed", p)

			padded := append(append([]byte(nil), data...), keyOf('s', 64)...)
			before := string(padded)
			out, _, err := chain.TransformFromStorage(ctx, padded[:len(data)], here)
			require.NoError(t, err)
			for i := range out {
				out[i] ^= 0xff
			}
			_, _, err = chain.TransformFromStorage(ctx, padded[:len(data)-1], here)
			require.Error(t, err)
			require.Equal(t, before, string(padded), "%v changed what it opened", p)
		}
	}
}

func TestIdentityHandsItsInputOn(t *testing.T) {
	in := []byte("k8s\x00 an object")
	out, stale, err := transformer.Identity().Open(ctx, in, here)
	require.NoError(t, err)
	require.False(t, stale)
	require.Same(t, &in[0], &out[0])

	out, err = transformer.Identity().Seal(ctx, "", in, here)
	require.NoError(t, err)
	require.Same(t, &in[0], &out[0])

	out, err = transformer.Identity().Seal(ctx, "prefix:", in, here)
	require.NoError(t, err)
	require.Equal(t, "prefix:"+string(in), string(out))
}

func TestIdentityRefusesCiphertext(t *testing.T) {
	_, _, err := transformer.Identity().Open(ctx, []byte("k8s:enc:anything"), here)
	require.ErrorContains(t, err, "is encrypted")
	require.NotErrorIs(t, err, transformer.ErrCorrupt, "nothing is wrong with the value")
}

// cbcPayload encrypts one block of plaintext, padding and all, as the caller has it.
func cbcPayload(t *testing.T, blocks ...byte) []byte {
	t.Helper()
	block, err := aes.NewCipher(keyOf(1, 32))
	require.NoError(t, err)
	payload := make([]byte, 16+len(blocks))
	cipher.NewCBCEncrypter(block, payload[:16]).CryptBlocks(payload[16:], blocks)
	return payload
}

// kube-apiserver takes longer runs too, up to 255 bytes, which nothing writes:
// PKCS #7 pads to the next block.
func TestCBCTakesOnlyWholePadding(t *testing.T) {
	p, err := transformer.NewAESCBC(keyOf(1, 32))
	require.NoError(t, err)
	padded := func(pad int) []byte {
		text := keyOf('v', 32)
		for i := range max(1, min(pad, len(text))) {
			text[len(text)-1-i] = byte(pad)
		}
		return text
	}
	for pad := range 256 {
		out, _, err := p.Open(ctx, cbcPayload(t, padded(pad)...), here)
		if pad < 1 || pad > 16 {
			require.Error(t, err, "padding %d", pad)
			continue
		}
		require.NoError(t, err, "padding %d", pad)
		require.Equal(t, keyOf('v', 32-pad), out)
		for i := 1; i < pad; i++ {
			broken := padded(pad)
			broken[len(broken)-1-i] ^= 0x80
			_, _, err := p.Open(ctx, cbcPayload(t, broken...), here)
			require.Error(t, err, "padding %d, broken %d bytes before the end", pad, i)
		}
	}
}

func TestCBCFailuresAreAllTheSame(t *testing.T) {
	p, err := transformer.NewAESCBC(keyOf(1, 32))
	require.NoError(t, err)
	_, _, want := p.Open(ctx, nil, here)
	require.ErrorIs(t, want, transformer.ErrCorrupt)
	for name, payload := range map[string][]byte{
		"shorter than an IV":   make([]byte, 15),
		"an IV alone":          make([]byte, 16),
		"not whole blocks":     make([]byte, 33),
		"no padding":           cbcPayload(t, keyOf(0, 16)...),
		"too much padding":     cbcPayload(t, keyOf(17, 16)...),
		"padding of two kinds": cbcPayload(t, append(keyOf(1, 15), 2)...),
	} {
		_, _, err := p.Open(ctx, payload, here)
		require.True(t, err == want, "%s: %v", name, err)
	}
}

func TestNoncesDoNotRepeat(t *testing.T) {
	for _, p := range everyProvider() {
		if p.format.Kind == "" {
			continue
		}
		seen := map[string]bool{}
		for range 1000 {
			nonce := string(write(t, ours(t, p), nil)[len(p.format.PrefixFor("key1")):][:12])
			require.False(t, seen[nonce], "%v", p)
			seen[nonce] = true
		}
	}
}

// One allocation is the value returned. CBC has a second, of 512 bytes: the
// standard library copies the key schedule into each encrypter and decrypter.
func TestAllocations(t *testing.T) {
	want := map[string]float64{stored.AESGCM.Kind: 1, stored.AESCBC.Kind: 2, stored.Secretbox.Kind: 1, "": 0}
	var at value.Context = here
	for _, p := range everyProvider() {
		for _, size := range []int{1 << 10, 64 << 10} {
			chain := ours(t, p)
			plaintext := keyOf('v', size)
			data := write(t, chain, plaintext)
			require.Equal(t, want[p.format.Kind], testing.AllocsPerRun(100, func() {
				_, _ = chain.TransformToStorage(ctx, plaintext, at)
			}), "seal, %v, %d bytes", p, size)
			require.Equal(t, want[p.format.Kind], testing.AllocsPerRun(100, func() {
				_, _, _ = chain.TransformFromStorage(ctx, data, at)
			}), "open, %v, %d bytes", p, size)
		}
	}
}

func TestKeysAreNeverPrinted(t *testing.T) {
	key := []byte("KEYMATERIALKEYMATERIALKEYMATERIA")
	traces := []string{"KEYMATERIAL", "4b45594d", "4B45594D", "75 69 89 77", "0x4b", "S0VZTUFURVJJQUw"}
	for kind, construct := range constructors {
		p, err := construct(key)
		require.NoError(t, err)
		entry := transformer.Entry{Prefix: "p:", Provider: p}
		chain := transformer.NewChain(secrets, []transformer.Entry{entry})
		hidden := struct{ p transformer.Provider }{p} // where fmt cannot call p's methods
		holders := []any{p, &p, entry, &entry, []any{p}, map[string]any{"k": p}, chain, *chain, hidden, &hidden}
		for _, holder := range holders {
			asJSON, err := json.Marshal(holder)
			require.NoError(t, err)
			printed := []string{string(asJSON)}
			for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%T"} {
				printed = append(printed, fmt.Sprintf(verb, holder))
			}
			for _, text := range printed {
				for _, trace := range traces {
					require.NotContains(t, text, trace, "%s as %T", kind, holder)
				}
			}
		}
		require.Equal(t, kind+" key (redacted)", fmt.Sprintf("%#v", p))
	}
}

// The FIPS 140-only mode is chosen when a process starts.
func TestProvidersWorkInFIPS140OnlyMode(t *testing.T) {
	if os.Getenv("GODEBUG") == "fips140=only" {
		for _, p := range everyProvider() {
			chain := ours(t, p)
			require.Equal(t, verdict{opened: true, value: "v"}, read(chain, write(t, chain, []byte("v")), here), "%v", p)
		}
		TestGoldenRecordsOpen(t)
		return
	}
	run := exec.Command(os.Args[0], "-test.run=^TestProvidersWorkInFIPS140OnlyMode$", "-test.v")
	run.Env = append(os.Environ(), "GODEBUG=fips140=only")
	out, err := run.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.True(t, strings.Contains(string(out), "--- PASS"), "%s", out)
}
